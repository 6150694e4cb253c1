"""Files and folders that appear whole or not at all: written beside their place, and moved there once on disk.

In the same folder, because a move is atomic within one file system alone; and on disk before the move, because a file
system may keep the new name and lose the bytes in a power failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The path of a file to write in the block, which replaces what stands at `path` when the block ends well."""
    partial = _beside(path)
    try:
        yield partial
        _sync(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file, part by part."""
    with whole_file(path) as partial, open(partial, "wb") as file:
        file.writelines(parts)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """The path of a folder to fill in the block, which stands at `folder` when the block ends well.

    Raises:
        InputError: the folder holds something already.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; what lies there stays, and this gets a folder of its own")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(folder)
    partial.mkdir()
    try:
        yield partial
        for file in partial.iterdir():
            _sync(file)
        # A move replaces a folder only if that is empty, which was looked at above.
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _beside(path: Path) -> Path:
    # With a name of its own: two processes may write the same file at once.
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}")


def _sync(file: Path) -> None:
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
