"""The meaning of a shell command: the programs that it runs, with the files and the URLs that they use.

Wrappers (`env`, `timeout`, `sudo`, `sh -c`, `find -exec`) are followed to what they run.  A part of which not all is
known beforehand carries the reason, and nobody may allow it.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from .operands import (
    MOST_MATCHES,
    CallPart,
    ShellState,
    archiver,
    downloader,
    holds_links,
    known_program,
    makes_links,
    part_of,
    unknown_program,
    use_of,
)
from .paths import Access, PathUse
from .programs import (
    GIT_RUNS,
    INLINE,
    OPAQUE,
    PROGRAMS,
    RAISING,
    SHELLS,
    WRAPPERS,
)
from .shell import NotUnderstood, Redirection, ShellWord, SimpleCommand, read_shell

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


def command_parts(
    text: str, *, root: str, folder: str, variables: Sequence[str] = VARIABLES
) -> list[CallPart]:
    """The parts of a shell command that runs in a folder."""
    shell = ShellState(root, (folder,), variables)
    _read(text, shell)
    return shell.parts


def argument_parts(
    words: Sequence[str], *, root: str, folder: str, variables: Sequence[str] = VARIABLES
) -> list[CallPart]:
    """The parts of a command that is given as its words, which no shell reads."""
    shell = ShellState(root, (folder,), variables)
    _run([ShellWord(word) for word in words], shell, (), [])
    return shell.parts


def _read(text: str, shell: ShellState) -> None:
    if shell.depth > 5:
        raise NotUnderstood("shells are started inside each other too deeply")
    commands, problem = read_shell(text)
    for command in commands:
        _command(command, shell)
    if problem:
        shell.parts.append(CallPart(words=(), problem=problem))


def _command(command: SimpleCommand, shell: ShellState) -> None:
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
        shell.parts.append(part_of((), uses, shell, problem=problem))
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
    shell.links = shell.links or any(makes_links(part, shell) for part in shell.parts[before:])
    shell.wrote = shell.wrote or any(part.actions - {"read"} for part in shell.parts[before:])


def _changed(command: SimpleCommand, shell: ShellState) -> None:
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


def _redirected(redirection: Redirection, shell: ShellState) -> list[PathUse]:
    target = redirection.target
    if target.expands or target.pattern:
        raise NotUnderstood(f"the file behind {redirection.operator} is known only when it runs")
    access: Access = "read" if redirection.operator == "<" else "write"
    return [use_of(target.text, access, shell)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in patterns
    )


# -- a program -------------------------------------------------------------------------------------


def _run(
    words: Sequence[ShellWord], shell: ShellState, uses: tuple[PathUse, ...], problems: list[str]
) -> None:
    """Add the parts of one program and its words."""
    texts = [word.text for word in words]
    try:
        texts = _expanded(words, shell)
        if problems:
            raise NotUnderstood(problems[0])
        _program(texts, shell, uses)
    except NotUnderstood as problem:
        # With its words all the same: a deny rule must see what it would run.
        shell.parts.append(part_of(texts, uses, shell, known=False, problem=str(problem)))


def _expanded(words: Sequence[ShellWord], shell: ShellState) -> list[str]:
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


def _matching(word: ShellWord, shell: ShellState) -> list[str]:
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


def _program(words: list[str], shell: ShellState, uses: tuple[PathUse, ...]) -> None:
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
        shell.parts.append(downloader(name, words, shell, uses))
    elif name == "cd":
        shell.parts.append(_cd(words, shell, uses))
    elif name == "set":
        options = [re.fullmatch(r"[-+][eux]*o?|pipefail|errexit|nounset", word) for word in words[1:]]
        if not options or not all(options):
            raise NotUnderstood("set changes more than how the shell fails")
        shell.parts.append(part_of(words, uses, shell))
    elif name in ("export", "unset"):
        for word in words[1:] or [""]:
            if not _matches(word.partition("=")[0], shell.variables):
                raise NotUnderstood(f"it sets or shows the variable {word.partition('=')[0]!r:.40}")
        shell.parts.append(part_of(words, uses, shell))
    elif name == "git":
        for word in words[1:]:
            if GIT_RUNS.fullmatch(word):
                raise NotUnderstood(f"git runs other programs, or another configuration, with {word!r:.40}")
        shell.parts.append(unknown_program(words, shell, uses))
    elif name == "tar":
        shell.parts.append(archiver(words, shell, uses))
    elif name == "command" and words[1:2] in (["-v"], ["-V"]):
        shell.parts.append(part_of(words, uses, shell))
    elif name in ("test", "["):
        operands = [word for word in words[1:] if not re.fullmatch(r"-[a-zA-Z]{1,2}|]|!|=|==|!=|[()]", word)]
        shell.parts.append(
            part_of(words, [*uses, *(use_of(word, "read", shell) for word in operands)], shell)
        )
    elif name in PROGRAMS:
        shell.parts.append(known_program(PROGRAMS[name], name, words, shell, uses))
    else:
        shell.parts.append(unknown_program(words, shell, uses))


def _cd(words: Sequence[str], shell: ShellState, uses: Sequence[PathUse]) -> CallPart:
    operands = [word for word in words[1:] if word != "--"]
    if len(operands) > 1 or any(word.startswith("-") for word in operands):
        raise NotUnderstood("cd leads to a folder that is known only when it runs")
    target = use_of(operands[0] if operands else os.path.expanduser("~"), "read", shell)
    if set(target.names) != set(target.places):
        # A shell's own `..` goes back the way it came, a program's goes up from where the link led.
        raise NotUnderstood(f"cd {target.given!r:.60} goes through a link")
    return part_of(words, [target, *uses], shell)


# -- programs that run others ----------------------------------------------------------------------


def _wrapped(name: str, words: list[str], shell: ShellState, uses: tuple[PathUse, ...]) -> None:
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
        shell.parts.append(part_of(words, uses, shell, known=False))
    if rest:
        _program(rest, shell, uses)
    elif name == "exec":
        shell.parts.append(part_of(words, uses, shell))
    else:
        raise NotUnderstood(f"{name} does not say what it runs")


def _shell(words: list[str], shell: ShellState, uses: tuple[PathUse, ...]) -> None:
    rest = words[1:]
    while rest and re.fullmatch(r"-[eux]+", rest[0]):
        rest.pop(0)
    if rest and re.fullmatch(r"-[eux]*c", rest[0]):
        if len(rest) < 2:
            raise NotUnderstood(f"{words[0]} -c has no text")
        if uses:
            shell.parts.append(part_of(words[:1], uses, shell, known=False))
        inner = replace(shell, depth=shell.depth + 1, left=())
        _read(rest[1], inner)
        shell.links, shell.wrote = inner.links, inner.wrote
    elif rest and not rest[0].startswith("-"):
        shell.parts.append(unknown_program(words, shell, uses))
    else:
        raise NotUnderstood(f"{words[0]} runs what it is given when it runs")


def _interpreter(flags: str, words: list[str], shell: ShellState, uses: Sequence[PathUse]) -> CallPart:
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("--version", "-V"):
            return part_of(words, uses, shell)
        if option == "-m" and flags and rest:
            return unknown_program(words, shell, uses)
        if option == "-" or not set(option[1:]) <= set(flags) or option.startswith("--"):
            raise NotUnderstood(f"{words[0]} {option!r:.40} may run code that is not in a file")
    if not rest:
        raise NotUnderstood(f"{words[0]} runs what it is given when it runs")
    return unknown_program(words, shell, uses)


def _find(words: list[str], shell: ShellState, uses: tuple[PathUse, ...]) -> None:
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
    paths = [use_of(start, access, shell, recursive=deletes) for start in starts]
    shell.parts.append(part_of(words, [*paths, *uses], shell))
    for inner in runs:
        if any("{}" in text and text != "{}" for text in inner) or inner[:1] == ["{}"]:
            raise NotUnderstood("find runs something that is known only when it runs")
        for start in starts:
            if any(holds_links(os.path.join(folder, start)) for folder in shell.folders):
                raise NotUnderstood(f"find {start!r:.60} comes upon links, which its program would follow")
            first = len(shell.parts)
            _program([start if text == "{}" else text for text in inner], shell, ())
            # What lies below, as far as it is there now.
            shell.parts[first:] = [
                replace(part, paths=tuple(replace(use, recursive=True) for use in part.paths))
                for part in shell.parts[first:]
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
