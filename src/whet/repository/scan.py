"""The framework, entry points, prompts and tools of an agent's repository.

Everything is read from the syntax trees; nothing of the repository is imported or run.  Values are not followed, but
for the address of a model's API and a body that is sent there: an agent put together from strings is not seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .files import is_test
from .modules import Module, Repository
from .syntax import FunctionNode, defines, definitions, dotted, last_name, literal_keys, parameters, string

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
_OTHER_RUNS = frozenset(("asyncio", "subprocess", "uvicorn", "app", "whet"))
"""Owners of a `run` that is no agent's."""
_MODEL_CALLS = frozenset(("completions", "responses", "messages"))
"""The attribute before `.create` in a call of a model."""
_CLIENT_CALLS = frozenset(("chat_completion", "generate_content", "generate_content_stream"))
"""Calls of a model by clients that name them otherwise."""
_SENDS = frozenset(("post", "request", "stream", "send", "urlopen", "Request", "fetch"))
"""Calls by which a program sends a request over HTTP."""
_API = re.compile(
    r"\bchat/completions\b|\bv1/(?:completions|messages|responses)\b|\bapi/(?:chat|generate)\b|:(?:stream)?[gG]enerateContent\b"
)
"""Paths of the APIs of models; `messages` alone is many another service's."""
_SAID = frozenset(("messages", "input", "prompt", "contents"))
"""Keys that a request to a model has beside `model`."""
_TOOL_MARKS = frozenset(("tool", "function_tool", "tool_plain", "ai_function", "kernel_function"))
_AGENTS = frozenset(
    ("Agent", "AssistantAgent", "CodeAgent", "ToolCallingAgent", "ConversableAgent", "ChatAgent")
)
_AGENTS |= {"Task", "Crew", "create_agent", "create_react_agent", "ChatPromptTemplate", "SystemMessage"}
_AGENTS |= {"GenerateContentConfig"}
"""Constructors that take prompts."""
_RECORDS = frozenset(("trace", "attach"))
"""Names of whet by which an agent is recorded; `run` alone gives the calls of one that is a handle."""
_PROMPT_WORDS = ("prompt", "instruction", "system_message", "backstory", "goal", "persona", "template")
_SHORTEST = 20
"""Characters; a shorter text is not taken for a prompt."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A function or method that stands above all that runs the agent: one call is one run."""

    path: str
    name: str
    """Of a method with its class: `Desk.answer`."""
    line: int
    """Of the `def`: what stands above it, a route's decorator for instance, must get the traced function."""
    parameters: tuple[str, ...]
    is_async: bool = False
    indent: int = 0
    """Columns before the `def`."""


@dataclass(frozen=True, slots=True)
class PromptLiteral:
    """A text that steers the agent."""

    path: str
    name: str
    line: int
    text: str
    at_import: bool
    """It is handed to an agent when its module is imported: a candidate prompt could not reach it."""
    declared: bool = False
    """It is the default of a `whet.resource`, which its owners declared to be improved."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call."""

    path: str
    name: str
    line: int


@dataclass(slots=True)
class Scan:
    """An agent's repository as far as it can be read; paths are relative to `root`, with forward slashes."""

    root: Path
    files: int = 0
    frameworks: dict[str, str] = field(default_factory=dict)
    """Imported package → framework."""
    entry_points: list[EntryPoint] = field(default_factory=list)
    prompts: list[PromptLiteral] = field(default_factory=list)
    texts: list[PromptLiteral] = field(default_factory=list)
    """Constants of modules and classes, whatever they are called: if one steers the agent, what was recorded tells."""
    tools: list[Tool] = field(default_factory=list)
    asking: set[tuple[str, str]] = field(default_factory=set)
    """Path and name of each function and method that calls a model, or something beside it that does."""
    unread: list[str] = field(default_factory=list)
    """Files that could not be read as Python, with the reason."""
    wired: str = ""
    """The first file that records with whet already; a file that imports a fake or a type of it does not."""
    caller: str = ""
    """The first file that opens runs of whet around an agent that stands elsewhere."""

    @property
    def framework(self) -> str | None:
        """The most specific framework, None where none is used."""
        return next((name for package, name in FRAMEWORKS.items() if package in self.frameworks), None)


