"""The files of somebody's repository: without environments, build outputs, and outputs of whet itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePath

SKIPPED = frozenset(
    ("__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env", "whet_output")
)
"""Names of folders that hold no source of the repository's own; hidden ones are skipped as well."""
STAGED = ".staged-by-whet"
"""A file that marks a folder of copies."""


def files(root: Path) -> Iterator[Path]:
    """Every file that may be the repository's own, those of a folder before those of its subfolders.

    A link to a folder is not followed, and a link to a file outside of the repository is left out.
    """
    inside = root.resolve()
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not _skipped(parent, name))
        for name in sorted(names):
            path = Path(parent, name)
            # git refuses a patch of a linked file, and a link out of the repository shows files that are not its own.
            if not path.is_symlink() or (path.resolve().is_relative_to(inside) and path.is_file()):
                yield path


def _skipped(parent: str, name: str) -> bool:
    folder = os.path.join(parent, name)
    return (
        name in SKIPPED
        or name.startswith(".")
        or os.path.exists(os.path.join(folder, "pyvenv.cfg"))
        or os.path.exists(os.path.join(folder, STAGED))
    )


def is_test(path: PurePath) -> bool:
    """Tests call the agent as its users do, and are neither its entry points nor its programs."""
    folders = path.parts[:-1]
    return (
        "tests" in folders or "test" in folders or path.name.startswith("test_") or path.name == "conftest.py"
    )
