"""What a repository of somebody's agent holds: framework, entry points, prompts, tools.

Everything is read from the syntax trees; nothing of the repository is imported or run.  It finds what is
written down, and does not follow values: an agent that is put together from strings is not seen.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError

SKIPPED = frozenset(
    ("node_modules", "site-packages", "__pycache__", "build", "dist", "venv", "env", "tests", "test")
)
"""Folders that hold nobody's agent; hidden ones are skipped as well."""
LARGEST = 2_000_000
"""Bytes of a source file that is still read: what is larger was generated."""

FRAMEWORKS: Mapping[str, str] = {
    "langgraph": "LangGraph",
    "crewai": "CrewAI",
    "autogen_agentchat": "AutoGen",
    "smolagents": "smolagents",
    "pydantic_ai": "PydanticAI",
    "agents": "OpenAI Agents",
    "agent_framework": "Microsoft Agent Framework",
    "langchain": "LangChain",
    "langchain_openai": "LangChain",
    "openai": "OpenAI",
    "anthropic": "Anthropic",
}
"""Imported package → framework; the most specific first, because each of these is built on a later one."""

_RUNS = frozenset(("invoke", "ainvoke", "stream", "astream", "run", "run_sync", "run_stream", "arun"))
_RUNS |= {"kickoff", "kickoff_async", "akickoff", "initiate_chat", "create", "parse", "generate_reply"}
"""Methods by which frameworks run an agent or call a model."""
_MODEL_CALLS = frozenset(("completions", "responses", "messages"))
"""What stands before `.create` in a call of a model."""
_TOOL_MARKS = frozenset(("tool", "function_tool", "tool_plain", "ai_function", "kernel_function"))
_AGENTS = frozenset(
    ("Agent", "AssistantAgent", "CodeAgent", "ToolCallingAgent", "ConversableAgent", "ChatAgent")
)
_AGENTS |= {"Task", "Crew", "create_agent", "create_react_agent", "ChatPromptTemplate", "SystemMessage"}
"""Constructors to which prompts are given."""
_RECORDS = frozenset(("trace", "run", "attach"))
"""What a program takes from whet to be recorded."""
_PROMPT_WORDS = ("prompt", "instruction", "system_message", "backstory", "goal", "persona", "template")
_SHORTEST = 20
"""Characters from which a text can be a prompt."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A function that stands above all that runs the agent: one call is one run."""

    path: str
    name: str
    line: int
    """Of the `def`, or of its first decorator."""
    parameters: tuple[str, ...]
    is_async: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that steers the agent."""

    path: str
    name: str
    line: int
    text: str
    at_import: bool
    """It is handed to an agent when its module is imported: a candidate prompt could not reach it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call."""

    path: str
    name: str
    line: int


@dataclass(slots=True)
class Repository:
    """What was found; paths are relative to `root`, with forward slashes."""

    root: Path
    files: int = 0
    frameworks: dict[str, str] = field(default_factory=dict)
    """Imported package → framework."""
    entry_points: list[EntryPoint] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Files that are no Python, with the reason."""
    wired: str = ""
    """The first file that records with whet already; one that imports something else of it, a fake or a type,
    does not."""

    @property
    def framework(self) -> str | None:
        """The most specific framework, None where none is used."""
        for package, name in FRAMEWORKS.items():
            if package in self.frameworks:
                return name
        return None


