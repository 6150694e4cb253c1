"""A conservative reader of POSIX shell: the simple commands of a text, or the reason that it is not understood.

It reads words, quotes, pipes, lists, subshells, groups, redirections, here-documents, assignments and substitutions,
and gives every simple command in it, those inside substitutions too.  A word that the shell would expand when it runs
is marked as such.  Whatever else the shell knows (loops, functions, arithmetic, process substitution, brace expansion,
what bash alone has) is `NotUnderstood`: who asks must refuse it.  It runs nothing and looks at no file; `commands.py`
says what the words of a command mean.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

LONGEST = 20_000
"""Characters of a text that is read."""
DEEPEST = 20
"""Substitutions, subshells and groups inside each other."""
_META = frozenset(" \t\n;&|<>()")
_WORDS = "if then else elif fi do done case esac while until for in select function time coproc [[ ]]"
_RESERVED = frozenset(_WORDS.split())
_SPECIAL = frozenset("@*#?-$!")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


class NotUnderstood(Exception):
    """The text, or a part of it, cannot be told beforehand; its text says why."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """One word after its quotes are removed."""

    text: str
    """Where it expands at run time, what is known of it."""
    expands: str = ""
    """What of it is known only when it runs: a variable, a command's output; "" for nothing."""
    pattern: str | None = None
    """As a pattern of file names, quoted characters in brackets; None for none."""
    tilde: bool = False
    """It begins with an unquoted tilde."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """A file that a command is joined to."""

    operator: str
    """`<`, `>`, `>>`, `>|` or `<>`."""
    target: ShellWord


@dataclass(slots=True)
class SimpleCommand:
    """A program with its words, in the order of the text."""

    words: list[ShellWord] = field(default_factory=list)
    assignments: list[ShellWord] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    heredoc: bool = False
    """Its input is in the text."""
    before: str = ""
    """What stands before it: `&&`, `||`, `|`, `;`, `&`, `(`, `{`; "" at the beginning."""
    after: str = ""
    """What stands after it, `)` and `}` too."""
    negated: bool = False


def read_shell(text: str) -> tuple[list[SimpleCommand], str]:
    """The commands of a text, and the reason that it is not understood, "" if it is.

    Where it is not, the commands are those that were read until then.
    """
    reader = _Reader(text, [])
    try:
        refuse_hidden(text)
        if len(text) > LONGEST:
            raise NotUnderstood(f"it is longer than {LONGEST:,} characters")
        reader.read("")
    except NotUnderstood as problem:
        return reader.commands, str(problem)
    except RecursionError:
        return reader.commands, "it is nested too deeply"
    return reader.commands, "" if reader.commands else "there is no command in it"


def refuse_hidden(text: str) -> None:
    """Refuse characters that nobody sees, or that programs take for different things.

    Raises:
        NotUnderstood: a control character, a space that is none of ASCII, a mark that turns the direction of text.
    """
    for char in text:
        if " " < char < "\x7f" or char in " \t\n":
            continue
        if unicodedata.category(char) in _HIDDEN:
            raise NotUnderstood(f"it has the character U+{ord(char):04X}, which is not seen")


class _Reader:
    """Recursive descent over the characters of a text."""

    def __init__(self, text: str, commands: list[SimpleCommand], at: int = 0, depth: int = 0) -> None:
        if depth > DEEPEST:
            raise NotUnderstood("it is nested too deeply")
        self.text, self.at, self.depth = text, at, depth
        self.commands = commands
        self._heredocs: list[tuple[str, bool, bool]] = []
        """Delimiter, tabs stripped, quoted: those whose bodies begin at the next line."""

    def read(self, closing: str) -> None:
        """Read commands up to `closing`: `)`, `}` or, for "", the end of the text."""
        before, any_read = closing and {")": "(", "}": "{"}[closing], False
        while True:
            self._blank(newlines=True)
            if self.at >= len(self.text):
                if closing or before in ("&&", "||", "|"):
                    raise NotUnderstood("it is not complete")
                if self._heredocs:
                    raise NotUnderstood("a here-document has no end")
                return
            if self._closes(closing):
                if before in ("&&", "||", "|") or not any_read:
                    raise NotUnderstood("a command is missing in it")
                self.commands[-1].after = self.commands[-1].after or closing
                return
            last = len(self.commands)
            self._command(before)
            any_read = True
            self._blank()
            before = self._separator(closing)
            if len(self.commands) > last and before:
                self.commands[-1].after = self.commands[-1].after or before
            if not before:
                before = ";"

    def _closes(self, closing: str) -> bool:
        if closing == ")" and self.text[self.at] == ")":
            self.at += 1
            return True
        if closing == "}" and self.text[self.at] == "}":
            following = self.text[self.at + 1 : self.at + 2]
            if not following or following in _META:
                self.at += 1
                return True
        return False

    def _separator(self, closing: str) -> str:
        """The operator here; "" where the list ends."""
        rest = self.text[self.at : self.at + 2]
        if not rest:
            return ""
        if rest in ("&&", "||"):
            self.at += 2
            return rest
        if rest[0] == "\n":
            return ";"  # taken with the blanks, and the here-documents with it
        if rest in (";;", ";&", "|&"):
            raise NotUnderstood(f"{rest} is not POSIX shell here")
        if rest[0] in ";&|":
            self.at += 1
            return rest[0]
        if rest[0] == ")" and closing == ")":
            return ""
        raise NotUnderstood(f"{rest[0]!r} does not belong where it stands")

    def _blank(self, newlines: bool = False) -> None:
        """Pass blanks, comments and joined lines; line ends too where `newlines`."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif char == "\n" and newlines:
                self.at += 1
                self._bodies()
            else:
                return

    def _bodies(self) -> None:
        """The here-documents that begin at this line."""
        pending, self._heredocs = self._heredocs, []
        for delimiter, strips, quoted in pending:
            while True:
                if self.at >= len(self.text):
                    raise NotUnderstood("a here-document has no end")
                line, end, _ = self.text[self.at :].partition("\n")
                self.at += len(line) + len(end)
                if (line.lstrip("\t") if strips else line) == delimiter:
                    break
                if not quoted and re.search(r"[$`\\]", line):
                    raise NotUnderstood("a here-document expands when it runs; quote its delimiter")

    # -- a command ----------------------------------------------------------------------------

    def _command(self, before: str) -> None:
        negated = False
        while self.text[self.at] == "!" and self.text[self.at + 1 : self.at + 2] in (" ", "\t"):
            negated = True
            self.at += 1
            self._blank()
            if self.at >= len(self.text):
                raise NotUnderstood("it is not complete")
        char, following = self.text[self.at], self.text[self.at + 1 : self.at + 2]
        if char == "(":
            if following == "(":
                raise NotUnderstood("it has arithmetic, or a subshell that looks like it")
            self.at += 1
            self._inside(")")
            return
        if char == "{" and following in (" ", "\t", "\n"):
            self.at += 1
            self._inside("}")
            return
        command = SimpleCommand(before=before, negated=negated)
        self._simple(command)
        # After what is substituted into it, which runs first.
        self.commands.append(command)

    def _inside(self, closing: str) -> None:
        """A subshell or a group, and the redirections after it."""
        if self.depth + 1 > DEEPEST:
            raise NotUnderstood("it is nested too deeply")
        self.depth += 1
        self.read(closing)
        self.depth -= 1
        outer = SimpleCommand(before=closing)
        while True:
            self._blank()
            if not self._redirection(outer):
                break
        if outer.redirections or outer.heredoc:
            self.commands.append(outer)

    def _simple(self, command: SimpleCommand) -> None:
        while True:
            self._blank()
            if self._redirection(command):
                continue
            start = self.at
            word = self._word()
            if word is None:
                break
            raw = self.text[start : self.at]
            if not command.words:
                if raw in _RESERVED or raw in ("{", "}", "!"):
                    raise NotUnderstood(f"it uses {raw}, which is more than a list of commands")
                if _ASSIGNMENT.match(raw):
                    command.assignments.append(word)
                    continue
            command.words.append(word)
            if self.at < len(self.text) and self.text[self.at] == "(":
                raise NotUnderstood("it defines a function, or has a pattern of bash's own")
        if not (command.words or command.assignments or command.redirections or command.heredoc):
            raise NotUnderstood("a command is missing in it")

    def _redirection(self, command: SimpleCommand) -> bool:
        """Read a redirection, if there is one here."""
        match = re.compile(r"(\d*)(<<-|<<<|<<|<&|<>|>>|>\||>&|<|>)").match(self.text, self.at)
        if match is None:
            return False
        operator = match.group(2)
        self.at = match.end()
        if operator in ("<", ">") and self.text.startswith("(", self.at):
            raise NotUnderstood("it has a process substitution")
        if operator == "<<<":
            raise NotUnderstood("it has a here-string")
        self._blank()
        start = self.at
        target = self._word()
        if target is None:
            raise NotUnderstood(f"nothing stands behind {operator}")
        if operator in ("<<", "<<-"):
            raw = self.text[start : self.at]
            if target.expands or target.pattern or "\\\n" in raw:
                raise NotUnderstood("the end of a here-document is not told")
            self._heredocs.append((target.text, operator == "<<-", raw != target.text))
            command.heredoc = True
        elif operator in ("<&", ">&"):
            if not re.fullmatch(r"\d{1,3}|-|\d{1,3}-", target.text) or target.expands:
                command.redirections.append(Redirection("<" if operator == "<&" else ">", target))
        else:
            command.redirections.append(Redirection(operator, target))
        return True

    # -- a word -------------------------------------------------------------------------------

    def _word(self) -> ShellWord | None:
        if self.at >= len(self.text) or self.text[self.at] in _META or self.text[self.at] == "\n":
            return None
        letters: list[str] = []
        pattern: list[str] = []
        expands, globs = "", False
        tilde = self.text[self.at] == "~"
        braces = False
        start = self.at

        def literal(char: str) -> None:
            letters.append(char)
            pattern.append(f"[{char}]" if char in "*?[" else char)

        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _META:
                break
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "\\":
                if self.at + 1 >= len(self.text):
                    raise NotUnderstood("it ends in a backslash")
                literal(self.text[self.at + 1])
                self.at += 2
            elif char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise NotUnderstood("a quote is not closed")
                for inner in self.text[self.at + 1 : end]:
                    literal(inner)
                self.at = end + 1
            elif char == '"':
                expands = self._double(literal) or expands
            elif char in "$`":
                expands = self._expansion(literal) or expands
            else:
                globs = globs or char in "*?"
                braces = braces or char in "{}["
                letters.append(char)
                pattern.append(char)
                self.at += 1
        text = "".join(letters)
        raw = self.text[start : self.at]
        if braces and raw not in ("{}", "{", "}", "[", "[["):
            expands = expands or "brackets or braces, which shells expand in different ways"
        if self._heredocs and "\n" in raw:
            raise NotUnderstood("a here-document begins inside a word")
        return ShellWord(text, expands, "".join(pattern) if globs else None, tilde)

    def _double(self, literal: object) -> str:
        """What is between double quotes."""
        assert callable(literal)
        expands = ""
        self.at += 1
        while True:
            if self.at >= len(self.text):
                raise NotUnderstood("a quote is not closed")
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return expands
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                if self.text[self.at + 1] != "\n":
                    literal(self.text[self.at + 1])
                self.at += 2
            elif char in "$`":
                expands = self._expansion(literal) or expands
            else:
                literal(char)
                self.at += 1

    def _expansion(self, literal: object) -> str:
        """What a dollar or a backtick stands for; the commands in it are listed."""
        assert callable(literal)
        if self.text[self.at] == "`":
            self._backticks()
            return "a command's output"
        following = self.text[self.at + 1 : self.at + 2]
        if following == "(":
            if self.text.startswith("((", self.at + 1):
                raise NotUnderstood("it has arithmetic, or a subshell that looks like it")
            inner = _Reader(self.text, self.commands, self.at + 2, self.depth + 1)
            inner.read(")")
            self.at = inner.at
            return "a command's output"
        if following in ("{", "'", '"'):
            raise NotUnderstood("it has an expansion that is known only when it runs")
        if following and (following.isalnum() or following == "_" or following in _SPECIAL):
            self.at += 2
            while self.text[self.at : self.at + 1].isalnum() or self.text[self.at : self.at + 1] == "_":
                self.at += 1
            return "a variable"
        literal("$")
        self.at += 1
        return ""

    def _backticks(self) -> None:
        self.at += 1
        inner: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise NotUnderstood("a backtick is not closed")
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("`", "\\", "$"):
                inner.append(self.text[self.at + 1])
                self.at += 2
            elif char == "`":
                self.at += 1
                break
            else:
                inner.append(char)
                self.at += 1
        _Reader("".join(inner), self.commands, 0, self.depth + 1).read("")
