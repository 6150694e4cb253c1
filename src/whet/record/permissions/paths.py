"""The places on disk that a path may mean, and patterns of places.

One text may be read in several ways: percent signs and backslashes by one program and not by another, unicode forms,
links, a tilde.  All readings count: an allow rule must cover every one, a deny rule needs one.  It looks at the links
on the disk as they are now; whoever can change them between the check and the call can still win that race.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias
from urllib.parse import unquote

from .shell import NotUnderstood, refuse_hidden

Access: TypeAlias = Literal["read", "write", "delete"]
WALKED = 20_000
"""Entries of a folder that are looked at where a call may reach all of it."""
HARMLESS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_LINKS = 40
"""Links that one path may lead through."""
_VARIABLE = re.compile(r"\$[A-Za-z_{(]|%[A-Za-z_]+%")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class PathUse:
    """A path that a call uses, and all places that it may mean."""

    given: str
    access: Access
    places: tuple[str, ...]
    """Absolute, links resolved."""
    names: tuple[str, ...] = ()
    """Absolute, as written."""
    recursive: bool = False
    """All that lies below is used, too."""


def path_use(
    text: str, access: Access, *, folders: Sequence[str], recursive: bool = False, decoded: bool = True
) -> PathUse:
    """A path as it may be meant from each of some folders.

    Args:
        folders: absolute; what a relative path may be relative to.
        decoded: percent signs and backslashes may be read by whoever opens it; a shell's word is taken as it is.

    Raises:
        NotUnderstood: it cannot be told what it means.
    """
    places: dict[str, None] = {}
    names: dict[str, None] = {}
    for reading in _readings(text, decoded):
        for folder in folders:
            name = _absolute(reading, folder)
            names[os.path.normpath(name)] = None
            places[resolved(name)] = None
    if access != "read" and any(_shared(location) for location in places):
        raise NotUnderstood(f"{text!r:.80} is a hard link: it may be a file that lies elsewhere too")
    return PathUse(text, access, tuple(places), tuple(names), recursive)


def _readings(text: str, decoded: bool) -> Iterator[str]:
    if "\0" in text:
        raise NotUnderstood("a path has a NUL in it")
    refuse_hidden(text)
    if "\n" in text or "\t" in text:
        raise NotUnderstood("a path has a line end or a tab in it")
    readings = {text: None}
    if decoded:
        if _VARIABLE.search(text):
            raise NotUnderstood(f"{text!r:.80} has a variable in it")
        if ".." in unquote(unquote(text)) and re.search(r"[*?\[{]", text):
            raise NotUnderstood(f"{text!r:.80} is a pattern that leads upwards")
        readings[text.strip()] = None
        for _ in range(4):
            for reading in list(readings):
                for further in (
                    unquote(reading),
                    unicodedata.normalize("NFKC", reading),
                    reading.replace("\\", "/"),
                ):
                    readings[further] = None
        if len(readings) > 12:
            raise NotUnderstood(f"{text!r:.80} can be read in too many ways")
        for reading in readings:
            if "\0" in reading or "\ufffd" in reading:
                raise NotUnderstood(f"{text!r:.80} has an encoded character that no path has")
            refuse_hidden(reading)
    else:
        readings[unicodedata.normalize("NFC", text)] = None
    yield from readings


def _absolute(text: str, folder: str) -> str:
    if text[:7].casefold() == "file://":
        text = "/" + text[7:].partition("/")[2]
    if _DRIVE.match(text) or text.startswith("\\\\"):
        raise NotUnderstood(f"{text!r:.80} names a drive or a machine")
    if text.startswith("~"):
        expanded = os.path.expanduser(text)
        if expanded == text:
            raise NotUnderstood(f"{text!r:.80} names the home of somebody unknown")
        text = expanded
    # Two slashes in front survive `normpath`.
    return re.sub(r"/{2,}", "/", os.path.join(folder, text))


def resolved(name: str) -> str:
    """An absolute path with its links resolved, as they are now.

    Not `os.path.realpath`: what lies in `/proc` means something else for the process that asks.

    Raises:
        NotUnderstood: it leads through a process's own links, or through too many.
    """
    rest = [piece for piece in reversed(name.split("/")) if piece]
    location, links = "/", 0
    while rest:
        piece = rest.pop()
        if piece == ".":
            continue
        if piece == "..":
            location = os.path.dirname(location)
            continue
        location = os.path.join(location, piece)
        if location == "/proc":
            if len(rest) != 1 or os.path.islink(f"/proc/{rest[0]}") or rest[0].isdigit():
                raise NotUnderstood(f"{name!r:.80} leads through /proc")
            continue
        try:
            target = os.readlink(location)
        except (OSError, ValueError):
            continue
        links += 1
        if links > _LINKS:
            raise NotUnderstood(f"{name!r:.80} leads through too many links")
        # A harmless name stays what it is: /dev/stdout is a link into /proc.
        if location in HARMLESS and not rest:
            return location
        rest += [piece for piece in reversed(target.split("/")) if piece]
        location = "/" if target.startswith("/") else os.path.dirname(location)
    return location


def _shared(location: str) -> bool:
    try:
        status = os.lstat(location)
    except (OSError, ValueError):
        return False
    return status.st_nlink > 1 and os.path.isfile(location)


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern of places: `./src/**`, `~/.ssh/**`, `/tmp/*.txt`, `**/.env`.

    `*` and `?` stay within one name, `**` does not; `folder/**` is the folder too.
    """

    text: str
    expressions: tuple[re.Pattern[str], ...]
    loose: tuple[re.Pattern[str], ...]
    """The same whatever the case of letters."""

    def covers(self, use: PathUse) -> bool:
        """True if every place that the path may mean matches: what an allow rule needs."""
        return bool(use.places) and all(
            any(expression.fullmatch(location) for expression in self.expressions) for location in use.places
        )

    def touches(self, use: PathUse) -> bool:
        """True if any place that the path may mean matches, or what lies below it: what a deny rule needs."""
        reached = dict.fromkeys((*use.places, *use.names))
        if any(expression.fullmatch(location) for location in reached for expression in self.loose):
            return True
        if not use.recursive:
            return False
        return any(self._below(location) for location in use.places)

    def _below(self, location: str) -> bool:
        number = 0
        for folder, folders, files in os.walk(location):
            for name in (*folders, *files):
                number += 1
                path = os.path.join(folder, name)
                if number > WALKED or any(expression.fullmatch(path) for expression in self.loose):
                    return True
        return False


