"""`whet permissions`: what a rule file says of a call and of those in a record, and a draft of one."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError
from ..escapes import clean
from .named import named
from .root import Print, command, counted, existing, print_json

if TYPE_CHECKING:
    from ..record.permissions.rules import Permissions
    from ..serve.gateway.moderation import Moderation

MODERATION_KEY = "WHET_MODERATION_KEY"
"""Variable with the key of a moderation endpoint."""


@dataclass(frozen=True)
class ProgramGuard:
    """What a program and the gateway in front of it are held to."""

    file: Path | None
    moderate: str | None = None

    @cached_property
    def permissions(self) -> Permissions | None:
        """The rules.

        Raises:
            InputError: their file cannot be used.
        """
        from ..record.permissions.files import load_permissions

        return None if self.file is None else load_permissions(self.file)

    @property
    def moderation(self) -> Moderation | None:
        """The function that sees prompts, or one that asks the endpoint which is named."""
        from ..serve.gateway.moderation import endpoint_moderation

        if self.moderate is None:
            return None
        if self.moderate.startswith(("http://", "https://")):
            return endpoint_moderation(self.moderate, key=os.environ.get(MODERATION_KEY))
        return named(self.moderate)

    def environment(self) -> dict[str, str]:
        """Variables by which the program's own tools are held to the rules."""
        from ..record.permissions.enforcement import ASK, FILE

        if self.permissions is None:  # read here, so that a bad file is told before anything runs
            return {}
        return {FILE: os.path.abspath(str(self.file)), ASK: "terminal"}


@command("permissions")
def permissions(
    rules: Path | None = None,
    /,
    *,
    call: str | None = None,
    arguments: str = "{}",
    store: Path | None = None,
    draft: Path | None = None,
    json: Print = False,
) -> int:
    """Check a rule file before an agent is held to it, or draft one from what its tools were called with.

    For example: whet permissions rules.json --call bash --arguments '{"command": "rm -rf build"}'. With --store, all
    recorded tool calls are decided, and those that would not be allowed are listed. Nothing is run. Exits 1 where a
    call is not allowed.

    Parameters
    ----------
    rules
        A rule file, JSON or TOML; docs/permissions.md says what stands in it.
    call
        Name of a tool.
    arguments
        Its arguments as a JSON object.
    store
        A record whose tool calls are decided, or drafted from.
    draft
        Write rules here that allow what the record's tools were called with, for a person to read and narrow.
    """
    if draft is not None:
        return _drafted(draft, store, json=json)
    if rules is None:
        raise InputError("give a rule file, or --draft FILE --store RECORD to have one drafted")
    from ..record.permissions.files import load_permissions

    held = load_permissions(rules)
    if call is not None:
        try:
            decoded = msgspec.json.decode(arguments)
        except msgspec.DecodeError as error:
            raise InputError(
                f'--arguments is no JSON ({error}); give an object, such as \'{{"path": "a.txt"}}\''
            ) from error
        decision = held.decide(call, decoded)
        if json:
            print_json({**msgspec.to_builtins(decision), "sentence": decision.sentence})
        else:
            print(decision.sentence)
        return 0 if decision.decision == "allow" else 1
    if store is None:
        print(f"{rules}: {counted(len(held.rules), 'rule')}, else {held.default}; paths from {held.root}")
        return 0
    return _decided(held, store, json=json)


def _decided(held: Permissions, path: Path, *, json: bool) -> int:
    """Decide the recorded calls of a store."""
    from ..record.store import Store
    from ..record.tracing.tool_calls import tool_calls

    decisions: Counter[str] = Counter()
    sentences: Counter[str] = Counter()
    with Store(existing(path)) as opened:
        for run in opened.trajectories():
            for made in tool_calls(run):
                decision = held.decide(made.name or "", made.arguments)
                decisions[decision.decision] += 1
                if decision.decision != "allow":
                    sentences[decision.sentence] += 1
    if json:
        print_json({"decisions": dict(decisions), "not_allowed": dict(sentences.most_common(100))})
    else:
        words = ", ".join(f"{decisions[word]:,} {verb}" for word, verb in _VERBS.items())
        print(f"{counted(sum(decisions.values()), 'recorded tool call')}: {words}")
        for sentence, number in sentences.most_common(20):
            print(f"{number:>6,}  {sentence}")
    return 0 if decisions.keys() <= {"allow"} else 1


_VERBS = {"allow": "allowed", "ask": "left to a person", "deny": "denied"}


def _drafted(target: Path, path: Path | None, *, json: bool) -> int:
    """Draft rules from a record."""
    from ..record.permissions.draft import drafted
    from ..record.store import Store
    from ..record.tracing.tool_calls import tool_calls

    if path is None:
        raise InputError("--draft needs --store RECORD: it allows what the tools in it were called with")
    if target.exists():
        raise InputError(f"{target} exists; a draft does not replace rules that somebody wrote")
    with Store(existing(path)) as opened:
        made = [
            (call.name, call.arguments)
            for run in opened.trajectories()
            for call in tool_calls(run)
            if call.name
        ]
    if not made:
        raise InputError(f"{path} has no tool calls to draft rules from")
    rules = drafted(made, root=target.resolve().parent)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(rules), indent=2) + b"\n")
    if json:
        print_json(rules)
        return 0
    print(
        f"{target}: {counted(len(rules['rules']), 'rule')} from {counted(len(made), 'call')} of "
        f"{counted(len({clean(name) for name, _ in made}), 'tool')}. Read and narrow it: it allows what was done so "
        "far, good or bad"
    )
    return 0
