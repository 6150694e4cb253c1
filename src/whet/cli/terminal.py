"""What becomes of a command's output when the other end is not what it should be.

A reader that has gone (`whet show ... | head -1`), a full disk, a locale that lacks a letter: none of them is
a bug of whet's, and none is answered with a traceback.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from collections.abc import Iterable

NOBODY_READS = 128 + 13
"""The exit code of a program that SIGPIPE ended, which is what every other tool in a pipe has."""

MENDABLE = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EFBIG,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
"""What a user can do something about: rights, room, and names of files."""


def prepare() -> None:
    """Let standard output and error take any text: a letter that the locale lacks becomes \\uXXXX.

    That is how JSON writes it too, so what `--json` prints stays JSON in every locale.
    """
    codecs.register_error("whet.escape", _escaped)
    if sys.stdout is None:  # closed by the caller: `whet ... >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the whole process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="whet.escape")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


def undecoded(words: Iterable[str]) -> bool:
    """Whether a word of the command line has bytes that the locale could make no letters of."""
    return any("\udc80" <= letter <= "\udcff" for word in words for letter in word)


def unread() -> bool:
    """Whether it is standard output whose reader has gone: other pipes and sockets break, too."""
    watched = select.poll()
    watched.register(sys.stdout.fileno(), 0)
    return bool(watched.poll(0))


def leave_unread() -> None:
    """Drop what is still to be written, so that the interpreter does not complain of it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def bold(text: str) -> str:
    """The text as a terminal shows it in bold; plain where the output goes elsewhere."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def said(error: OSError) -> str:
    """What failed, with the file where there is one."""
    what = error.strerror or str(error)
    if error.filename is None:
        return f"cannot write: {what}"
    names = " and ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name)
    return f"{names}: {what}"
