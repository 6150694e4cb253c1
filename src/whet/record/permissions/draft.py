"""A draft of rules from recorded tool calls: what was done so far is allowed, for a person to narrow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...types import Json
from .commands import VARIABLES
from .parts import call_parts
from .paths import path_pattern
from .programs import PROGRAMS
from .shell import NotUnderstood
from .urls import read_url

REASON = "drafted from the record: read it before you rely on it"
SECRETS = [
    "**/.env",
    "**/.env.*",
    "~/.ssh/**",
    "~/.aws/**",
    "~/.config/**",
    "**/.git/hooks/**",
    "**/.git/config",
]
"""Places that a draft denies whatever was done so far."""


def drafted(calls: Iterable[tuple[str, Json]], *, root: Path) -> dict[str, Any]:
    """Rules, as a file has them, that allow these calls as far as they are understood and stay in the root.

    Args:
        calls: names of tools, with their arguments.
        root: the folder that the rules are for.
    """
    programs: dict[str, set[str]] = defaultdict(set)
    hosts: dict[str, set[str]] = defaultdict(set)
    kinds: dict[str, set[str]] = defaultdict(set)
    plain: set[str] = set()
    inside = path_pattern("./**", str(root))
    for tool, arguments in calls:
        for part in call_parts(arguments, {}, root=str(root), variables=VARIABLES):
            if part.problem or not all(inside.covers(use) for use in part.paths):
                continue
            if part.words:
                # A program of which nothing is known is named with its first word: `git commit *`, not `git *`.
                named = part.words[0] in PROGRAMS and part.words[0] != "git"
                programs[tool] |= {" ".join([*part.words[: 1 if named else 2], "*"])}
            elif part.urls:
                hosts[tool] |= {_site(url) for url in part.urls} - {""}
            elif part.statements:
                kinds[tool] |= set(part.statements)
            else:
                plain.add(tool)
    rules: list[dict[str, Any]] = [
        {
            "decision": "deny",
            "path": SECRETS,
            "reason": "secrets, and files that make other programs run something",
        }
    ]
    rules += [_allowed(tool, command=sorted(own)) for tool, own in sorted(programs.items())]
    rules += [_allowed(tool, url=sorted(own)) for tool, own in sorted(hosts.items()) if own]
    rules += [_allowed(tool, sql=sorted(own)) for tool, own in sorted(kinds.items())]
    rules += [_allowed(tool) for tool in sorted(plain)]
    return {"root": ".", "default": "ask", "rules": rules}


def _allowed(tool: str, **more: list[str]) -> dict[str, Any]:
    return {"decision": "allow", "tool": tool, **more, "reason": REASON}


def _site(url: str) -> str:
    try:
        location = read_url(url)
    except NotUnderstood:
        return ""
    host = f"[{location.host}]" if ":" in location.host else location.host
    return f"{location.scheme}://{host}:{location.port}/**"