def scan(root: Path | str) -> Scan:
    """Read every Python file of the repository's own, apart from its tests.

    Raises:
        InputError: there is no such folder.
    """
    repository = Repository(Path(root))
    result = Scan(repository.root)
    for path in repository.paths:
        # Relative: the repository may itself lie in a folder called tests.
        if path.suffix == ".py" and not is_test(path.relative_to(repository.root)):
            result.files += 1
            # Read and dropped one by one: the trees of a large repository together slow every later parse down.
            module = repository.read(path)
            if module is not None:
                _Reader(result, module).read()
    result.unread = [f"{path}: {reason}" for path, reason in repository.problems.items()]
    return result


_DEFERRED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_READ = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Call,
    ast.Dict,
    ast.keyword,
    ast.Import,
    ast.ImportFrom,
)


class _Reader:
    """Adds one module to a Scan."""

    def __init__(self, result: Scan, module: Module) -> None:
        self._scan, self._path = result, module.path.as_posix()
        # One node in five: the loops below save more than the filter costs.
        self._nodes = [node for node in module.nodes if isinstance(node, _READ)]
        self._module, self._body = module, module.tree.body
        self._functions = {node.name: node for node in self._body if isinstance(node, FunctionNode)}
        self._texts: dict[str, ast.Constant] = {}
        self._addresses = frozenset(_addresses(module.nodes))

    def read(self) -> None:
        packages = set(_imported(self._nodes))
        if "whet" in packages and not self._scan.wired and self._records():
            self._scan.wired = self._path
        if "whet" in packages and not self._scan.caller and self._names("run"):
            self._scan.caller = self._path
        used = {name: FRAMEWORKS[name] for name in FRAMEWORKS if name in packages}
        self._scan.frameworks |= used
        self._tools()
        self._prompts()
        if used or self._calls_a_model(self._nodes):
            self._entries()

    def _records(self) -> bool:
        """True if the module marks a function or attaches to whet: `whet.trace`, or `from whet import trace`."""
        return self._names(*_RECORDS)

    def _names(self, *whets: str) -> bool:
        """True if the module uses one of these names of whet."""
        names = {name for each in whets for name in self._module.names_of_whet(each)}
        return any("." not in name for name in names) or any(
            isinstance(node, ast.Attribute) and dotted(node) in names for node in self._module.nodes
        )

    def _tools(self) -> None:
        listed: set[str | None] = set()
        for node in self._nodes:
            if isinstance(node, ast.keyword) and node.arg in ("tools", "functions"):
                if isinstance(node.value, ast.List | ast.Tuple):
                    listed |= {member.id for member in node.value.elts if isinstance(member, ast.Name)}
            elif isinstance(node, ast.Dict):
                # `{"name": "lookup", "parameters": ...}`: a description, and the function beside it.
                schema = literal_keys(node)
                if {"parameters", "input_schema"} & schema.keys():
                    listed.add(string(schema.get("name")))
        for node in self._nodes:
            if isinstance(node, FunctionNode) and (
                node.name in listed or any(last_name(mark) in _TOOL_MARKS for mark in node.decorator_list)
            ):
                self._scan.tools.append(Tool(self._path, node.name, node.lineno))
        for statement in self._body:
            if isinstance(statement, ast.ClassDef) and any(
                last_name(base) in ("Tool", "BaseTool") for base in statement.bases
            ):
                self._scan.tools.append(Tool(self._path, statement.name, statement.lineno))

    def _prompts(self) -> None:
        for statement in self._body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                value = statement.value
                if isinstance(value, ast.Constant) and string(value) is not None:
                    self._texts |= dict.fromkeys(defines(statement), value)
        at_import = {
            id(inner) for top in self._body if not isinstance(top, FunctionNode) for inner in _executed(top)
        }
        used: set[str] = set()
        for node in self._nodes:
            if isinstance(node, ast.Call) and last_name(node.func) in _AGENTS:
                early = id(node) in at_import
                for name, argument in _arguments(node):
                    used |= self._prompt(name, argument, early)
            elif isinstance(node, ast.Dict):
                used |= self._message(node)
        for name, constant in self._texts.items():
            text = str(constant.value)
            if name not in used and _is_prompt(name, text):
                self._add(name, constant, False)
            if len(text) >= _SHORTEST:
                self._scan.texts.append(PromptLiteral(self._path, name, constant.lineno, text, False))
        for name, constant in self._attributes():
            self._scan.texts.append(
                PromptLiteral(self._path, name, constant.lineno, str(constant.value), False)
            )
        for name, constant in self._declared():
            text = str(constant.value)
            self._scan.texts.append(
                PromptLiteral(self._path, name, constant.lineno, text, False, declared=True)
            )

    def _attributes(self) -> Iterator[tuple[str, ast.Constant]]:
        """Name, as `Persona.role`, → text of each attribute that a class gives a text: of a dataclass its default."""
        for owner in self._body:
            if isinstance(owner, ast.ClassDef):
                for name, node in definitions(owner.body, f"{owner.name}."):
                    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                    if isinstance(value, ast.Constant) and len(string(value) or "") >= _SHORTEST:
                        yield name, value

    def _declared(self) -> Iterator[tuple[str, ast.Constant]]:
        """Name → text of each `whet.resource("name", default="...")`."""
        names = self._module.names_of_whet("resource")
        for node in self._nodes if names else ():
            if isinstance(node, ast.Call) and dotted(node) in names and node.args:
                default = next((word.value for word in node.keywords if word.arg == "default"), None)
                if (name := string(node.args[0])) and isinstance(default, ast.Constant) and string(default):
                    yield name, default

    def _prompt(self, name: str, argument: ast.expr, early: bool) -> set[str]:
        """Add a text, or the constant that holds it, that an agent is made with; returns the constant's name."""
        if isinstance(argument, ast.Name) and argument.id in self._texts:
            constant = self._texts[argument.id]
            if _is_prompt(name, str(constant.value)) or _is_prompt(argument.id, str(constant.value)):
                self._add(argument.id, constant, early)
                return {argument.id}
        if isinstance(argument, ast.Constant) and _is_prompt(name, string(argument) or ""):
            self._add(name, argument, early)
        return set()

    def _message(self, node: ast.Dict) -> set[str]:
        """Add the text of `{"role": "system", "content": ...}`; returns the name of the constant that holds it."""
        message = literal_keys(node)
        content = message.get("content")
        if string(message.get("role")) not in ("system", "developer"):
            return set()
        if isinstance(content, ast.Constant) and string(content) is not None:
            self._add("system", content, False)
        elif isinstance(content, ast.Name) and content.id in self._texts:
            self._add(content.id, self._texts[content.id], False)
            return {content.id}
        return set()

    def _add(self, name: str, constant: ast.Constant, early: bool) -> None:
        prompts = self._scan.prompts
        prompt = PromptLiteral(self._path, name, constant.lineno, str(constant.value), early)
        for index, earlier in enumerate(prompts):
            if (earlier.path, earlier.line, earlier.text) == (prompt.path, prompt.line, prompt.text):
                if early and not earlier.at_import:
                    prompts[index] = prompt
                return
        prompts.append(prompt)

    def _entries(self) -> None:
        """Functions that run the agent, directly or through others of this module, and that no such one calls."""
        tools = {tool.name for tool in self._scan.tools if tool.path == self._path}
        calls = {name: _called(node) for name, node in self._functions.items()}
        methods = self._asking_methods()
        runs = {
            name
            for name, node in self._functions.items()
            if self._calls_a_model(ast.walk(node)) or _methods_called(node) & methods
        }
        # Calls go through several functions: until no further one is known to run the agent.
        while more := {name for name, callees in calls.items() if callees & runs} - runs:
            runs |= more
        self._scan.asking |= {(self._path, name) for name in runs}
        self._scan.asking |= {
            (self._path, f"{owner.name}.{node.name}")
            for owner in self._body
            if isinstance(owner, ast.ClassDef)
            for node in owner.body
            if isinstance(node, FunctionNode) and node.name in methods
        }
        # After the loop: who calls a tool that runs an agent runs one, too, and only the tool is no entry.
        runs -= tools
        # `main()` reads the command line and prints: the run is the function that it calls, if that has parameters.
        tops = {name for name in runs if not any(name in calls[caller] for caller in runs - {name})}
        for top in sorted(tops, key=lambda name: self._functions[name].lineno):
            below = [] if self._parameters(top) else sorted(calls[top] & runs - {top})
            below = [name for name in below if self._parameters(name)]
            if (
                not below
                and not self._parameters(top)
                and self._add_methods(_methods_called(self._functions[top]))
            ):
                continue
            for name in below or [top]:
                self._add_entry(name, self._functions[name])
        if not tops:
            self._add_methods(set(methods))

    def _add_entry(self, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        is_async = isinstance(node, ast.AsyncFunctionDef)
        given = tuple(each.name for each in parameters(node.args) if each.name not in ("self", "cls"))
        entry = EntryPoint(self._path, name, node.lineno, given, is_async, node.col_offset)
        if entry not in self._scan.entry_points:
            self._scan.entry_points.append(entry)

    def _add_methods(self, called: set[str]) -> bool:
        """Add the methods of these names that call a model and that no other such method of their class calls."""
        found = False
        asking = self._asking_methods()
        for owner in self._body:
            if not isinstance(owner, ast.ClassDef):
                continue
            own = {
                node.name: node
                for node in owner.body
                if isinstance(node, FunctionNode) and node.name in asking
            }
            inner = {each for name, node in own.items() for each in _methods_called(node) - {name}}
            for name, node in own.items():
                if name in called - inner and not (name.startswith("_") and name != "__call__"):
                    given = [each.name for each in parameters(node.args) if each.name not in ("self", "cls")]
                    if given:
                        self._add_entry(f"{owner.name}.{name}", node)
                        found = True
        return found

    def _asking_methods(self) -> set[str]:
        """Names of methods of this module's classes that call a model, directly or through others of them."""
        methods = {
            node.name: node
            for owner in self._body
            if isinstance(owner, ast.ClassDef)
            for node in owner.body
            if isinstance(node, FunctionNode)
        }
        asking = {name for name, node in methods.items() if self._calls_a_model(ast.walk(node))}
        while more := {name for name, node in methods.items() if _methods_called(node) & asking} - asking:
            asking |= more
        return asking

    def _calls_a_model(self, nodes: Iterable[ast.AST]) -> bool:
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            if _asks_by_a_client(node) or (
                last_name(node.func) in _SENDS and _sent_to_a_model(node, self._addresses)
            ):
                return True
            if not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if node.func.attr in ("create", "parse", "stream"):
                if isinstance(owner, ast.Attribute) and owner.attr in _MODEL_CALLS:
                    return True
            elif node.func.attr in _RUNS and last_name(owner) not in _OTHER_RUNS:
                return True
        return False

    def _parameters(self, name: str) -> tuple[str, ...]:
        names = (parameter.name for parameter in parameters(self._functions[name].args))
        return tuple(name for name in names if name not in ("self", "cls"))


def _asks_by_a_client(call: ast.Call) -> bool:
    """True for `litellm.completion(model=…, messages=…)` and the like, whosever client it is; not for a class."""
    name, given = last_name(call.func), {keyword.arg for keyword in call.keywords}
    asks = "model" in given and not given.isdisjoint(("messages", "contents"))
    return name in _CLIENT_CALLS or (asks and name[:1].islower() and name != "dict")


def _sent_to_a_model(call: ast.Call, addresses: frozenset[str]) -> bool:
    """True for a request over HTTP whose address or body is that of a model's API, as far as it stands in the call."""
    return any(
        _API.search(string(node) or "") is not None
        or (isinstance(node, ast.Dict) and _asks_a_model(node))
        or (isinstance(node, ast.Name | ast.Attribute) and last_name(node) in addresses)
        for node in ast.walk(call)
    )


def _asks_a_model(body: ast.Dict) -> bool:
    keys = literal_keys(body).keys()
    return "model" in keys and not _SAID.isdisjoint(keys)


def _addresses(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names and attributes to which the address of a model's API, or a body for one, is bound."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = node.value
            if any(_API.search(string(inner) or "") for inner in ast.walk(value)) or (
                isinstance(value, ast.Dict) and _asks_a_model(value)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name for target in targets if (name := last_name(target)))


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not in functions, nor in the `__main__` block."""
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, _DEFERRED):
            yield from _executed(inner)


def _called(node: ast.AST) -> set[str]:
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _methods_called(node: ast.AST) -> set[str]:
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {function.attr for function in calls if isinstance(function, ast.Attribute)}


def _arguments(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Name → argument; the positional ones have no name."""
    yield from (("", argument) for argument in call.args)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)


def _is_prompt(name: str, text: str) -> bool:
    return len(text) >= _SHORTEST and any(word in name.lower() for word in _PROMPT_WORDS)
