"""The words of one program: which are paths, URLs and text, and whether its options are known to be harmless."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .paths import HARMLESS, Access, PathUse, path_use
from .programs import GIT_LINKS, PROGRAMS, KnownProgram
from .shell import NotUnderstood
from .urls import is_url

MOST_MATCHES = 1_000
"""Files that a pattern may stand for, and folders that are looked through for links."""
_SPLIT = re.compile(r"[=:,@]")


@dataclass(frozen=True, slots=True)
class CallPart:
    """One thing that a call does: a program that it runs, or the call itself where it runs none."""

    words: tuple[str, ...] | None = None
    """A program and its words; None where it is none."""
    paths: tuple[PathUse, ...] = ()
    urls: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    """Kinds of SQL statements."""
    actions: frozenset[str] = frozenset()
    problem: str = ""
    """The reason that it is not understood, "" if it is."""


@dataclass(slots=True)
class ShellState:
    """The state of a shell as its commands are read in order."""

    root: str
    folders: tuple[str, ...]
    variables: Sequence[str]
    depth: int = 0
    left: tuple[str, ...] = ()
    """Folders that it is in if a `cd` failed."""
    links: bool = False
    """A command before may have made a link, or moved one: places are not what they are now."""
    wrote: bool = False
    """A command before may have made files: patterns stand for other ones than now."""
    parts: list[CallPart] = field(default_factory=list)


def use_of(text: str, access: Access, shell: ShellState, *, recursive: bool = False) -> PathUse:
    return path_use(text, access, folders=shell.folders, recursive=recursive, decoded=False)


def part_of(
    words: Sequence[str],
    uses: Sequence[PathUse],
    shell: ShellState,
    *,
    urls: Sequence[str] = (),
    known: bool = True,
    problem: str = "",
) -> CallPart:
    paths = tuple(use for use in uses if use.places and not set(use.places) <= HARMLESS)
    actions: set[str] = {use.access for use in paths}
    actions |= {"fetch"} if urls else set()
    actions |= set() if known else {"run"}
    return CallPart(tuple(words), paths, tuple(urls), (), frozenset(actions or {"read"}), problem)


def known_program(
    program: KnownProgram, name: str, words: Sequence[str], shell: ShellState, uses: Sequence[PathUse]
) -> CallPart:
    operands, files, scripts, letters = _options(program, name, words[1:])
    leading = 0 if scripts else program.leading
    scripts += operands[:leading]
    if program.script is not None:
        for script in scripts:
            if not program.script.fullmatch(script):
                raise NotUnderstood(f"{name} {script!r:.60} may run or write something")
    operands = operands[leading:]
    recursive = program.recursive == "*" or bool(set(program.recursive) & letters)
    paths = [*uses, *(use_of(word, program.last or "read", shell) for word in files)]
    if not program.text:
        if not operands and (program.here or (recursive and program.access == "read")):
            operands = ["."]
        for number, word in enumerate(operands):
            last = program.last is not None and name != "sort" and number == len(operands) - 1 and number > 0
            access = program.last if last and program.last else program.access
            paths.append(use_of(word, access, shell, recursive=recursive))
        everywhere = [os.path.join(folder, word) for word in operands for folder in shell.folders]
        if name == "diff" and not all(map(os.path.isfile, everywhere)):
            raise NotUnderstood("diff may compare folders, and follow the links in them")
        if name == "cp" and recursive and any(map(holds_links, everywhere[-len(shell.folders) :])):
            raise NotUnderstood("cp may write through the links in the folder that it copies into")
        if name == "ln":
            paths += _targets(operands, shell)
        if name in ("mv", "cp", "ln") and len(operands) > 1:
            # In a folder the new name is that of the source.
            paths += [
                use_of(os.path.join(operands[-1], os.path.basename(word.rstrip("/")) or "."), "write", shell)
                for word in operands[:-1]
            ]
    return part_of(words, paths, shell)


def archiver(words: Sequence[str], shell: ShellState, uses: Sequence[PathUse]) -> CallPart:
    """tar, with the letters that do not run anything, follow links or leave the folder."""
    if (
        len(words) < 2
        or not re.fullmatch(r"-?[cxtvzjJkf]+", words[1])
        or any(w.startswith("-") for w in words[2:])
    ):
        raise NotUnderstood("tar with further options is not known to be harmless")
    extracts = "x" in words[1]
    if extracts and any(map(holds_links, shell.folders)):
        raise NotUnderstood("tar may write through the links in the folder that it extracts into")
    access: Access = "read" if "t" in words[1] else "write"
    paths = [use_of(word, access, shell, recursive=True) for word in words[2:] if word != "-"]
    paths += [use_of(".", "write", shell)] if extracts else []
    return part_of(words, [*uses, *paths], shell)


def _targets(operands: Sequence[str], shell: ShellState) -> Iterator[PathUse]:
    """What new links point to, seen from where they lie."""
    target = operands[-1] if len(operands) > 1 else "."
    for target in operands[:-1] or operands:
        for folder in (os.path.dirname(target) or ".", target):
            yield use_of(os.path.join(folder, target), "write", shell)


def _options(
    program: KnownProgram, name: str, words: Sequence[str]
) -> tuple[list[str], list[str], list[str], set[str]]:
    """Operands, paths among the values, scripts, and the letters of the flags.

    Raises:
        NotUnderstood: an option that is not known to be harmless.
    """
    operands: list[str] = []
    files: list[str] = []
    scripts: list[str] = []
    letters: set[str] = set()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--" and program.flags != "*":
            operands += rest
            break
        if program.flags == "*" or (program.text and not re.fullmatch(r"-[A-Za-z]+|--.*", word)):
            operands.append(word)
        elif word.startswith("--"):
            if word.partition("=")[0] not in program.long:
                raise NotUnderstood(f"{name} with {word!r:.60} is not known to be harmless")
            letters |= {"r"} if word == "--recursive" else {"a"} if word == "--archive" else set()
        elif not word.startswith("-") or word == "-":
            if word != "-":
                operands.append(word)
        elif re.fullmatch(r"-\d+", word) and name in ("head", "tail", "nice", "grep", "diff"):
            continue
        else:
            letters |= _letters(program, name, word, rest, files, scripts)
    return operands, files, scripts, letters


def _letters(
    program: KnownProgram, name: str, word: str, rest: list[str], files: list[str], scripts: list[str]
) -> set[str]:
    letters: set[str] = set()
    for index, letter in enumerate(word[1:], start=1):
        if letter in program.flags:
            letters.add(letter)
            continue
        if letter not in program.valued + program.files:
            raise NotUnderstood(f"{name} with {word!r:.60} is not known to be harmless")
        value = word[index + 1 :]
        if not value:
            if not rest:
                raise NotUnderstood(f"{name} {word} has no value")
            value = rest.pop(0)
        if letter in program.files:
            files.append(value)
        elif letter == "e":
            scripts.append(value)
        break
    return letters


def unknown_program(words: Sequence[str], shell: ShellState, uses: Sequence[PathUse]) -> CallPart:
    """A program of which nothing is known: every word may be a path or a URL."""
    paths, urls = list(uses), []
    for word in words[1:]:
        if is_url(word) or "://" in word:
            urls.append(word if is_url(word) else word[_url_start(word) :])
            continue
        for piece in _path_pieces(word, shell.folders):
            folder = any(os.path.isdir(os.path.join(folder, piece)) for folder in shell.folders)
            paths.append(use_of(piece, "write", shell, recursive=folder))
    return part_of(words, paths, shell, urls=urls, known=False)


def _url_start(word: str) -> int:
    match = re.search(r"[A-Za-z][A-Za-z0-9+.-]*://", word)
    return match.start() if match else 0


def _path_pieces(word: str, folders: Sequence[str]) -> list[str]:
    """The pieces of a word that may be paths: all of it, what follows `=`, `:`, `,` or `@`, an option's value."""
    pieces = [] if word.startswith("-") else [word]
    pieces += _SPLIT.split(word)[1:]
    if word.startswith("-"):
        # `-ofile`: a value where there is such a file, or where it leads somewhere.
        glued = (word[at:] for at in range(2, min(len(word), 200)))
        pieces += [
            rest
            for rest in glued
            if _leads(rest) or any(os.path.lexists(os.path.join(folder, rest)) for folder in folders)
        ]
    plain = dict.fromkeys(piece for piece in pieces if piece.strip())
    return [os.path.expanduser(piece) if piece.startswith("~") else piece for piece in plain]


