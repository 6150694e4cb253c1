"""Permissions: ordered rules that allow, deny or ask, over what a tool call touches; the first that matches decides.

A call is taken apart (`parts.py`): each program that its command runs is a part, with its files and URLs.  Each part
is decided by the first rule that matches it, and the call by the strictest of its parts.  A deny or ask rule matches a
part that touches anything it names; an allow rule matches one of which it names everything.  What is not understood is
never allowed.  This decides; `enforcement.py` keeps tools to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from ...errors import InputError
from ...escapes import clean
from ...types import Json, canonical, digest
from ..conditions import fulfils
from ..tools import Effect, bare
from .commands import VARIABLES
from .operands import CallPart
from .parts import Meaning, call_parts, part_text
from .paths import path_pattern, resolved
from .shell import NotUnderstood
from .urls import read_url, url_pattern

Permit: TypeAlias = Literal["allow", "deny", "ask"]
Action: TypeAlias = Literal["read", "write", "delete", "run", "fetch", "call"]
"""A use of files, a program of which nothing is known, a URL, or a call that shows none of these."""
_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
_SYSTEM = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRule:
    """One rule: what it names must all hold."""

    decision: Permit
    reason: str
    """A sentence for whoever meets the rule."""
    tool: str | Sequence[str] = "*"
    """Names of tools, `*` for any text in them."""
    action: Sequence[Action] = ()
    """`read`, `write` and `delete` of files, `run` of a program that whet does not know, `fetch` of a URL, `call`."""
    path: Sequence[str] = ()
    """Patterns such as `./src/**`, `~/.ssh/**`, `**/.env`. An allow rule without any allows what lies in the root."""
    command: Sequence[str] = ()
    """Patterns of programs with their words: `git status`, `git log *`."""
    url: Sequence[str] = ()
    """Patterns such as `https://api.example.com/v1/**`. An allow rule without any allows no URL."""
    sql: Sequence[str] = ()
    """Kinds of statements: `select`."""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    """Name → value, or a condition: `{"at_most": 100}`, `{"at_least": 1}`, `{"one_of": [...]}`, `{"not": value}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDecision:
    """What the rules say of one call."""

    decision: Permit
    reason: str
    rule: int = 0
    """Number of the rule that decided, from 1; 0 for the default."""
    tool: str = ""
    part: str = ""
    """The part of the call that it is about."""
    by_person: bool = False
    """A person was asked, or should have been."""

    @property
    def sentence(self) -> str:
        """The decision in one sentence."""
        verb = {"allow": "allowed", "deny": "denied", "ask": "left to a person"}[self.decision]
        by = f"rule {self.rule}" if self.rule else "no rule allows it"
        about = f" ({self.part})" if self.part else ""
        return clean(
            f"{self.tool}{about} is {verb} by {by}: {self.reason}"
            if self.rule
            else f"{self.tool}{about} is {verb}: {self.reason}"
        )[:1_000]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Ordered rules with their default.

    >>> rules = [PermissionRule(decision="allow", tool="read_file", reason="reading the project is what it is for")]
    >>> Permissions(rules=rules, root="/srv/project").decide("read_file", {"path": "../secret"}).decision
    'deny'
    """

    rules: Sequence[PermissionRule] = ()
    default: Permit = "deny"
    """For a call that no rule matches."""
    not_understood: Literal["deny", "ask"] = "deny"
    """For a call of which not all is known beforehand; no rule allows it."""
    root: str = "."
    """The folder that paths are relative to; in a file, relative to that file."""
    tools: Mapping[str, Mapping[str, Meaning]] = field(default_factory=dict)
    """Tool → argument → what it is: `path` (or `path:read`, `path:write`, `path:delete`), `folder`, `url`, `command`,
    `sql` or `text`. What is left out is guessed from its name and its value."""
    variables: Sequence[str] = ()
    """Variables that a command may set, besides those that are known to be harmless."""
    when_denied: Literal["end", "tell"] = "end"
    """A denied call ends the run, or the agent is told and goes on."""
    irreversible: Permit = "allow"
    """For an allowed call of a tool that is not a `read`, and whose reverse did not bring a copy's state back."""
    ask_seconds: float = 300.0
    """How long a call waits for a person; then it is denied."""

    def __post_init__(self) -> None:
        try:
            root = resolved(os.path.abspath(os.path.expanduser(self.root)))
        except NotUnderstood as problem:
            raise InputError(
                f"root={self.root!r}: {problem}; give the folder that the agent works in"
            ) from problem
        object.__setattr__(self, "root", root)

    @property
    def id(self) -> str:
        """Hash of the rules, as blocked steps name them."""
        rules = [[getattr(rule, name) for name in PermissionRule.__slots__] for rule in self.rules]
        return digest(
            [rules, self.default, self.not_understood, self.root, self.tools, list(self.variables)], 12
        )

    def decide(
        self, tool: str, arguments: Json = None, *, effect: Effect | None = None
    ) -> PermissionDecision:
        """What the rules say of a call.

        Args:
            arguments: name → value.
            effect: of the tool on the world, where it declares one; a `read` only reads the paths that it is given.
        """
        decisions = [
            self._of_part(tool, arguments, part)
            for part in call_parts(
                arguments,
                self._meanings(tool),
                root=self.root,
                variables=(*VARIABLES, *self.variables),
                effect=effect,
            )
        ]
        return max(decisions, key=lambda decided: _STRICTNESS[decided.decision])

    def _meanings(self, tool: str) -> Mapping[str, Meaning]:
        if tool in self.tools:
            return self.tools[tool]
        return self.tools.get(bare(tool), self.tools.get("*", {}))

    def _of_part(self, tool: str, arguments: Json, part: CallPart) -> PermissionDecision:
        about = part_text(part)[:200]
        for number, rule in enumerate(self.rules, start=1):
            if rule.decision == "allow":
                matches = not part.problem and self._covers(rule, tool, arguments, part)
            else:
                matches = self._touches(rule, tool, arguments, part)
            if matches:
                return PermissionDecision(
                    decision=rule.decision, reason=rule.reason, rule=number, tool=tool, part=about
                )
        if part.problem:
            return PermissionDecision(
                decision=self.not_understood,
                reason=f"it is not understood: {part.problem}",
                tool=tool,
                part=about,
            )
        return PermissionDecision(decision=self.default, reason=self._unmatched(part), tool=tool, part=about)

    def _unmatched(self, part: CallPart) -> str:
        """The reason where no rule decides: what it reaches beyond the root, if anything."""
        within = path_pattern("./**", self.root)
        outside = [use.given for use in part.paths if not within.covers(use)]
        if not outside:
            return "no rule matches it"
        return f"{outside[0]!r:.80} lies outside {self.root}, and no rule matches it"

    def _covers(self, rule: PermissionRule, tool: str, arguments: Json, part: CallPart) -> bool:
        """True if an allow rule names all that the part touches."""
        if not any(fnmatchcase(tool, pattern) for pattern in _several(rule.tool)):
            return False
        if rule.action and not part.actions <= set(rule.action):
            return False
        if not all(_argument(arguments, name, expected) is True for name, expected in rule.arguments.items()):
            return False
        # A redirection without a program has no words that a pattern could match.
        if (part.words is None) != (not rule.command):
            return False
        if part.words and not any(_runs(pattern, part.words) for pattern in rule.command):
            return False
        if bool(part.statements) != bool(rule.sql) or not set(part.statements) <= {
            kind.lower() for kind in rule.sql
        }:
            return False
        patterns = [path_pattern(text, self.root) for text in rule.path or ("./**",)]
        if not all(any(pattern.covers(use) for pattern in patterns) for use in part.paths):
            return False
        try:
            locations = [read_url(text) for text in part.urls]
        except NotUnderstood:
            return False
        # A rule that is about paths or hosts says nothing of a call that has none.
        if part.words is None and (rule.path or rule.url) and not (part.paths or part.urls):
            return False
        return all(any(url_pattern(text).covers(location) for text in rule.url) for location in locations)

    def _touches(self, rule: PermissionRule, tool: str, arguments: Json, part: CallPart) -> bool:
        """True if the part touches something of each kind that a deny or ask rule names."""
        names = {tool.casefold(), bare(tool).casefold()}
        if not any(
            fnmatchcase(name, pattern.casefold()) for pattern in _several(rule.tool) for name in names
        ):
            return False
        if rule.action and not part.actions & set(rule.action):
            return False
        if any(_argument(arguments, name, expected) is False for name, expected in rule.arguments.items()):
            return False
        if rule.command and not (
            part.words and any(_runs(pattern, part.words, loosely=True) for pattern in rule.command)
        ):
            return False
        if rule.sql and not set(part.statements) & {kind.lower() for kind in rule.sql}:
            return False
        if rule.path and not any(
            path_pattern(text, self.root).touches(use) for text in rule.path for use in part.paths
        ):
            return False
        return not rule.url or any(_reaches(text, url) for text in rule.url for url in part.urls)


def _several(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _argument(arguments: Json, name: str, expected: Json) -> bool | None:
    if not isinstance(arguments, Mapping):
        return None
    return fulfils(arguments[name], expected) if name in arguments else False


def _reaches(pattern: str, url: str) -> bool:
    try:
        return url_pattern(pattern).touches(read_url(url))
    except NotUnderstood:
        return pattern == "*"


def _runs(pattern: str, words: Sequence[str], *, loosely: bool = False) -> bool:
    """True if a program with its words is one that a pattern names: word for word, a last `*` any further ones."""
    expected_words = pattern.split()
    open_end = bool(expected_words) and expected_words[-1] == "*" and len(expected_words) > 1
    if open_end:
        expected_words = expected_words[:-1]
    if (
        not expected_words
        or len(words) < len(expected_words)
        or (len(words) > len(expected_words) and not open_end and expected_words != ["*"])
    ):
        return False
    program, folder = os.path.basename(words[0]), os.path.dirname(words[0])
    if loosely:
        names = {words[0].casefold(), program.casefold()}
        first = any(fnmatchcase(name, expected_words[0].casefold()) for name in names)
    else:
        first = fnmatchcase(words[0], expected_words[0]) or (
            folder in _SYSTEM and fnmatchcase(program, expected_words[0])
        )
    return first and all(
        fnmatchcase(word.casefold() if loosely else word, part.casefold() if loosely else part)
        for word, part in zip(words[1:], expected_words[1:], strict=False)
    )


def shown_call(tool: str, arguments: Json) -> str:
    """A call as one line of plain characters, for a person who is asked."""
    text = canonical(arguments).decode("utf-8", "backslashreplace")
    return re.sub(r"[^\x20-\x7e]", lambda match: f"\\u{ord(match.group()):04x}", clean(f"{tool} {text}"))[
        :2_000
    ]
