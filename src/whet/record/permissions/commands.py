"""The meaning of a shell command: the programs that it runs, with the files and the URLs that they use.

Wrappers (`env`, `timeout`, `sudo`, `sh -c`, `find -exec`) are followed to what they run.  A part of which not all is
known beforehand carries the reason, and nobody may allow it.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from .paths import HARMLESS, Access, PathUse, path_use
from .programs import (
    GIT_LINKS,
    GIT_RUNS,
    INLINE,
    OPAQUE,
    PROGRAMS,
    RAISING,
    SHELLS,
    WRAPPERS,
    Program,
)
from .shell import NotUnderstood, Redirection, ShellWord, SimpleCommand, read_shell
from .urls import is_url

MOST_MATCHES = 1_000
"""Files that a pattern may stand for."""
MOST_FOLDERS = 8
"""Folders that a command may run in, as far as the text tells."""
VARIABLES = (
    "LANG",
    "LC_*",
    "TZ",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "TERM",
    "CI",
    "DEBUG",
    "VERBOSE",
)
"""Variables that may be set for a program: what they do is known to be harmless."""
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
class _Shell:
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


def command_parts(
    text: str, *, root: str, folder: str, variables: Sequence[str] = VARIABLES
) -> list[CallPart]:
    """The parts of a shell command that runs in a folder."""
    shell = _Shell(root, (folder,), variables)
    _read(text, shell)
    return shell.parts


def argument_parts(
    words: Sequence[str], *, root: str, folder: str, variables: Sequence[str] = VARIABLES
) -> list[CallPart]:
    """The parts of a command that is given as its words, which no shell reads."""
    shell = _Shell(root, (folder,), variables)
    _run([ShellWord(word) for word in words], shell, (), [])
    return shell.parts


def _read(text: str, shell: _Shell) -> None:
    if shell.depth > 5:
        raise NotUnderstood("shells are started inside each other too deeply")
    commands, problem = read_shell(text)
    for command in commands:
        _command(command, shell)
    if problem:
        shell.parts.append(CallPart(words=(), problem=problem))


def _command(command: SimpleCommand, shell: _Shell) -> None:
    uses: list[PathUse] = []
    problem = ""
    try:
        for redirection in command.redirections:
            uses += _redirected(redirection, shell)
    except NotUnderstood as unclear:
        problem = str(unclear)
    for assignment in command.assignments:
        name = re.split(r"\+?=", assignment.text, maxsplit=1)[0]
        if assignment.expands or not _matches(name, shell.variables):
            problem = problem or f"it sets the variable {name}"
    before = len(shell.parts)
    changes = command.words and not command.words[0].expands and command.words[0].text == "cd"
    if command.words:
        _run(command.words, shell, tuple(uses), [problem] if problem else [])
    else:
        shell.parts.append(_part((), uses, shell, problem=problem))
    if shell.links and any(part.paths for part in shell.parts[before:]):
        shell.parts[before:] = [
            replace(
                part, problem=part.problem or "a command before it may have made a link that leads elsewhere"
            )
            if part.paths
            else part
            for part in shell.parts[before:]
        ]
    if changes:
        _changed(command, shell)
    elif command.after != "&&":
        shell.folders, shell.left = tuple(dict.fromkeys((*shell.folders, *shell.left))), ()
    shell.links = shell.links or any(_makes_links(part, shell) for part in shell.parts[before:])
    shell.wrote = shell.wrote or any(part.actions - {"read"} for part in shell.parts[before:])


def _changed(command: SimpleCommand, shell: _Shell) -> None:
    """Note the folder that a `cd` leads to; where it may not have run or failed, both are possible."""
    folders = shell.parts[-1].paths[0].places if shell.parts[-1].paths else shell.folders
    everywhere = tuple(dict.fromkeys((*shell.folders, *folders, *shell.left)))
    if len(everywhere) > MOST_FOLDERS:
        shell.parts.append(CallPart(words=("cd",), problem="it may run in too many folders"))
        everywhere = everywhere[:MOST_FOLDERS]
    if command.after == "&&" and command.before != "||" and not command.negated:
        shell.folders, shell.left = folders, everywhere
    else:
        shell.folders, shell.left = everywhere, ()


def _redirected(redirection: Redirection, shell: _Shell) -> list[PathUse]:
    target = redirection.target
    if target.expands or target.pattern:
        raise NotUnderstood(f"the file behind {redirection.operator} is known only when it runs")
    access: Access = "read" if redirection.operator == "<" else "write"
    return [_use(target.text, access, shell)]


def _use(text: str, access: Access, shell: _Shell, *, recursive: bool = False) -> PathUse:
    return path_use(text, access, folders=shell.folders, recursive=recursive, decoded=False)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in patterns
    )


def _part(
    words: Sequence[str],
    uses: Sequence[PathUse],
    shell: _Shell,
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


# -- a program -------------------------------------------------------------------------------------


def _run(words: Sequence[ShellWord], shell: _Shell, uses: tuple[PathUse, ...], problems: list[str]) -> None:
    """Add the parts of one program and its words."""
    texts = [word.text for word in words]
    try:
        texts = _expanded(words, shell)
        if problems:
            raise NotUnderstood(problems[0])
        _program(texts, shell, uses)
    except NotUnderstood as problem:
        # With its words all the same: a deny rule must see what it would run.
        shell.parts.append(_part(texts, uses, shell, known=False, problem=str(problem)))


def _expanded(words: Sequence[ShellWord], shell: _Shell) -> list[str]:
    """The words as they are when it runs.

    Raises:
        NotUnderstood: one is known only then.
    """
    texts: list[str] = []
    for word in words:
        if word.expands:
            raise NotUnderstood(f"{word.text or 'a word'!r:.80} is known only when it runs: {word.expands}")
        if word.pattern is not None:
            texts += _matching(word, shell)
        elif word.tilde:
            texts.append(_home(word.text))
        else:
            texts.append(word.text)
    return texts


def _home(text: str) -> str:
    expanded = os.path.expanduser(text)
    if expanded == text or text.startswith(("~+", "~-")):
        raise NotUnderstood(f"{text!r:.80} stands for a folder that is not known")
    return expanded


def _matching(word: ShellWord, shell: _Shell) -> list[str]:
    """The files that a pattern stands for now."""
    pattern = word.pattern or ""
    if word.tilde or any(piece.startswith(".") and re.search(r"[*?]", piece) for piece in pattern.split("/")):
        raise NotUnderstood(f"the pattern {word.text!r:.80} may stand for the folder above")
    if "**" in pattern or len(shell.folders) > 1 or shell.wrote:
        raise NotUnderstood(
            f"the pattern {word.text!r:.80} stands for files that are known only when it runs"
        )
    matches = sorted(glob.glob(pattern, root_dir=shell.folders[0]))[: MOST_MATCHES + 1]
    if len(matches) > MOST_MATCHES:
        raise NotUnderstood(f"the pattern {word.text!r:.80} stands for more than {MOST_MATCHES:,} files")
    if any(match.startswith("-") for match in matches):
        raise NotUnderstood(f"the pattern {word.text!r:.80} stands for a file that looks like an option")
    # A shell leaves a pattern that matches nothing as it is.
    return matches or [word.text]


def _program(words: list[str], shell: _Shell, uses: tuple[PathUse, ...]) -> None:
    name = os.path.basename(words[0])
    if not words[0] or name.endswith(".."):
        raise NotUnderstood("the name of the program is empty")
    plain = re.sub(r"[0-9.]+$", "", name)
    if name in WRAPPERS and words[1:2] not in (["-v"], ["-V"]):
        _wrapped(name, words, shell, uses)
    elif name in SHELLS:
        _shell(words, shell, uses)
    elif name in OPAQUE:
        raise NotUnderstood(f"{name} may do more than its words say")
    elif plain in INLINE:
        shell.parts.append(_interpreter(INLINE[plain], words, shell, uses))
    elif name == "find":
        _find(words, shell, uses)
    elif name in ("curl", "wget"):
        shell.parts.append(_download(name, words, shell, uses))
    elif name == "cd":
        shell.parts.append(_cd(words, shell, uses))
    elif name == "set":
        options = [re.fullmatch(r"[-+][eux]*o?|pipefail|errexit|nounset", word) for word in words[1:]]
        if not options or not all(options):
            raise NotUnderstood("set changes more than how the shell fails")
        shell.parts.append(_part(words, uses, shell))
    elif name in ("export", "unset"):
        for word in words[1:] or [""]:
            if not _matches(word.partition("=")[0], shell.variables):
                raise NotUnderstood(f"it sets or shows the variable {word.partition('=')[0]!r:.40}")
        shell.parts.append(_part(words, uses, shell))
    elif name == "git":
        for word in words[1:]:
            if GIT_RUNS.fullmatch(word):
                raise NotUnderstood(f"git runs other programs, or another configuration, with {word!r:.40}")
        shell.parts.append(_unknown(words, shell, uses))
    elif name == "tar":
        shell.parts.append(_archive(words, shell, uses))
    elif name == "command" and words[1:2] in (["-v"], ["-V"]):
        shell.parts.append(_part(words, uses, shell))
    elif name in ("test", "["):
        operands = [word for word in words[1:] if not re.fullmatch(r"-[a-zA-Z]{1,2}|]|!|=|==|!=|[()]", word)]
        shell.parts.append(_part(words, [*uses, *(_use(word, "read", shell) for word in operands)], shell))
    elif name in PROGRAMS:
        shell.parts.append(_known(PROGRAMS[name], name, words, shell, uses))
    else:
        shell.parts.append(_unknown(words, shell, uses))


def _cd(words: Sequence[str], shell: _Shell, uses: Sequence[PathUse]) -> CallPart:
    operands = [word for word in words[1:] if word != "--"]
    if len(operands) > 1 or any(word.startswith("-") for word in operands):
        raise NotUnderstood("cd leads to a folder that is known only when it runs")
    target = _use(operands[0] if operands else os.path.expanduser("~"), "read", shell)
    if set(target.names) != set(target.places):
        # A shell's own `..` goes back the way it came, a program's goes up from where the link led.
        raise NotUnderstood(f"cd {target.given!r:.60} goes through a link")
    return _part(words, [target, *uses], shell)


def _known(
    program: Program, name: str, words: Sequence[str], shell: _Shell, uses: Sequence[PathUse]
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
    paths = [*uses, *(_use(word, program.last or "read", shell) for word in files)]
    if not program.text:
        if not operands and (program.here or (recursive and program.access == "read")):
            operands = ["."]
        for number, word in enumerate(operands):
            last = program.last is not None and name != "sort" and number == len(operands) - 1 and number > 0
            access = program.last if last and program.last else program.access
            paths.append(_use(word, access, shell, recursive=recursive))
        everywhere = [os.path.join(folder, word) for word in operands for folder in shell.folders]
        if name == "diff" and not all(map(os.path.isfile, everywhere)):
            raise NotUnderstood("diff may compare folders, and follow the links in them")
        if name == "cp" and recursive and any(map(_holds_links, everywhere[-len(shell.folders) :])):
            raise NotUnderstood("cp may write through the links in the folder that it copies into")
        if name == "ln":
            paths += _targets(operands, shell)
        if name in ("mv", "cp", "ln") and len(operands) > 1:
            # In a folder the new name is that of the source.
            paths += [
                _use(os.path.join(operands[-1], os.path.basename(word.rstrip("/")) or "."), "write", shell)
                for word in operands[:-1]
            ]
    return _part(words, paths, shell)


def _archive(words: Sequence[str], shell: _Shell, uses: Sequence[PathUse]) -> CallPart:
    """tar, with the letters that do not run anything, follow links or leave the folder."""
    if (
        len(words) < 2
        or not re.fullmatch(r"-?[cxtvzjJkf]+", words[1])
        or any(w.startswith("-") for w in words[2:])
    ):
        raise NotUnderstood("tar with further options is not known to be harmless")
    extracts = "x" in words[1]
    if extracts and any(map(_holds_links, shell.folders)):
        raise NotUnderstood("tar may write through the links in the folder that it extracts into")
    access: Access = "read" if "t" in words[1] else "write"
    paths = [_use(word, access, shell, recursive=True) for word in words[2:] if word != "-"]
    paths += [_use(".", "write", shell)] if extracts else []
    return _part(words, [*uses, *paths], shell)


def _targets(operands: Sequence[str], shell: _Shell) -> Iterator[PathUse]:
    """What new links point to, seen from where they lie."""
    place = operands[-1] if len(operands) > 1 else "."
    for target in operands[:-1] or operands:
        for folder in (os.path.dirname(place) or ".", place):
            yield _use(os.path.join(folder, target), "write", shell)


def _options(
    program: Program, name: str, words: Sequence[str]
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
    program: Program, name: str, word: str, rest: list[str], files: list[str], scripts: list[str]
) -> set[str]:
    letters: set[str] = set()
    for place, letter in enumerate(word[1:], start=1):
        if letter in program.flags:
            letters.add(letter)
            continue
        if letter not in program.valued + program.files:
            raise NotUnderstood(f"{name} with {word!r:.60} is not known to be harmless")
        value = word[place + 1 :]
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


def _unknown(words: Sequence[str], shell: _Shell, uses: Sequence[PathUse]) -> CallPart:
    """A program of which nothing is known: every word may be a path or a URL."""
    paths, urls = list(uses), []
    for word in words[1:]:
        if is_url(word) or "://" in word:
            urls.append(word if is_url(word) else word[_url_start(word) :])
            continue
        for piece in _path_pieces(word, shell.folders):
            folder = any(os.path.isdir(os.path.join(folder, piece)) for folder in shell.folders)
            paths.append(_use(piece, "write", shell, recursive=folder))
    return _part(words, paths, shell, urls=urls, known=False)


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


# -- programs that run others ----------------------------------------------------------------------


def _wrapped(name: str, words: list[str], shell: _Shell, uses: tuple[PathUse, ...]) -> None:
    flags, valued, skipped = WRAPPERS[name]
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if name == "nice" and re.fullmatch(r"-\d+", option):
            continue
        if len(option) > 1 and option[1] in valued and not option.startswith("--"):
            if len(option) == 2 and rest:
                rest.pop(0)
        elif option.startswith("--") or not set(option[1:]) <= set(flags) or option == "-":
            raise NotUnderstood(f"{name} with {option!r:.40} is not known to be harmless")
    if name in ("env", "sudo", "doas"):
        while rest and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", rest[0]):
            variable = rest.pop(0).partition("=")[0]
            if not _matches(variable, shell.variables):
                raise NotUnderstood(f"it sets the variable {variable}")
    rest = rest[skipped:]
    if name in RAISING:
        shell.parts.append(_part(words, uses, shell, known=False))
    if rest:
        _program(rest, shell, uses)
    elif name == "exec":
        shell.parts.append(_part(words, uses, shell))
    else:
        raise NotUnderstood(f"{name} does not say what it runs")


def _shell(words: list[str], shell: _Shell, uses: tuple[PathUse, ...]) -> None:
    rest = words[1:]
    while rest and re.fullmatch(r"-[eux]+", rest[0]):
        rest.pop(0)
    if rest and re.fullmatch(r"-[eux]*c", rest[0]):
        if len(rest) < 2:
            raise NotUnderstood(f"{words[0]} -c has no text")
        if uses:
            shell.parts.append(_part(words[:1], uses, shell, known=False))
        inner = replace(shell, depth=shell.depth + 1, left=())
        _read(rest[1], inner)
        shell.links, shell.wrote = inner.links, inner.wrote
    elif rest and not rest[0].startswith("-"):
        shell.parts.append(_unknown(words, shell, uses))
    else:
        raise NotUnderstood(f"{words[0]} runs what it is given when it runs")


def _interpreter(flags: str, words: list[str], shell: _Shell, uses: Sequence[PathUse]) -> CallPart:
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("--version", "-V"):
            return _part(words, uses, shell)
        if option == "-m" and flags and rest:
            return _unknown(words, shell, uses)
        if option == "-" or not set(option[1:]) <= set(flags) or option.startswith("--"):
            raise NotUnderstood(f"{words[0]} {option!r:.40} may run code that is not in a file")
    if not rest:
        raise NotUnderstood(f"{words[0]} runs what it is given when it runs")
    return _unknown(words, shell, uses)


def _find(words: list[str], shell: _Shell, uses: tuple[PathUse, ...]) -> None:
    starts: list[str] = []
    rest = words[1:]
    while rest and not rest[0].startswith(("-", "(", "!")):
        starts.append(rest.pop(0))
    starts = starts or ["."]
    deletes, runs = False, []
    while rest:
        word = rest.pop(0)
        if word in ("-exec", "-execdir"):
            end = next((number for number, inner in enumerate(rest) if inner in (";", "+")), None)
            if end is None or word == "-execdir":
                raise NotUnderstood(f"find {word} runs something that is not told")
            runs.append(rest[:end])
            rest = rest[end + 1 :]
        elif word == "-delete":
            deletes = True
        elif word in _FIND_VALUED:
            if rest:
                rest.pop(0)
        elif word not in _FIND_FLAGS:
            raise NotUnderstood(f"find with {word!r:.40} is not known to be harmless")
    access: Access = "delete" if deletes else "read"
    paths = [_use(start, access, shell, recursive=deletes) for start in starts]
    shell.parts.append(_part(words, [*paths, *uses], shell))
    for inner in runs:
        if any("{}" in text and text != "{}" for text in inner) or inner[:1] == ["{}"]:
            raise NotUnderstood("find runs something that is known only when it runs")
        for start in starts:
            if any(_holds_links(os.path.join(folder, start)) for folder in shell.folders):
                raise NotUnderstood(f"find {start!r:.60} comes upon links, which its program would follow")
            place = len(shell.parts)
            _program([start if text == "{}" else text for text in inner], shell, ())
            # What lies below, as far as it is there now.
            shell.parts[place:] = [
                replace(part, paths=tuple(replace(use, recursive=True) for use in part.paths))
                for part in shell.parts[place:]
            ]


_VALUED_TESTS = (
    "-name -iname -path -ipath -regex -iregex -type -maxdepth -mindepth -size -mtime -mmin -atime -amin -ctime -cmin "
    "-perm -user -group -wholename -printf -regextype"
)
_FIND_VALUED = frozenset(_VALUED_TESTS.split())
_TESTS = (
    "-print -print0 -ls -empty -prune -not -o -or -a -and ! ( ) -depth -mount -xdev -readable -writable -executable "
    "-true -false -quit -nouser -nogroup"
)
_FIND_FLAGS = frozenset(_TESTS.split())


def _download(name: str, words: list[str], shell: _Shell, uses: Sequence[PathUse]) -> CallPart:
    """curl and wget, without what follows redirects or reads further files."""
    flags, valued, long_flags, long_valued = _DOWNLOADS[name]
    paths, urls, rest = list(uses), list[str](), words[1:]
    bounded = name == "curl"

    def value(option: str, text: str) -> None:
        if option in ("-o", "--output", "-O", "--output-document"):
            paths.append(_use(text, "write", shell))
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
            for place, letter in enumerate(word[1:], start=1):
                if letter in valued:
                    value(f"-{letter}", word[place + 1 :] or (rest.pop(0) if rest else ""))
                    break
                if letter not in flags:
                    raise NotUnderstood(f"{name} with {word!r:.40} is not known to be harmless")
                if letter == "O" and name == "curl":
                    paths.append(_use(".", "write", shell))
        else:
            urls.append(word if "://" in word else f"http://{word}")
    if not bounded:
        raise NotUnderstood(
            "wget follows redirects to hosts that are known only when it runs; give --max-redirect=0"
        )
    if name == "wget" and not any(use.access == "write" for use in paths):
        paths.append(_use(".", "write", shell))
    return _part(words, paths, shell, urls=urls)


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


def _makes_links(part: CallPart, shell: _Shell) -> bool:
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
    return any(os.path.islink(source) or _holds_links(source) for source in sources)


def _holds_links(folder: str) -> bool:
    if not os.path.isdir(folder):
        return False
    for number, (place, folders, files) in enumerate(os.walk(folder)):
        if number > MOST_MATCHES or any(
            os.path.islink(os.path.join(place, name)) for name in (*folders, *files)
        ):
            return True
    return False