def _leads(piece: str) -> bool:
    return piece.startswith(("/", "~")) or ".." in piece.split("/")


def downloader(name: str, words: list[str], shell: ShellState, uses: Sequence[PathUse]) -> CallPart:
    """curl and wget, without what follows redirects or reads further files."""
    flags, valued, long_flags, long_valued = _DOWNLOADS[name]
    paths, urls, rest = list(uses), list[str](), words[1:]
    bounded = name == "curl"

    def value(option: str, text: str) -> None:
        if option in ("-o", "--output", "-O", "--output-document"):
            paths.append(use_of(text, "write", shell))
        elif text.startswith("@") or (option in ("-F", "--form") and re.search(r"=[@<]", text)):
            raise NotUnderstood(f"{name} {option} sends a file")

    while rest:
        word = rest.pop(0)
        option, _, glued = word.partition("=")
        if word == "--max-redirect=0":
            bounded = True
        elif word.startswith("--"):
            if option in long_valued:
                value(option, glued or (rest.pop(0) if rest else ""))
            elif word not in long_flags:
                raise NotUnderstood(f"{name} with {word!r:.40} is not known to be harmless")
        elif word.startswith("-") and len(word) > 1:
            for index, letter in enumerate(word[1:], start=1):
                if letter in valued:
                    value(f"-{letter}", word[index + 1 :] or (rest.pop(0) if rest else ""))
                    break
                if letter not in flags:
                    raise NotUnderstood(f"{name} with {word!r:.40} is not known to be harmless")
                if letter == "O" and name == "curl":
                    paths.append(use_of(".", "write", shell))
        else:
            urls.append(word if "://" in word else f"http://{word}")
    if not bounded:
        raise NotUnderstood(
            "wget follows redirects to hosts that are known only when it runs; give --max-redirect=0"
        )
    if name == "wget" and not any(use.access == "write" for use in paths):
        paths.append(use_of(".", "write", shell))
    return part_of(words, paths, shell, urls=urls)


