"""Any external command as a proposer: a coding agent, a script, a person at a terminal.

It is started in a folder of its own that holds

    program/        the parent's files
    evidence.json   its score, metrics, instances and artifacts; others that scored well
    budget.json     {"seconds": ..., "proposal": ...}

and answers by changing files under `program/`, or by printing a unified diff or SEARCH/REPLACE blocks.
Its files are read back as data: only those that the program already has, as text, and only the text
between the evolve marks may differ.  The command itself is the user's own and runs as the
user does, outside of the sandbox; its folder is in the environment as WHET_TASK.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....errors import InputError, ModelError
from ....models.base import Completion, Messages, as_messages, text_of
from ....models.recorded import RecordedModel
from ....types import Json
from ..editing.program import Program, apply_diff, apply_patch, kept
from .population import Draw, Judged
from .proposers import ask

_PRINTED = 1 << 20
_LARGEST = 4 << 20
"""Bytes of a file that is read back: far more than a program has."""


class CommandModel:
    """The command as a Model, so that `RecordedModel` keeps its answers: a resumed search does not start it again.

    A request is the JSON of the folder, an answer the JSON of what came back: `{"parts", "printed"}`.

    Args:
        command: program and arguments; it is not passed through a shell.
        seconds: after which it is killed with all that it started.

    Raises:
        InputError: no command, or no time.
    """

    def __init__(self, command: Sequence[str], *, seconds: float = 600.0) -> None:
        if not command or seconds <= 0:
            raise InputError(f"command={list(command)}, seconds={seconds:g}: give a command and time for it")
        self.command, self.seconds = tuple(command), seconds
        self.name = f"command {Path(command[0]).name}"

    async def complete(self, messages: Messages, **settings: Any) -> Completion:
        """Run the command on one task.

        Raises:
            ModelError: it cannot be started, failed, or took too long.
        """
        task = json.loads(text_of(as_messages(messages)[-1]))
        with tempfile.TemporaryDirectory(prefix="whet-task-") as name:
            folder = Path(name)
            for part, text in task["program"].items():
                path = folder / "program" / part
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            for file in ("evidence", "budget"):
                (folder / f"{file}.json").write_text(json.dumps(task[file], indent=1), encoding="utf-8")
            printed = await self._run(folder)
            parts = {part: _read(folder / "program", part) for part in task["program"]}
        readable = {part: text for part, text in parts.items() if text is not None}
        answer = {"parts": readable, "printed": printed}
        return Completion(text=msgspec.json.encode(answer).decode(), model=self.name)

    async def stream(self, messages: Messages, **settings: Any) -> Any:
        """Not offered: a command answers when it is done."""
        raise InputError(f"{self.name} is a command and does not stream; ask it with complete()")
        # Makes it an asynchronous generator, as `Model.stream` is.
        yield

    async def _run(self, folder: Path) -> str:
        # A file and not a pipe, which a process left behind would hold open: reading it would not end.
        with open(folder / "printed", "w+b") as out:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.command,
                    cwd=folder,
                    env={**os.environ, "WHET_TASK": str(folder)},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=asyncio.subprocess.STDOUT,
                    # Its own process group: `killpg` ends all that it starts and nothing of ours.
                    start_new_session=True,
                )
            except OSError as error:
                raise ModelError(f"{self.command[0]} cannot be started: {error}") from error
            try:
                async with asyncio.timeout(self.seconds):
                    code = await process.wait()
            except TimeoutError:
                raise ModelError(f"{self.name} took more than {self.seconds:g} s and was ended") from None
            finally:
                # All that it started goes with it, whether it came to an end or not.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            out.seek(0)
            printed = out.read(_PRINTED).decode("utf-8", "replace")
        if code != 0:
            raise ModelError(f"{self.name} ended with code {code}: {printed[-500:]}")
        return printed


class Command:
    """A proposer that runs a CommandModel, or a `RecordedModel` one."""

    price = 5.0
    """Of a run, in evaluations."""

    def __init__(self, agent: CommandModel | RecordedModel) -> None:
        self.agent, self.name = agent, agent.name
        command = agent.model if isinstance(agent, RecordedModel) else agent
        self.seconds = command.seconds if isinstance(command, CommandModel) else None
        self.identity: Json = [self.name, list(getattr(command, "command", ())), self.seconds, True]

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child.

        Raises:
            InputError: nothing was changed, or the answer is not a change of the program.
            ModelError: the command failed.
        """
        parent = draw.parent
        task = {
            "program": dict(parent.program.parts),
            "evidence": {
                **_evidence(parent),
                "artifacts": dict(parent.artifacts),
                "main": parent.program.main,
                "others": [
                    {**_evidence(judged), "program": dict(judged.program.parts)}
                    for judged in draw.inspirations
                ],
            },
            "budget": {"seconds": self.seconds, "proposal": number},
        }
        return changed(parent.program, await ask(self.agent, json.dumps(task), number, None))


def _evidence(judged: Judged) -> dict[str, Json]:
    return {"score": judged.score, "metrics": dict(judged.metrics), "instances": dict(judged.instances)}


def changed(program: Program, answer: str) -> Program:
    """The program after a CommandModel's answer: its files, or else the patch that it printed.

    Raises:
        InputError: no change, or one that does not fit.
    """
    message = json.loads(answer)
    parts: Mapping[str, str] = message["parts"]
    if any(text != program.parts[name] for name, text in parts.items() if name in program.parts):
        return kept(program, {name: parts.get(name, text) for name, text in program.parts.items()})
    printed: str = message["printed"]
    if "<<<<<<< SEARCH" in printed:
        return apply_diff(program, printed)
    if "\n@@ " in f"\n{printed}":
        return apply_patch(program, printed)
    raise InputError("the command changed no file under program/ and printed no patch")


def _read(folder: Path, name: str) -> str | None:
    """A file that it left; None if it is gone, a link, not text, or too large."""
    inside = os.path.realpath(folder)
    path = f"{inside}/{name}"
    if os.path.realpath(path) != os.path.normpath(path):
        return None  # a link, or below one: its target is not part of the program
    try:
        # A fifo without a writer would hold up the opening; it is refused below, once it is open.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        raw = file.read(_LARGEST + 1)
    try:
        return raw.decode("utf-8") if len(raw) <= _LARGEST else None
    except UnicodeDecodeError:
        return None
