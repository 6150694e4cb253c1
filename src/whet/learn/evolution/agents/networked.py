"""An agent that keeps its network: it runs as its owner does, and its code that evolves stays in the sandbox.

Each candidate gets a copy of the repository and a process of its own there, with the owner's interpreter,
environment and network, forked from one that has the agent's packages imported (`forking.py`).  A text that
evolves (a prompt, a tool's description, a skill) is data, written into the copy.  A constant may only become
another literal.  A function that evolves is replaced in the copy by one that asks for it: it is called in the
sandbox, by JSON, and what cannot cross is refused with the reason.  A helper of it that asks a service answers
from the agent's process (`lending.py`).  So nothing that a proposer wrote runs outside of the sandbox, and the
scores may prove something.

The agent itself does what it does: its tools reach what they reach, so give it a test account where they
write.  A failure of its endpoint is the machine's, not the candidate's, and has no score.  Every answer is
requested once: the same candidate on the same row has the same answer for the rest of the run.
"""

from __future__ import annotations

import ast
import asyncio
import json
import signal
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ....errors import BudgetExceeded, InputError
from ....models.budget import Meter
from ....python_text import module_of
from ....record.store import Log
from ....repository.syntax import FunctionNode, definition, is_method
from ....sandbox import CallResult, Pool, ProgramSession
from ....types import Failure, Fault, Json, digest
from ...datasets.callee import RUNNER, staged
from ..editing.program import Program
from . import crossing
from .agent import RepositoryAgent
from .agent_line import AgentProcess, AgentProcessEnded, fault_of_raised
from .copies import AgentCopies
from .forking import AgentZygote
from .lending import MOST_ASKED, Loan, asking, lent
from .lending import RUNNER as LENDING
from .outside import CallTarget, Inside
from .pieces import Piece, replaced


class Networked(Inside):
    """Calls the entry of an agent outside; the sandbox answers for its functions that evolve.

    Args:
        seconds: that one call of the entry may take.
        most: calls of the entry; None for any number.
        without: folders that are left out of the copies.
        meter: has a rollout reserved before each call of the entry.
        log: keeps the answers, so that no process asks for one that another had; it belongs to this source.
        as_came: functions that did not change run outside as they came: they are the owner's own code, which may need
            what the sandbox does not have, and of several that may change most stay as they are.
    """

    varies = True

    def __init__(
        self,
        agent: RepositoryAgent,
        pool: Pool,
        *,
        seconds: float,
        most: int | None = None,
        without: Sequence[Path] = (),
        meter: Meter | None = None,
        log: Log | None = None,
        as_came: bool = False,
    ) -> None:
        super().__init__(pool)
        # An empty log is false.
        self._meter, self._log, self._as_came = meter, Log() if log is None else log, as_came
        self.agent, self.seconds, self.most = agent, seconds, most
        self.calls = 0
        """Of the entry, so far."""
        self.kept = 0
        """Calls that a search leaves for the finalists and the gate."""
        self.answers: dict[str, CallResult] = {}
        """Of every call so far: an agent is asked once per candidate and row."""
        self.copies = AgentCopies(agent, [path.resolve() for path in without])
        self.zygote = AgentZygote(self.copies)
        # Its process ends with this, whoever forgets to say so.
        self._ended = weakref.finalize(self, self.zygote.end)

    @property
    def trusted_only(self) -> bool:
        """Functions that evolve run without the sandbox."""
        return self.pool.sandbox.trusted_only and any(piece.code for piece in self.agent.pieces)

    def reserve(
        self, target: CallTarget, program: Program, args: Sequence[Sequence[Json]], *, spare: bool
    ) -> None:
        """See that calls are left for these arguments.

        Raises:
            BudgetExceeded: they would be more than `most`; a spare one leaves `kept` of them.
        """
        if self.most is None:
            return
        pieces = target.whole(program)
        new = sum(not self.recall(_key(target, pieces, arguments)) for arguments in args)
        remaining = self.most - self.calls - (self.kept if spare else 0)
        if new > remaining:
            raise BudgetExceeded(
                f"{target.name} has to be called {new} times, and {max(0, remaining)} calls are left"
            )

    def count(self) -> None:
        """Count a call of the entry that is about to be made.

        Raises:
            BudgetExceeded: the meter allows none.
        """
        if self._meter is not None:
            self._meter.reserve(rollouts=1)
        self.calls += 1

    def recall(self, key: str) -> bool:
        """True if the answer is known, from this process or an earlier one."""
        if key not in self.answers and key in self._log:
            self.answers[key] = msgspec.convert(self._log.get(key), CallResult)
        return key in self.answers

    async def keep(self, key: str, result: CallResult) -> None:
        """Keep an answer; returns once no crash can lose it. A failure may pass: the next process tries again."""
        self.answers[key] = result
        if result.failure is not None:
            return
        await asyncio.wrap_future(self._log.put(key, msgspec.to_builtins(result)))

    @asynccontextmanager
    async def open(self, target: CallTarget, program: Program) -> AsyncIterator[Caller]:
        """One candidate, ready to be called; its process starts when an answer is not known yet.

        Raises:
            InputError: a candidate that cannot be put in place.
        """
        pieces = target.whole(program)
        changed = placed(self.agent, pieces, as_came=self._as_came)
        async with AsyncExitStack() as stack:
            caller = Caller(self, target, pieces, changed, stack)
            try:
                yield caller
            finally:
                caller.end()

    def end(self) -> None:
        """End the process that candidates are forked from."""
        self._ended()


