"""A trial on real traffic: several repairs together, each judged by the people of its own part of the traffic.

Repairs whose parts of the traffic are apart do not disturb each other, so one canary tries them all, as a merge queue
does: each is merged into a copy of the agent, and one that does not fit beside the others waits for the next trial.
People who are drawn into the canary are served the copy; whose thumbs count for a repair are those who asked a question
of its part, on either side (`evidence.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..learn.evolution.marks import Mark
from ..learn.evolution.pieces import cut, put
from ..learn.evolution.settings import folder_in_git
from ..learn.evolution.suspects import ENTRY
from ..record.store import Store
from ..record.store.releases import PROGRAM
from ..repository.text import as_written, diff, plain
from ..types import Bundle, Version
from .work import bundle_of


@dataclass(frozen=True, slots=True)
class Boarded:
    """Repairs that are tried together."""

    bundle: Bundle
    folder: Path
    """A copy of the agent with all of them."""
    issues: Sequence[str]
    left: Sequence[str]
    """Those that did not fit beside the others."""


def board(store: Store, root: Path, folder: Path, works: Mapping[str, dict[str, Any]]) -> Boarded:
    """Put the repairs of these issues together.

    Args:
        root: the agent's folder.
        folder: where the copy goes; what stands there is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".whet", "__pycache__", folder.parent.name, "*.db*")
    shutil.copytree(root, folder, ignore=ignored)
    boarded, unfit, pieces = list[str](), list[str](), dict[str, tuple[Mark, str | None]]()
    for issue, work in works.items():
        changed = merge(store, folder, work)
        if changed is None:
            unfit.append(issue)
            continue
        boarded.append(issue)
        for path, text in changed.items():
            (folder / path).write_text(text, encoding="utf-8")
        for resource, version in bundle_of(store, work).items():
            pieces[resource] = (_mark(work, resource), version.parent)
    versions = [
        Version(resource=resource, content=_text(folder, mark), kind=PROGRAM, parent=parent)
        for resource, (mark, parent) in pieces.items()
    ]
    return Boarded(Bundle(versions), folder, boarded, unfit)


def merge(store: Store, root: Path, work: Mapping[str, Any]) -> dict[str, str] | None:
    """Path → text of the files that a repair changes in a folder, which others may have changed before.

    Lines that both add to a text or a table stand one after the other; of a JSON file both sides' values are taken;
    code that both change does not fit.

    Returns:
        None where it does not fit, or changes nothing any more.

    Raises:
        InputError: git is not installed.
    """
    before, files = store.bundle(work["start"]), dict[str, str]()
    for resource, version in bundle_of(store, dict(work)).items():
        mark = _mark(work, resource)
        now, old, new = _text(root, mark), str(before[resource].content), str(version.content)
        if now == old:
            merged: str | None = new
        elif mark.path.endswith(".json"):
            merged = entries_merged(now, old, new)
        else:
            merged = _merged(now, old, new, union=not _code(mark))
        if merged is None or merged == now:
            return None
        text = files.get(mark.path) or (root / mark.path).read_text(encoding="utf-8")
        try:
            files[mark.path] = put(mark, text, merged)
        except InputError:
            return None
    return files


def patch_of(store: Store, root: Path, work: Mapping[str, Any]) -> str:
    """A repair as a patch of the agent's repository as it stands now; "" where it does not fit any more."""
    folder = folder_in_git(root)
    changed = merge(store, root, work) or {}
    parts = []
    for path, text in sorted(changed.items()):
        before = (root / path).read_bytes().decode("utf-8")
        parts.append(diff(folder + path, before, as_written(before, plain(text))))
    return "".join(parts)


def _mark(work: Mapping[str, Any], resource: str) -> Mark:
    path, qualname = next((path, name) for piece, path, name in work["pieces"] if piece == resource)
    return Mark(resource, "", path, 1, qualname, how="comment" if qualname else "skill")


def _text(folder: Path, mark: Mark) -> str:
    return cut(mark, (folder / mark.path).read_text(encoding="utf-8")).text


def _code(mark: Mark) -> bool:
    """A function; of constants and files of values both sides' lines may stand."""
    return mark.path.endswith(".py") and not mark.qualname.isupper()


def entries_merged(now: str, old: str, new: str) -> str | None:
    """Both changes of a JSON file: the values that one of them exchanges, in the text of the other.

    Lines beside each other are one place to git, and both of a conflict make no JSON.
    """
    before, after = ([match.groupdict() for match in ENTRY.finditer(text)] for text in (old, new))
    if [each["name"] for each in before] != [each["name"] for each in after]:
        merged = _merged(now, old, new, union=False)
    else:
        changes = [(was, to) for was, to in zip(before, after, strict=True) if was["value"] != to["value"]]
        merged = now if old != new and changes else None
        for was, to in changes:
            places = [each for each in ENTRY.finditer(merged or "") if each["name"] == was["name"]]
            if merged is None or len(places) != 1 or places[0]["value"] != was["value"]:
                return None
            start, end = places[0].span("value")
            merged = merged[:start] + to["value"] + merged[end:]
    try:
        json.loads(merged or "")
    except ValueError:
        return None
    return merged


def _merged(now: str, old: str, new: str, *, union: bool) -> str | None:
    """Both changes of a text together; None where they are of the same lines."""
    with tempfile.TemporaryDirectory(prefix="whet-merge-") as folder:
        paths = [Path(folder) / name for name in ("now", "old", "new")]
        for path, text in zip(paths, (now, old, new), strict=True):
            path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
        words = ["git", "merge-file", "-p", "-q", *(["--union"] if union else []), *map(str, paths)]
        try:
            done = subprocess.run(words, capture_output=True, check=False)
        except FileNotFoundError:
            raise InputError("a trial puts repairs together with git, which is not installed") from None
    if done.returncode:
        return None
    merged = done.stdout.decode("utf-8")
    return merged if now.endswith("\n") else merged.removesuffix("\n")
