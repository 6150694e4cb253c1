"""Output to a terminal, pipe or file that may be broken.

A closed pipe (`whet show ... | head -1`), a full disk, a locale that lacks a letter: none of these is a bug in whet,
and none ends in a traceback.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ..escapes import BOLD, OURS, neutral

NOBODY_READS = 128 + 13
"""Exit code of a program that SIGPIPE ended, as every other tool in a pipe has it."""

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
"""Errors that a user can fix: permissions, disk space, and names of files."""


def prepare() -> None:
    """Let standard output and error take any text: a letter that the locale lacks becomes \\uXXXX.

    JSON writes it the same way, so the output of `--json` is JSON in every locale.
    """
    codecs.register_error("whet.escape", _escaped)
    if sys.stdout is None:  # closed by the caller: `whet ... >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the whole process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="whet.escape")
            # Everything is printed here: recorded text must not move the cursor or turn letters round.
            if "write" not in vars(stream):
                stream.write = _neutral(stream)  # type: ignore[method-assign]
                stream.writelines = _one_by_one(stream)  # type: ignore[method-assign]


def _one_by_one(stream: io.TextIOWrapper) -> Callable[[Iterable[str]], None]:
    def written(lines: Iterable[str]) -> None:
        for line in lines:
            stream.write(line)

    return written


def _neutral(stream: io.TextIOWrapper) -> Callable[[str], int]:
    write = stream.write

    def written(text: str) -> int:
        # Rich alone moves the cursor and sets colours, of text that is made neutral before it gets it. What we print
        # ourselves may quote anything: there a bold heading is all that a terminal is told.
        try:
            by_rich = sys._getframe(1).f_globals.get("__name__", "").startswith("rich.")
        except (
            ValueError
        ):  # Python itself writes the traceback that ends the process, and nobody has called it
            by_rich = False
        own = OURS if by_rich and stream.isatty() else BOLD if stream.isatty() else None
        write(neutral(text, but=own))
        return len(text)

    return written


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[offset : offset + 2].hex() for offset in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


def undecoded(words: Iterable[str]) -> bool:
    """True if a word of the command line has bytes that are not text in the locale."""
    return any("\udc80" <= letter <= "\udcff" for word in words for letter in word)


def unread() -> bool:
    """True if the reader of standard output has gone: other pipes and sockets break, too."""
    watched = select.poll()
    # Asked for nothing, poll still reports an error or a hang-up, and those alone.
    watched.register(sys.stdout.fileno(), 0)
    return bool(watched.poll(0))


def leave_unread() -> None:
    """Drop unwritten output, so that the interpreter does not complain about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def bold(text: str) -> str:
    """The text as a terminal shows it in bold; plain where the output goes elsewhere."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def message(error: OSError) -> str:
    """A line on the error, with its file where there is one."""
    reason = error.strerror or str(error)
    if error.filename is None:
        return f"cannot write: {reason}"
    names = " and ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name)
    return f"{names}: {reason}"


Read = Callable[[], str]
"""The next key; "" at the end of the input."""


@contextmanager
def keys() -> Iterator[Read]:
    """Single keys of a terminal without Return; where the input is none, a line for each."""
    if not sys.stdin.isatty():
        yield _first_of_line
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield lambda: os.read(number, 1).decode("utf-8", "replace")
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _first_of_line() -> str:
    while line := sys.stdin.readline():
        if line.strip():
            return line.strip()[0]
    return ""


@contextmanager
def whole_lines() -> Iterator[None]:
    """Lines with echo, as a terminal gives them by itself; restores what was."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    plain = termios.tcgetattr(number)
    plain[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(number, termios.TCSADRAIN, plain)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
