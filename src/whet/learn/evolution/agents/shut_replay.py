"""An agent's folder run again on recorded runs by a process that is shut in: no effect of it can reach anything.

Nothing of the agent has to be marked.  A function whose name is that of a recorded tool is answered from the record; a
function that a proposer wrote runs in the sandbox, as in a search; all else is the owner's own code, which reaches
nothing but its model (`sandbox/shut.py`).  A run whose tools cannot be found by their names, or that calls what was
never recorded, is left out.
"""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ....errors import InputError
from ....judge.agent_env import ModelCalls
from ....judge.replay import ReplayAttempt, Replayed, replayed
from ....python_text import module_of
from ....record.store.releases import PROGRAM
from ....record.tools import bare
from ....record.tracing.encode import freeze
from ....record.tracing.join import with_calls
from ....record.tracing.replay import Diverged, Divergence, Replay, ReplayCounts
from ....record.tracing.tool_calls import Shape, tool_calls
from ....repository.files import SKIPPED
from ....repository.syntax import FunctionNode
from ....sandbox import Pool, ProgramSession
from ....types import Bundle, Failure, Fault, Json, Trajectory
from ...datasets.callee import RUNNER, staged
from ...datasets.recorded import asked_by, instruction_arguments
from .agent import RepositoryAgent, holds_values
from .agent_line import AgentProcess, AgentProcessEnded, fault_of_raised
from .lending import RUNNER as LENDING
from .lending import Loan, lent
from .networked import placed

_RECORDED = "recorded:"
"""Prefix of the name under which a tool's function asks."""
_MARK = '__import__("whet_recorded").tool({name!r})'
_STAND_IN = '''"""Asks for what a tool answered when it was recorded."""
import functools
import inspect


def tool(name):
    def mark(function):
        signature = inspect.signature(function)

        def named(args, kwargs):
            given = dict(signature.bind(*args, **kwargs).arguments)
            for parameter in signature.parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:
                    given.update(given.pop(parameter.name, {}))
            return {key: value for key, value in given.items() if key not in ("self", "cls")}

        pieces = __import__("whet_pieces")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args, **kwargs):
                return await pieces.later("recorded:" + name, (named(args, kwargs),), {})

            return later

        @functools.wraps(function)
        def now(*args, **kwargs):
            return pieces.ask("recorded:" + name, (named(args, kwargs),), {})

        return now

    return mark
'''
_UNREACHABLE = frozenset(
    ("OSError", "URLError", "ConnectionError", "ConnectionRefusedError", "gaierror", "PermissionError")
)
"""What a function raises in the sandbox that wanted the network: it says nothing of the function."""


