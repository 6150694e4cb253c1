"""Reverse actions: a tool says how what it did is taken back, and that is tried on a copy before the tool is called.

After GoEX (Patil et al. 2024), which lets a model write the reverse and trusts it: here a reverse counts only if, on a
copy of the world, it brought the very state back.  A call that has none, or whose reverse failed there, is
irreversible, and needs a person's consent where the rules say so.  An UndoLog keeps what was done, and takes it back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ...errors import InputError
from ...types import Json, canonical, new_id

Reverse: TypeAlias = Callable[..., object]
"""`reverse(result, **arguments)` takes back what a call with these arguments did, which returned `result`."""
WorldCopy: TypeAlias = Callable[[], AbstractContextManager[Callable[[], Json]]]
"""Makes tools inside act on a copy of their world; gives a function that returns the copy's state as JSON."""
_reverses: dict[str, Reverse] = {}
"""Tool → its reverse, of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneAction:
    """A call that was made, and how to take it back."""

    id: str
    tool: str
    arguments: Mapping[str, Json]
    result: Json = None
    undone: bool = False


def register_reverse(tool: str, reverse: Reverse) -> None:
    """Have undo logs of this process take back what a tool did."""
    _reverses[tool] = reverse


def why_irreversible(
    tool: Callable[..., Any], reverse: Reverse | None, arguments: Mapping[str, Any], copy: WorldCopy | None
) -> str:
    """Try a call and its reverse on a copy; "" if the state came back, else the reason that it may not.

    Args:
        tool: called with `arguments` inside the copy.
        arguments: name → value.
    """
    if reverse is None:
        return "it declares no reverse"
    if copy is None:
        return "there is no copy of the world to try its reverse on"
    try:
        with copy() as state:
            before = canonical(state())
            result = tool(**arguments)
            reverse(result, **arguments)
            after = canonical(state())
    except Exception as error:
        return f"trying it on a copy failed: {type(error).__name__}: {error}"
    return "" if before == after else "on a copy its reverse does not bring the state back"


class UndoLog:
    """What was done, in a file, a line each; `undo` takes it back, newest first.

    Args:
        path: the file, which is made; a line is on the disk before the agent gets the tool's answer.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def add(self, tool: str, arguments: Mapping[str, Json], result: Json) -> None:
        """Note a call that was made."""
        self._append(DoneAction(id=new_id(), tool=tool, arguments=arguments, result=result))

    def _append(self, entry: DoneAction) -> None:
        with self.path.open("ab") as file:
            # A line that a crash cut off would spoil the next: its call had not been answered.
            written = self.path.read_bytes()
            file.truncate(written.rfind(b"\n") + 1)
            file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> list[DoneAction]:
        """What was done and not taken back, oldest first.

        Raises:
            InputError: the file is no undo log.
        """
        if not self.path.exists():
            return []
        entries: dict[str, DoneAction] = {}
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                entry = msgspec.json.decode(line, type=DoneAction)
            except msgspec.DecodeError as error:
                if number == len(lines):  # cut off by a crash: its call had not been answered
                    continue
                raise InputError(f"{self.path}, line {number} is no entry of an undo log: {error}") from error
            entries[entry.id] = entry
        return [entry for entry in entries.values() if not entry.undone]

    def undo(
        self, most: int | None = None, *, reverses: Mapping[str, Reverse] | None = None
    ) -> list[DoneAction]:
        """Take back what was done, newest first; returns what was taken back.

        Args:
            most: at most this many.
            reverses: tool → its reverse; those of the tools that are marked in this process if None.

        Raises:
            InputError: the reverse of a tool is not known here; neither its call nor an older one is taken back.
        """
        known = _reverses if reverses is None else reverses
        taken_back: list[DoneAction] = []
        for entry in reversed(self.entries()):
            if most is not None and len(taken_back) >= most:
                break
            if entry.tool not in known:
                raise InputError(
                    f"{self.path}: the reverse of {entry.tool!r} is not known here: import the module that marks it"
                )
            known[entry.tool](entry.result, **entry.arguments)
            self._append(replace(entry, undone=True))
            taken_back.append(entry)
        return taken_back