_DOWNLOADS = {
    "curl": (
        "sSfgikIvNO",
        "XHdomA",
        (
            "--fail",
            "--silent",
            "--show-error",
            "--head",
            "--include",
            "--verbose",
            "--compressed",
            "--globoff",
        ),
        (
            "--request",
            "--header",
            "--data",
            "--output",
            "--max-time",
            "--user-agent",
            "--connect-timeout",
            "--retry",
        ),
    ),
    "wget": (
        "qnvc",
        "OTtU",
        ("--quiet", "--no-verbose", "--continue"),
        ("--output-document", "--timeout", "--tries"),
    ),
}


def makes_links(part: CallPart, shell: ShellState) -> bool:
    """True if a part may make or move a link, so that a place behind it is not what it is now."""
    if not part.words:
        return False
    name = os.path.basename(part.words[0])
    if name in ("tar", "unzip", "bsdtar", "7z", "patch", "install"):
        return True
    if name == "git":
        return any(word in GIT_LINKS for word in part.words[1:])
    program = PROGRAMS.get(name)
    if program is None or not program.links:
        return False
    if name == "ln":
        return True
    if program.links != "*" and not any(
        word.startswith("-") and set(word) & set(program.links) for word in part.words[1:]
    ):
        return False
    operands = [word for word in part.words[1:] if not word.startswith("-")]
    sources = [os.path.join(folder, word) for word in operands[:-1] for folder in shell.folders]
    return any(os.path.islink(source) or holds_links(source) for source in sources)


def holds_links(folder: str) -> bool:
    if not os.path.isdir(folder):
        return False
    for number, (parent, folders, files) in enumerate(os.walk(folder)):
        if number > MOST_MATCHES or any(
            os.path.islink(os.path.join(parent, name)) for name in (*folders, *files)
        ):
            return True
    return False