class Caller:
    """One candidate's process; started when it is needed, and once more after a call that hung."""

    def __init__(
        self,
        host: Networked,
        target: CallTarget,
        program: Program,
        changed: Mapping[str, str],
        stack: AsyncExitStack,
    ) -> None:
        self._host, self._target, self._program, self._changed = host, target, program, changed
        self._stack = stack
        self._process: AgentProcess | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pieces: dict[str, tuple[ProgramSession, Loan]] = {}

    async def call(self, args: Sequence[Json] = (), *, seconds: float | None = None) -> CallResult:
        """The entry's answer to one input; `args` are those of `CallTarget.arguments`."""
        host, key = self._host, _key(self._target, self._program, args)
        if not host.recall(key):
            host.count()
            result = await self._asked(args)
            if result.killed_by is not None:  # a slow answer is not a hang: once more, in a fresh process
                host.count()
                result = await self._asked(args)
            if result.failure is not None and result.failure.type == "CannotCross":
                host.refused = result.failure.message
            if result.failure is not None and result.failure.fault is Fault.SANDBOX:
                return result  # the endpoint or the machine failed: the next candidate may have better luck
            await host.keep(key, result)
        return host.answers[key]

    async def calls(self, inputs: Sequence[Sequence[Json]]) -> list[CallResult]:
        """One call after the other."""
        return [await self.call(args) for args in inputs]

    async def _asked(self, args: Sequence[Json]) -> CallResult:
        positional, keywords, init = args
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._host.seconds):
                process = self._process or self._placed()
                return self._result(await process.call(positional, keywords, init, asked=self._piece), began)
        except TimeoutError:
            self.end()
            failure = Failure(Fault.AGENT, "Timeout", f"no answer within {self._host.seconds:g} s")
            return CallResult(failure=failure, killed_by="wall", seconds=time.monotonic() - began)
        except AgentProcessEnded as ended:
            self.end()
            failure = Failure(Fault.AGENT, "Ended", str(ended))
            code = -signal.SIGKILL if ended.code is None else ended.code
            return CallResult(failure=failure, exit_code=code, seconds=time.monotonic() - began)

    def _result(self, message: dict[str, Any], began: float) -> CallResult:
        trusted, seconds = self._host.trusted_only, time.monotonic() - began
        if "raised" not in message:
            return CallResult(value=message["value"], seconds=seconds, trusted_only=trusted)
        # Nothing of a candidate is learned where an endpoint was down.
        fault = Fault.AGENT if fault_of_raised(message) is Fault.AGENT else Fault.SANDBOX
        failure = Failure(fault, message["raised"], message["message"])
        return CallResult(failure=failure, seconds=seconds, trusted_only=trusted)

    async def _piece(
        self, name: str, args: list[Json], kwargs: dict[str, Json], state: dict[str, Json] | None
    ) -> dict[str, Json]:
        """The answer of a function that evolves, called in the sandbox; once more for each answer from outside.

        Args:
            state: of the object whose method it is; None for a function.
        """
        session, loan = self._pieces.get(name) or await self._opened(name)
        if not loan.through:
            return loan.taken_back(_piece_answer(name, await session.call([args, kwargs, {}, state])), state)
        known: dict[str, str] = {}
        while True:
            result = await session.call([args, kwargs, {}, known, state])
            asks = result.value["asks"] if result.failure is None and "asks" in result.value else None
            if asks is None:
                answer = (
                    result if result.failure is not None else replace(result, value=result.value["value"])
                )
                return loan.taken_back(_piece_answer(name, answer), state)
            if len(known) == MOST_ASKED:
                return {
                    "raised": "RuntimeError",
                    "message": f"{name} asks outside more than {MOST_ASKED} times",
                }
            helper, given, named = json.loads(asks)
            if helper not in loan.helpers:
                return {
                    "raised": "RuntimeError",
                    "message": f"{name} asks for {helper!r:.80}, which it is not lent",
                }
            if refusal := loan.helpers[helper].refusal(given, named):
                return {"raised": "RuntimeError", "message": f"{name}: {refusal}"}
            assert self._process is not None  # it is what waits for this answer
            known[asks] = json.dumps(await self._process.helper(helper, given, named, asked=self._piece))

    async def _opened(self, name: str) -> tuple[ProgramSession, Loan]:
        agent = self._host.agent
        target = agent.target(name, [])
        loan = lent(target.build(self._program), target.entry, agent.trees)
        called = LENDING if loan.through else RUNNER
        crossed = {f"{crossing.RUNNER}.py": crossing.runner(called, through=loan.through)}
        entry = f"{crossing.RUNNER}:call"
        opened = self._host.pool.open({**staged(loan.files, target.entry), **crossed}, entry)
        self._pieces[name] = await self._stack.enter_async_context(opened), loan
        return self._pieces[name]

    def _placed(self) -> AgentProcess:
        """The process of this candidate, in a copy of the repository of its own."""
        self._folder = tempfile.TemporaryDirectory(prefix="whet-agent-")
        folder = Path(self._folder.name)
        copies = self._host.copies
        copies.write(folder, self._changed)
        self._process = AgentProcess(
            self._target.entry, folder, copies.environment(folder), zygote=self._host.zygote
        )
        return self._process

    def end(self) -> None:
        """End the process with all that it started, and remove its copy."""
        self._pieces.clear()  # a session that was cancelled in the middle of a call answers no more
        if self._process is not None:
            self._process.end()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def placed(agent: RepositoryAgent, program: Program, *, as_came: bool = False) -> dict[str, str]:
    """Path → text of the files that change in a copy in which the agent runs outside.

    Args:
        as_came: functions that did not change run there as they came.

    Raises:
        InputError: a candidate that would run code outside, or whose values cannot cross.
    """
    parts = dict(program.parts)
    for piece in agent.pieces:
        if piece.code:
            asking = _outside(piece, parts[piece.part])
            if parts[piece.part] != piece.text or not as_came:
                parts[piece.part] = asking
    return replaced(agent.pieces, Program(parts, program.main), agent.repository.text)


