"""A trial on real traffic: several repairs together, each judged by the people of its own part of the traffic.

Repairs whose parts of the traffic are apart do not disturb each other, so one canary tries them all, as a merge queue
does: each is merged into a copy of the agent, and one that does not fit beside the others waits for the next trial.
People who are drawn into the canary are served the copy; whose thumbs count for a repair are those who asked a question
of its part, on either side (`evidence.py`).
"""

from __future__ import annotations

import difflib
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, NotFoundError
from ..learn.evolution.agents.agent import holds_values
from ..learn.evolution.agents.marks import Mark
from ..learn.evolution.agents.pieces import cut, put
from ..learn.evolution.repair.values import ENTRY
from ..learn.evolution.search.settings import folder_in_git
from ..record.store import Store
from ..record.store.releases import PROGRAM
from ..repository.text import as_written, diff, plain
from ..types import Bundle, Version
from .work import bundle_of

_ABSENT = object()
Merger = Callable[[Mark, str, str, str], str | None]
"""Piece, its text now, before a repair and after it → the new text; None where it does not fit."""


@dataclass(frozen=True, slots=True)
class Boarded:
    """Repairs that are tried together."""

    bundle: Bundle
    folder: Path
    """A copy of the agent with all of them."""
    issues: Sequence[str]
    left: Sequence[str]
    """Those that did not fit beside the others."""


@dataclass
class AgentSource:
    """The agent's files with repairs put into them, one after the other, in memory."""

    root: Path
    changed: dict[str, str] = field(default_factory=dict)
    """Path → text of what differs from the folder."""

    @classmethod
    def live(cls, store: Store, root: Path, shipped: Iterable[Mapping[str, Any]]) -> AgentSource:
        """As what is live has them: a repair goes live before anybody merges it."""
        source = cls(root)
        for work in shipped:
            source.take(store, work)
        return source

    def text(self, path: str) -> str:
        return self.changed[path] if path in self.changed else (self.root / path).read_text(encoding="utf-8")

    def piece(self, mark: Mark) -> str:
        """The text of a piece as it stands now."""
        return cut(mark, self.text(mark.path)).text

    def take(self, store: Store, work: Mapping[str, Any]) -> bool:
        """Put a repair in; False, and nothing is changed, where it does not fit or changes nothing any more."""
        return self._put(store, work, _joined)

    def drop(self, store: Store, work: Mapping[str, Any]) -> bool:
        """Take a repair out that was merged, whatever was merged since; False as of `take`."""
        return self._put(store, work, _parted)

    def lacks(self, store: Store, work: Mapping[str, Any]) -> bool:
        """True if nothing of a repair stands here, so that it could be put in."""
        return AgentSource(self.root, {**self.changed}).take(store, work)

    def _put(self, store: Store, work: Mapping[str, Any], merged: Merger) -> bool:
        before, files = store.bundle(work["start"]), dict[str, str]()
        try:
            for resource, version in bundle_of(store, dict(work)).items():
                mark = mark_of(work, resource)
                now = self.piece(mark)
                text = merged(mark, now, str(before[resource].content), str(version.content))
                if text is None or text == now:
                    return False
                files[mark.path] = put(mark, files.get(mark.path) or self.text(mark.path), text)
        except (InputError, NotFoundError, OSError, UnicodeDecodeError):
            return False  # its owners have moved the piece, or taken it away
        self.changed.update(files)
        return bool(files)