class ShutReplay:
    """An agent's folder, ready to run recorded runs again; use it as an async context manager.

    Args:
        folder: the agent's.
        entry: `module:function`.
        bundle: what it runs under: its functions of a program are a proposer's, and run in the sandbox.
        recorded: the runs that are run again: their tools are answered.
        port: of the gateway on this machine, that the environment names.
        calls: the gateway's model calls since it was asked last.
        divergence: what a call gets that was not recorded: `exclude`, or a simulator.
        seconds: that one run may take.

    Raises:
        InputError: the entry, or a function of the Bundle, cannot be found in the folder or called.
    """

    def __init__(
        self,
        folder: Path,
        entry: str,
        bundle: Bundle,
        recorded: Sequence[Trajectory],
        *,
        port: int,
        calls: ModelCalls,
        divergence: Divergence = "exclude",
        seconds: float = 120.0,
    ) -> None:
        self._bundle, self._port = bundle, port
        self._calls, self._divergence, self._seconds = calls, divergence, seconds
        names = [name for resource in bundle if (name := _function(folder, bundle, resource))]
        self._agent = RepositoryAgent(folder, names, entry, network=True)
        assert self._agent.entry is not None
        self._callee = self._agent.callees[self._agent.entry]
        changed = {(piece.mark.path, piece.mark.qualname) for piece in self._agent.pieces}
        tools = {bare(call.name) for run in recorded for call in tool_calls(run) if call.name}
        self._tools = _tools_of(self._agent, changed, tools - {bare(self._callee.entry.partition(":")[2])})
        self._rewritten = {bare(qualname) for _, qualname in changed}
        # One for each: its session holds it until the end, and a further one would wait for ever.
        self._pool = Pool(workers=max(1, len(self._agent.pieces)))
        self._stack = AsyncExitStack()
        self._pieces: dict[str, tuple[ProgramSession, Loan]] = {}
        self._place = tempfile.TemporaryDirectory(prefix="whet-shadow-")
        self._process: AgentProcess | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        await self._stack.aclose()
        self._pool.close()
        self._place.cleanup()

    async def replay(self, run: Trajectory) -> Replayed:
        """The run again; its counts say where it left the record."""
        counts = ReplayCounts()
        asked = {bare(call.name) for call in tool_calls(run) if call.name}
        unknown = sorted(asked - self._tools.keys() - self._rewritten)
        if unknown:
            counts.diverged.append(f"{', '.join(unknown)}: no function of the agent has that name")
            return replayed(run, ReplayAttempt(counts))
        try:
            given = instruction_arguments(self._callee.signature, run.task.instruction)
            person = run.subject or run.session or run.id
            arguments = self._callee.signature.arguments(asked_by(self._callee.signature, given, person))
        except InputError as error:
            counts.diverged.append(str(error))
            return replayed(run, ReplayAttempt(counts))
        return replayed(run, await self._attempt(run, arguments))

    async def _attempt(self, run: Trajectory, arguments: Any) -> ReplayAttempt:
        positional, keywords, made = arguments
        replay, output, failure = Replay(run, divergence=self._divergence), None, None
        self._calls()  # those of a run that was broken off are nobody's
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                process = self._process or self._started()
                message = await process.call(positional, keywords, made, asked=self._asked(replay))
            if "raised" in message:
                failure = Failure(fault_of_raised(message), message["raised"], message["message"])
            else:
                output = message["value"]
        except TimeoutError:
            self._end()
            failure = Failure(Fault.AGENT, "Timeout", f"no answer within {self._seconds:g} s")
        except AgentProcessEnded as ended:
            self._end()
            failure = Failure(Fault.AGENT, "Ended", str(ended))
        if failure is not None and failure.fault is not Fault.AGENT:
            # Its model was down, or it wanted what it cannot reach here: neither is the candidate's doing.
            replay.counts.diverged.append(f"{failure.type}: {failure.message}"[:200])
        return ReplayAttempt(
            replay.counts,
            output,
            failure=failure,
            seconds=time.monotonic() - began,
            steps=with_calls((), self._calls()),
            versions=self._bundle.ids,
        )

    def _asked(self, replay: Replay) -> Callable[..., Any]:
        async def answer(
            name: str, args: list[Json], kwargs: dict[str, Json], state: dict[str, Json] | None
        ) -> dict[str, Json]:
            if not name.startswith(_RECORDED):
                return await self._piece(replay, name, args, kwargs, state)
            tool = name.removeprefix(_RECORDED)
            try:
                return {"value": freeze(replay.answer(tool, args[0], "idempotent", self._tools[tool]))}
            except Diverged as left:
                return {"raised": "RuntimeError", "message": str(left)}
            except Exception as error:  # as it was recorded, of whatever type
                return {"raised": type(error).__name__, "message": str(error)}

        return answer

    async def _piece(
        self,
        replay: Replay,
        name: str,
        args: list[Json],
        kwargs: dict[str, Json],
        state: dict[str, Json] | None,
    ) -> dict[str, Json]:
        """The answer of a function that a proposer wrote, called in the sandbox.

        Args:
            state: of the object whose method it is; None for a function.
        """
        session, loan = self._pieces.get(name) or await self._opened(name)
        result = await session.call([args, kwargs, {}, *([{}] if loan.through else []), state])
        if loan.through and result.failure is None:
            if "asks" in result.value:
                replay.counts.diverged.append(f"{name} asks a service, which a shadow cannot")
                return {"raised": "RuntimeError", "message": f"{name} asks {result.value['asks']:.80}"}
            return loan.taken_back({"value": result.value["value"]}, state)
        if result.failure is None:
            return loan.taken_back({"value": result.value}, state)
        if result.failure.type in _UNREACHABLE:
            replay.counts.diverged.append(f"{name} asks a service, which a shadow cannot")
        return {"raised": result.failure.type, "message": f"{name}: {result.failure.message}"}

    async def _opened(self, name: str) -> tuple[ProgramSession, Loan]:
        """A function in the sandbox, and what it is lent."""
        target = self._agent.target(name, [])
        loan = lent(target.build(self._agent.start), target.entry, self._agent.trees)
        files = staged(loan.files, target.entry)
        opened = self._pool.open(files, f"{LENDING if loan.through else RUNNER}:call")
        self._pieces[name] = await self._stack.enter_async_context(opened), loan
        return self._pieces[name]

    def _started(self) -> AgentProcess:
        """The agent's process, in a copy of the folder in which its tools ask for what was recorded."""
        root, folder = self._agent.repository.root, Path(self._place.name, "agent")
        if not folder.exists():
            skipped = shutil.ignore_patterns(*SKIPPED, ".git", ".venv", "*.db*")
            shutil.copytree(root, folder, ignore=skipped)
            changed = placed(self._agent, self._agent.start) if self._agent.pieces else {}
            for path, text in changed.items():
                (folder / path).write_text(text, encoding="utf-8")
            # Several of one file: the names in it.
            rewritten: dict[str, set[str]] = {}
            for piece in self._agent.pieces:
                rewritten.setdefault(piece.mark.path, set()).add(bare(piece.mark.qualname))
            for file in folder.rglob("*.py"):
                relative = file.relative_to(folder).as_posix()
                own = rewritten.get(relative, set())
                before = file.read_text(encoding="utf-8")
                if (text := _marked(before, self._tools, own)) != before:
                    file.write_text(text, encoding="utf-8")
            (folder / "whet_recorded.py").write_text(_STAND_IN, encoding="utf-8")
        base = self._agent.repository.base(root / self._agent.entry_path).relative_to(root)
        outside = {name: text for name, text in os.environ.items() if name not in _OURS}
        places = dict.fromkeys(["/".join(("/tmp/agent", *each)) for each in (base.parts, (), ("src",))])
        outside["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
        outside["TMPDIR"] = "/tmp"
        self._process = AgentProcess(self._callee.entry, folder, outside, port=self._port)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


_OURS = frozenset({"WHET_BUNDLE", "WHET_STORE", "WHET_URL", "WHET_TOKEN", "WHET_RUN", "WHET_DEPLOYED"})
"""Variables by which a released text would stand in the place of the candidate's, and its calls be production."""


def _function(folder: Path, bundle: Bundle, resource: str) -> str:
    """The target of a resource that is a function of the folder's source, as module:function; "" of all else."""
    version = bundle[resource]
    if version.kind != PROGRAM or not isinstance(version.content, str) or holds_values(Path(resource)):
        return ""
    parts = resource.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        inside = Path(*parts[:cut])
        for base in (folder, folder / "src"):
            if any((base / each).is_file() for each in (inside.with_suffix(".py"), inside / "__init__.py")):
                qualname = ".".join(parts[cut:])
                return f"{'.'.join(parts[:cut])}:{qualname}" if _defines(version.content, qualname) else ""
    return ""


def _defines(text: str, qualname: str) -> bool:
    """True if a piece's text is a function, and no constant."""
    try:
        tree = module_of(text)
    except SyntaxError:
        return False
    return any(isinstance(node, FunctionNode) and node.name == bare(qualname) for node in ast.walk(tree))


def _tools_of(
    agent: RepositoryAgent, changed: Collection[tuple[str, str]], tools: Collection[str]
) -> dict[str, Shape]:
    """Name → shape of each function that has a tool's name and that nobody rewrote."""
    shapes: dict[str, Shape] = {}
    for path, text in agent.texts().items():
        try:
            tree = module_of(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, FunctionNode) and node.name in tools and (path, node.name) not in changed:
                shapes.setdefault(node.name, _shape(node))
    return shapes


def _shape(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Shape:
    names = [
        each.arg
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if each.arg not in ("self", "cls")
    ]
    returns = "" if node.returns is None else ast.unparse(node.returns)
    if not returns:
        # Of a text that is JSON nobody else can tell whether the tool wrote it, or the agent made it of a dict.
        values = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value]
        plain = [value for value in values if isinstance(value, ast.Constant | ast.JoinedStr)]
        dumped = [
            value for value in values if isinstance(value, ast.Call) and "dumps" in ast.unparse(value.func)
        ]
        returns = "str" if plain or dumped else ""
    return Shape(tuple(names), None, returns.partition("[")[0].rpartition(".")[2].strip("'\""))


def _marked(text: str, tools: Mapping[str, Shape], rewritten: Collection[str]) -> str:
    """A module in which the functions of tools ask for what was recorded."""
    try:
        tree = module_of(text)
    except SyntaxError:
        return text
    lines = text.splitlines(keepends=True)
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode) and node.name in tools and node.name not in rewritten
    ]
    for node in sorted(nodes, key=lambda node: -node.lineno):
        indent = lines[node.lineno - 1][: node.col_offset]
        lines.insert(node.lineno - 1, f"{indent}@{_MARK.format(name=node.name)}\n")
    return "".join(lines)
