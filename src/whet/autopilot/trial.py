"""A trial on real traffic: several repairs together, each judged by the people of its own part of the traffic.

Repairs whose parts of the traffic are apart do not disturb each other, so one canary tries them all, as a merge queue
does: their patches are applied one after the other to a copy of the agent, and one that does not apply waits for the
next trial.  People who are drawn into the canary are served the copy; whose thumbs count for a repair are those who
asked a question of its part, on either side (`evidence.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..learn.evolution.marks import Mark
from ..learn.evolution.pieces import cut
from ..record.store import Store
from ..record.store.releases import PROGRAM
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
    """Those whose patch did not apply beside the others."""


def board(store: Store, root: Path, folder: Path, works: dict[str, dict[str, Any]]) -> Boarded:
    """Put the repairs of these issues together.

    Args:
        root: the agent's folder.
        folder: where the copy goes; what stands there is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        root, folder, ignore=shutil.ignore_patterns(".git", ".whet", "__pycache__", folder.name, "*.db*")
    )
    taken, left = list[str](), list[str]()
    pieces, parents = dict[str, tuple[str, str]](), dict[str, str | None]()
    for issue, work in works.items():
        if not applies(folder, work["patch"]):
            left.append(issue)
            continue
        taken.append(issue)
        pieces |= {resource: (path, qualname) for resource, path, qualname in work["pieces"]}
        parents |= {name: version.parent for name, version in bundle_of(store, work).items()}
    versions = []
    for resource, (path, qualname) in pieces.items():
        mark = Mark(resource, "", path, 1, qualname, how="comment" if qualname else "skill")
        text = cut(mark, (folder / path).read_text(encoding="utf-8")).text
        versions.append(Version(resource=resource, content=text, kind=PROGRAM, parent=parents[resource]))
    return Boarded(Bundle(versions), folder, taken, left)


def applies(folder: Path, patch: str) -> bool:
    """Apply a patch to a folder; False, and nothing is changed, where it does not fit.

    Raises:
        InputError: git is not installed.
    """
    try:
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", "-"],
            input=patch.encode(),
            cwd=folder,
            capture_output=True,
            # A repository around the folder is none of this copy's.
            env={"PATH": os.environ.get("PATH", ""), "GIT_CEILING_DIRECTORIES": str(folder.parent)},
            check=False,
        )
    except FileNotFoundError:
        raise InputError("a trial puts patches together with git, which is not installed") from None
    return done.returncode == 0