def scan(root: Path | str) -> Repository:
    """Read every Python file under `root`.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder. Name the root of the repository.")
    found = Repository(folder)
    for path in _sources(folder):
        found.files += 1
        name = path.relative_to(folder).as_posix()
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError(f"larger than {LARGEST:,} bytes")
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            found.unread.append(f"{name}: {error}")
            continue
        _Module(found, name, tree).read()
    return found


def _sources(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            one
            for one in folders
            if not one.startswith(".")
            and one not in SKIPPED
            and not os.path.exists(os.path.join(parent, one, "pyvenv.cfg"))
        )
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith("test_") and name != "conftest.py":
                yield Path(parent, name)


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_READ = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Call,
    ast.Dict,
    ast.keyword,
    ast.Import,
    ast.ImportFrom,
)
"""Nodes that say something.  They are gathered once: a walk over a tree is most of what reading a file costs."""


class _Module:
    """One file on its way into the Repository."""

    def __init__(self, found: Repository, path: str, tree: ast.Module) -> None:
        self._found, self._path, self._tree = found, path, tree
        self._nodes = [node for node in ast.walk(tree) if isinstance(node, _READ)]
        self._functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
        self._texts: dict[str, ast.Constant] = {}

    def read(self) -> None:
        packages = set(_imported(self._nodes))
        if "whet" in packages and not self._found.wired and _records(self._tree):
            self._found.wired = self._path
        used = {name: FRAMEWORKS[name] for name in FRAMEWORKS if name in packages}
        self._found.frameworks |= used
        self._tools()
        self._prompts()
        if used or self._calls_a_model(self._nodes):
            self._entries()

    def _tools(self) -> None:
        listed = {
            element.id
            for node in self._nodes
            if isinstance(node, ast.keyword)
            and node.arg in ("tools", "functions")
            and isinstance(node.value, ast.List | ast.Tuple)
            for element in node.value.elts
            if isinstance(element, ast.Name)
        }
        # `{"type": "function", "function": {"name": "lookup", ...}}`: a description, and the function beside it.
        listed |= {name for node in self._nodes if (name := _described(node)) is not None}
        for node in self._nodes:
            if isinstance(node, _Function) and (
                node.name in listed or any(_last(mark) in _TOOL_MARKS for mark in node.decorator_list)
            ):
                self._found.tools.append(Tool(self._path, node.name, node.lineno))
        for one in self._tree.body:
            if isinstance(one, ast.ClassDef) and any(
                _last(base) in ("Tool", "BaseTool") for base in one.bases
            ):
                self._found.tools.append(Tool(self._path, one.name, one.lineno))

    def _prompts(self) -> None:
        for one in self._tree.body:
            if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(one.value, ast.Constant):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                for target in targets:
                    if isinstance(target, ast.Name) and isinstance(one.value.value, str):
                        self._texts[target.id] = one.value
        at_import = {
            id(inner) for top in self._tree.body if not isinstance(top, _Function) for inner in _executed(top)
        }
        handed: set[str] = set()
        for node in self._nodes:
            if isinstance(node, ast.Call) and _last(node.func) in _AGENTS:
                early = id(node) in at_import
                for name, value in _arguments(node):
                    handed |= self._prompt(name, value, early)
            elif isinstance(node, ast.Dict):
                handed |= self._message(node)
        for name, constant in self._texts.items():
            if name not in handed and _is_prompt(name, str(constant.value)):
                self._add(name, constant, False)

    def _prompt(self, name: str, value: ast.expr, early: bool) -> set[str]:
        """A text or the name of one, given to an agent; returns the names that are dealt with."""
        if isinstance(value, ast.Name) and value.id in self._texts:
            constant = self._texts[value.id]
            if _is_prompt(name, str(constant.value)) or _is_prompt(value.id, str(constant.value)):
                self._add(value.id, constant, early)
                return {value.id}
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and _is_prompt(name, value.value):
            self._add(name, value, early)
        return set()

    def _message(self, node: ast.Dict) -> set[str]:
        """`{"role": "system", "content": ...}` as the model APIs take it; returns the names that are dealt with."""
        pairs = _entries_of(node)
        role, content = pairs.get("role"), pairs.get("content")
        if not (isinstance(role, ast.Constant) and role.value in ("system", "developer")):
            return set()
        if isinstance(content, ast.Constant) and isinstance(content.value, str):
            self._add("system", content, False)
        elif isinstance(content, ast.Name) and content.id in self._texts:
            self._add(content.id, self._texts[content.id], False)
            return {content.id}
        return set()

    def _add(self, name: str, constant: ast.Constant, early: bool) -> None:
        prompt = Prompt(self._path, name, constant.lineno, str(constant.value), early)
        known = [
            one
            for one in self._found.prompts
            if (one.path, one.line, one.text) == (prompt.path, prompt.line, prompt.text)
        ]
        if not known:
            self._found.prompts.append(prompt)
        elif early and not known[0].at_import:
            self._found.prompts[self._found.prompts.index(known[0])] = prompt

    def _entries(self) -> None:
        """Functions that run the agent, directly or through others of this module, and that no such one calls."""
        tools = {one.name for one in self._found.tools if one.path == self._path}
        calls = {name: _called(node) for name, node in self._functions.items()}
        runs = {name for name, node in self._functions.items() if self._calls_a_model(ast.walk(node))}
        while more := {name for name, inner in calls.items() if inner & runs} - runs:
            runs |= more
        runs -= tools
        # `main()` reads the command line and prints: the run is what it calls, if that takes something.
        tops = {name for name in runs if not any(name in calls[other] for other in runs - {name})}
        for name in sorted(tops, key=lambda name: self._functions[name].lineno):
            for chosen in self._below(name, calls, runs):
                node = self._functions[chosen]
                line = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                entry = EntryPoint(
                    self._path, chosen, line, tuple(_parameters(node)), isinstance(node, ast.AsyncFunctionDef)
                )
                if entry not in self._found.entry_points:
                    self._found.entry_points.append(entry)

    def _below(self, name: str, calls: Mapping[str, set[str]], runs: set[str]) -> Sequence[str]:
        if _parameters(self._functions[name]):
            return [name]
        inside = [
            inner for inner in sorted(calls[name] & runs - {name}) if _parameters(self._functions[inner])
        ]
        return inside or [name]

    def _calls_a_model(self, nodes: Iterable[ast.AST]) -> bool:
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in ("create", "parse", "stream"):
                above = node.func.value
                if isinstance(above, ast.Attribute) and above.attr in _MODEL_CALLS:
                    return True
            elif node.func.attr in _RUNS and _last(node.func.value) not in (
                "asyncio",
                "subprocess",
                "uvicorn",
                "app",
            ):
                return True
        return False


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _records(tree: ast.Module) -> bool:
    """Whether a module marks a function or opens a run: `whet.trace`, or `from whet import trace`."""
    whet, taken = {"whet"}, set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            whet |= {one.asname for one in node.names if one.name == "whet" and one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "whet" and not node.level:
            taken |= {one.name for one in node.names}
    if taken & _RECORDS:
        return True
    return any(
        isinstance(node, ast.Attribute) and node.attr in _RECORDS and _last(node.value) in whet
        for node in ast.walk(tree)
    )


def _entries_of(node: ast.Dict) -> dict[object, ast.expr]:
    """What a dictionary display says of its literal keys."""
    return {
        key.value: value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
    }


def _described(node: ast.AST) -> str | None:
    """The function that a dictionary describes to a model as a tool, in any of the APIs' forms."""
    if not isinstance(node, ast.Dict):
        return None
    pairs = _entries_of(node)
    name = pairs.get("name")
    if isinstance(name, ast.Constant) and {"parameters", "input_schema"} & pairs.keys():
        return str(name.value)
    return None


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the module is imported: not the bodies of functions, nor of the `__main__` block."""
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, _Function | ast.Lambda):
            yield from _executed(inner)


def _called(node: ast.AST) -> set[str]:
    return {
        inner.func.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
    }


def _parameters(node: _Function) -> list[str]:
    names = [one.arg for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    return [name for name in names if name not in ("self", "cls")]


def _arguments(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for one in call.args:
        yield "", one
    for keyword in call.keywords:
        if keyword.arg:
            yield keyword.arg, keyword.value


def _is_prompt(name: str, text: str) -> bool:
    return len(text) >= _SHORTEST and any(word in name.lower() for word in _PROMPT_WORDS)


def _last(node: ast.expr) -> str:
    """The last part of a dotted name, whether it is called or not."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