def _outside(piece: Piece, text: str) -> str:
    """The code outside in the place of a piece: a literal, or a function that asks the sandbox."""
    name = piece.mark.name
    try:
        tree = module_of(text)
        node, _ = definition(tree, piece.mark.qualname)
    except SyntaxError as error:
        raise InputError(f"{name} is not valid Python any more: {error}") from error
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        try:
            ast.literal_eval(node.value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise InputError(
                f"{name} is not a literal: of an agent that keeps its network only literals, texts and functions "
                "evolve, because all else would run outside of the sandbox"
            ) from None
        if len(module_of(text).body) != 1:
            raise InputError(
                f"{name}: nothing may be added beside a constant that is used outside of the sandbox"
            )
        return text
    if not isinstance(node, FunctionNode):
        raise InputError(f"{name} cannot be called from outside of the sandbox")
    method = "." in piece.mark.qualname
    if method and (isinstance(node, ast.AsyncFunctionDef) or not is_method(node)):
        raise InputError(
            f"{name} is no plain method of an object: of a class those evolve whose first parameter is `self`, without "
            "a decorator, and that nothing awaits"
        )
    if any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(node)):
        raise InputError(f"{name} yields, and what it yields cannot cross one by one: let it return a list")
    asked = asking(node, name, "whet_pieces", method=method)
    if not method:
        return ast.unparse(asked) + "\n"
    node.body = asked.body
    return ast.unparse(tree) + "\n"


def _piece_answer(name: str, result: CallResult) -> dict[str, Json]:
    if result.failure is None:
        return {"value": result.value}
    return {"raised": result.failure.type, "message": f"{name}: {result.failure.message}"}


def _key(target: CallTarget, program: Program, args: Sequence[Json]) -> str:
    return digest([target.name, program.id, list(args)])