def board(
    store: Store,
    root: Path,
    folder: Path,
    works: Mapping[str, dict[str, Any]],
    shipped: Iterable[Mapping[str, Any]] = (),
) -> Boarded:
    """Put the repairs of these issues together.

    Args:
        root: the agent's folder.
        folder: where the copy goes; what stands there is replaced.
        shipped: work on repairs that are live: both sides have them, whether they are merged or not.
    """
    source = AgentSource.live(store, root, shipped)
    boarded, unfit, pieces = list[str](), list[str](), dict[str, tuple[Mark, str | None]]()
    for issue, work in works.items():
        if not source.take(store, work):
            unfit.append(issue)
            continue
        boarded.append(issue)
        for resource, version in bundle_of(store, work).items():
            pieces[resource] = (mark_of(work, resource), version.parent)
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".whet", "__pycache__", folder.parent.name, "*.db*")
    shutil.copytree(root, folder, ignore=ignored)
    for path, text in source.changed.items():
        (folder / path).write_text(text, encoding="utf-8")
    versions = [
        Version(resource=resource, content=source.piece(mark), kind=PROGRAM, parent=parent)
        for resource, (mark, parent) in pieces.items()
    ]
    return Boarded(Bundle(versions), folder, boarded, unfit)


def patch_of(store: Store, root: Path, work: Mapping[str, Any], *, back: bool = False) -> str:
    """A repair as a patch of the agent's repository as it stands now; "" where it does not fit any more.

    Args:
        back: take out of the source what was merged; "" where it does not stand there.

    Raises:
        InputError: git is not installed.
    """
    folder, source = folder_in_git(root), AgentSource(root)
    if back:
        source.drop(store, work)
    else:
        source.take(store, work)
    parts = []
    for path, text in sorted(source.changed.items()):
        before = (root / path).read_bytes().decode("utf-8")
        parts.append(diff(folder + path, before, as_written(before, plain(text))))
    return "".join(parts)


def mark_of(work: Mapping[str, Any], resource: str) -> Mark:
    """Where a piece that a repair changes stands in the source."""
    path, qualname, how = next(place for piece, *place in work["pieces"] if piece == resource)
    # However a definition was marked, here it is found by its name.
    return Mark(resource, "", path, 1, qualname, how=how if how in ("file", "skill") else "comment")


def _joined(mark: Mark, now: str, old: str, new: str) -> str | None:
    """A repair beside what others changed.

    Lines that both add to a text or a table stand one after the other; of a JSON file both sides' values are taken;
    code that both change does not fit.
    """
    if now == old:
        return new
    if _values(mark):
        return entries_merged(now, old, new)
    if _code(mark):
        return _merged(now, old, new, union=False)
    text = lines_merged(now, old, new)
    # A row of a table that both changed is neither's; of a prompt both sentences may stand.
    return _merged(now, old, new, union=True) if text is None and not _table(mark) else text


def _parted(mark: Mark, now: str, old: str, new: str) -> str | None:
    """The text without a repair, each of whose changed places has to stand there once, as it left it."""
    if now == new:
        return old
    if _values(mark):
        return entries_merged(now, new, old)
    lines, before, after = now.splitlines(), old.splitlines(), new.splitlines()
    for tag, begin, end, first, last in difflib.SequenceMatcher(
        a=before, b=after, autojunk=False
    ).get_opcodes():
        written = after[first:last]
        if tag == "equal":
            continue
        if not written:
            return None  # nothing is left that says where the lines stood
        places = [n for n in range(len(lines) - len(written) + 1) if lines[n : n + len(written)] == written]
        if len(places) != 1:
            return None
        lines[places[0] : places[0] + len(written)] = before[begin:end]
    return "\n".join(lines) + ("\n" if now.endswith("\n") else "")


def _values(mark: Mark) -> bool:
    """A whole file of JSON, and no text under a key of one."""
    return mark.path.endswith(".json") and not mark.qualname


def _table(mark: Mark) -> bool:
    """A whole file of values."""
    return mark.how == "skill" and holds_values(Path(mark.path))


def _code(mark: Mark) -> bool:
    """A function; of constants and files of values both sides' lines may stand."""
    return mark.path.endswith(".py") and not mark.qualname.isupper()


def entries_merged(now: str, old: str, new: str) -> str | None:
    """Both changes of a JSON file: the values that one of them exchanges, in the text of the other.

    Lines beside each other are one place to git, and both of a conflict make no JSON.  What is more than an exchanged
    value is merged by what it holds, where the text is as `json.dumps` writes it.
    """
    before, after = ([match.groupdict() for match in ENTRY.finditer(text)] for text in (old, new))
    names = [[each["name"] for each in entries] for entries in (before, after)]
    if names[0] != names[1] or before == after:
        merged = _merged(now, old, new, union=False)
        if merged is None:
            merged = _held_merged(now, old, new)
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