@lru_cache(maxsize=1_000)
def path_pattern(text: str, root: str) -> PathPattern:
    """A pattern, relative ones from `root` on."""
    absolute = os.path.expanduser(text)
    if not absolute.startswith(("/", "**")):
        absolute = os.path.join(root, absolute)
    fixed, rest = absolute, ""
    match = re.search(r"[*?\[]", absolute)
    if match is not None:
        cut = absolute.rfind("/", 0, match.start()) + 1
        fixed, rest = absolute[:cut], absolute[cut:]
    starts = {os.path.normpath(fixed), resolved(fixed)} if fixed else {""}
    expressions = []
    for start in sorted(starts):
        joined = f"{start.rstrip('/')}/{rest}" if fixed and rest else start or rest
        expressions.append(_expression(joined))
    return PathPattern(
        text,
        tuple(re.compile(expression, re.DOTALL) for expression in expressions),
        tuple(re.compile(expression, re.DOTALL | re.IGNORECASE) for expression in expressions),
    )


def _expression(glob: str) -> str:
    pieces: list[str] = []
    at = 0
    if glob.startswith("**/"):
        pieces.append("(?:.*/)?")
        at = 3
    while at < len(glob):
        if glob.startswith("/**/", at):
            pieces.append("/(?:.*/)?")
            at += 4
        elif glob[at:] == "/**":
            pieces.append("(?:/.*)?")
            break
        elif glob.startswith("**", at):
            pieces.append(".*")
            at += 2
        elif glob[at] == "*":
            pieces.append("[^/]*")
            at += 1
        elif glob[at] == "?":
            pieces.append("[^/]")
            at += 1
        else:
            pieces.append(re.escape(glob[at]))
            at += 1
    return "".join(pieces)