def _held_merged(now: str, old: str, new: str) -> str | None:
    """Both changes of a JSON text by its values, written as it was; None where they are of the same value."""
    try:
        held = [json.loads(text) for text in (now, old, new)]
        merged = _both(*held)
    except ValueError:
        return None
    for indent, ascii_only in itertools.product((None, 1, 2, 3, 4, "\t"), (False, True)):
        for end in ("", "\n"):
            if json.dumps(held[0], indent=indent, ensure_ascii=ascii_only) + end == now:
                return json.dumps(merged, indent=indent, ensure_ascii=ascii_only) + end
    return None


def _both(now: Any, old: Any, new: Any) -> Any:
    """A value with what changed from `old` to `new`.

    Raises:
        ValueError: something else was made of the same value.
    """
    if new == old or now == new:
        return now
    if now == old:
        return new
    if isinstance(now, dict) and isinstance(old, dict) and isinstance(new, dict):
        made, keys, before = dict[str, Any](), list(now), ""
        for key in new:
            # Behind the one that it was put behind: of a table of rules the first may count.
            if key not in keys:
                keys.insert(keys.index(before) + 1 if before in keys else 0, key)
            before = key
        for key in keys:
            sides = [each.get(key, _ABSENT) for each in (now, old, new)]
            if (value := _both(*sides)) is not _ABSENT:
                made[key] = value
        return made
    if isinstance(now, list) and isinstance(old, list) and isinstance(new, list):
        # Alone what goes, or what is added at the end, has one place whatever else was done to the list.
        kept = [each for each in old if each in new]
        added = new[len(kept) :]
        if new[: len(kept)] == kept and not any(each in old for each in added):
            return [*(each for each in now if each in new or each not in old), *added]
    raise ValueError("both changed it")


def lines_merged(now: str, old: str, new: str) -> str | None:
    """Both changes of a text or a table by its lines; None where they are of the same line.

    Rows beside each other are changes of their own, where git sees one place; what both put in one place stands one
    after the other, and once if the one has all that the other puts there.
    """
    before = old.splitlines()
    mine, theirs = (_line_changes(before, text.splitlines()) for text in (now, new))
    theirs = [change for change in theirs if not any(change.stands_in(each) for each in mine)]
    end = 0
    merged = list[str]()
    # Stable: of what is put in one place, what stands there already comes first.
    for change in sorted([*mine, *theirs], key=lambda change: (change.begin, change.end)):
        if change.begin < end:
            return None
        merged += [*before[end : change.begin], *change.lines]
        end = change.end
    text = "\n".join([*merged, *before[end:]])
    return text + "\n" if now.endswith("\n") else text


@dataclass(frozen=True, slots=True)
class _LineChange:
    begin: int
    end: int
    """Of the lines before that it takes the place of; none where it only adds some."""
    lines: tuple[str, ...]

    def stands_in(self, other: _LineChange) -> bool:
        """True if the other one does this, too."""
        adds = self.begin == self.end == other.begin == other.end
        return self == other or (adds and {*filter(str.strip, self.lines)} <= {*other.lines})


def _line_changes(before: Sequence[str], after: Sequence[str]) -> list[_LineChange]:
    changes = list[_LineChange]()
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    for tag, begin, end, first, last in matcher.get_opcodes():
        if tag == "replace" and end - begin == last - first:
            changes += [
                _LineChange(begin + n, begin + n + 1, (line,)) for n, line in enumerate(after[first:last])
            ]
        elif tag != "equal":
            changes.append(_LineChange(begin, end, tuple(after[first:last])))
    return changes


def _merged(now: str, old: str, new: str, *, union: bool) -> str | None:
    """Both changes of a text together, as git merges them; None where they are of the same lines."""
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
