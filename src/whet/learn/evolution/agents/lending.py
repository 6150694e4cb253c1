"""Functions that reach outside, lent to a candidate: it asks for them, and the owner's own code answers.

A function that evolves runs in the sandbox, where there is no network.  What it calls may need one: a helper that asks
a service, or a database.  In the staged copy such a helper only asks.  A call that asks ends there; the owner's helper,
as it came, answers outside, in the process of the agent, and the call is made again from its beginning with that
answer, until it asks for nothing more: a replay over logged answers, as in durable execution.  So what a proposer
wrote never leaves the sandbox, whose channel carries nothing but one call and its answer.

What it may ask is bounded: helpers that the function could reach as it came, so many times a call, with JSON.  Where
the source always writes a helper's argument, or writes around it, the name of a service or `f"/stock/{article}"`, it
stays what is written, with nothing in its gaps that would lead elsewhere.  An argument that is an address, a path or a
command by its name and that the source does not write so is nobody's to choose: such a helper is not lent.  All others
are the candidate's, as a model chooses those of a tool: an agent that writes gets a test account.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ....python_text import module_of
from ....repository.syntax import FunctionNode, defines, definition, last_name, literal, parameters, root_name
from ....types import Json, canonical
from .crossing import MARKED

RUNNER = "whet_lent"
"""The module of the staged folder that helpers are asked for through, and that calls the function."""
MOST_ASKED = 24
"""Times that one call may ask."""
_PACKAGES = """
urllib urllib3 http requests httpx aiohttp websockets websocket socket ssl ftplib smtplib imaplib poplib
telnetlib xmlrpc subprocess grpc zeep suds openai anthropic google mistralai cohere litellm boto3 botocore
azure psycopg psycopg2 asyncpg pymysql mysql aiomysql pymongo motor redis sqlalchemy sqlite3 aiosqlite duckdb
elasticsearch opensearchpy neo4j cassandra kafka pika celery paramiko slack_sdk stripe twilio github gitlab
jira mcp fastmcp langchain langchain_community langchain_openai llama_index qdrant_client pinecone chromadb
weaviate
"""
_OUTSIDE = frozenset(_PACKAGES.split())
"""Packages whose use reaches out of the process."""
_WORD = re.compile(r"\w+")
_LEADS = re.compile(
    r"url|uri|path|endpoint|host|address|file|command|cmd|sql|statement|script", re.IGNORECASE
)
"""Names of parameters that say where something is reached, or what is run there."""
_GAP = r'[^/?#@&:\\"\s]*'
"""What may stand in a gap of a text that the source writes: nothing that ends a part of an address."""
_HARMLESS = frozenset(("urllib.parse", "http.HTTPStatus", "urllib.error"))
"""Of them, what only reads and names."""

_RUNNER_TEXT = '''"""Calls the target with one input, and has what it may not reach answered outside."""
import asyncio
import builtins
import inspect
import json

import whet_called

known = {}
wanted = None


class OutsideAsked(BaseException):
    """Ends a call whose next answer is not known yet; no `except Exception` of the target stops it."""


def ask(name, args, kwargs):
    global wanted
    key = json.dumps([name, list(args), kwargs], allow_nan=False, sort_keys=True)
    if key not in known:
        wanted = wanted or key
        raise OutsideAsked(key)
    answer = json.loads(known[key])
    if "raised" not in answer:
        return answer["value"]
    kind = getattr(builtins, answer["raised"], None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        raise kind(answer["message"])
    raise RuntimeError(f"{answer['raised']}: {answer['message']}")


async def later(name, args, kwargs):
    return ask(name, args, kwargs)


async def awaited(value):
    return await value


def call(args, kwargs, made, answers, state=None):
    global known, wanted
    known, wanted = answers, None
    try:
        value = whet_called.call(args, kwargs, made, state)
        if inspect.isawaitable(value):
            value = asyncio.run(awaited(value))
    except BaseException:
        if wanted is None:
            raise
    if wanted is not None:
        return {"asks": wanted}
    return {"value": value}
'''


@dataclass(frozen=True, slots=True)
class Helper:
    """One function that is lent."""

    entry: str
    """`module:function`, as it is imported where the agent runs."""
    names: Sequence[str]
    """Of its parameters that take a position."""
    written: Mapping[str, Collection[re.Pattern[str]]] = field(default_factory=dict)
    """Parameter → what the source writes for it, where it always does; patterns of its canonical JSON."""
    anywhere: Sequence[str] = ()
    """Parameters that lead somewhere and may be anything."""

    def refusal(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> str:
        """Why it is not called with these arguments; "" if it is."""
        if self.anywhere:
            return f"{self.entry} takes any {' and '.join(self.anywhere)}, which nobody but its source may choose"
        given = [*zip(self.names, args, strict=False), *kwargs.items()]
        for name, value in given:
            text = canonical(value).decode()
            if name in self.written and not any(each.fullmatch(text) for each in self.written[name]):
                return (
                    f"{self.entry} is called with another {name} than the source ever gives it ({value!r:.80}), "
                    "and is not asked for it"
                )
        return ""


@dataclass(frozen=True, slots=True)
class Loan:
    """What is staged, and what may be asked for."""

    files: Mapping[str, str | bytes]
    helpers: Mapping[str, Helper]
    """`module:function` → helper; empty where the function needs nothing that reaches outside."""
    through: bool = False
    """Its calls go through RUNNER, with the answers so far behind the rest: it has helpers, or has to be awaited."""
    attributes: Collection[str] = ()
    """What it may change of its object, or of its arguments: what it speaks of as it came and what leads nowhere."""

    def taken_back(self, answer: dict[str, Json], state: Json) -> dict[str, Json]:
        """The answer, with what a method may have changed of its object, or a function of its arguments'.

        Args:
            state: of the object before; None for a function.
        """
        if "value" not in answer:
            return answer
        given = answer["value"]
        if state is None:
            if isinstance(given, dict) and given.get(MARKED) == "call":
                changes = [each for each in given.get("changes", ()) if isinstance(each, dict)]
                own = [
                    {name: now for name, now in each.items() if name in self.attributes} for each in changes
                ]
                return {"value": {**given, "changes": own}}
            return answer
        # A proposer's process may send anything.
        if not isinstance(given, dict) or not isinstance(given.get("state"), dict) or "value" not in given:
            return {"raised": "RuntimeError", "message": "the method's process gave no answer"}
        changed = {name: value for name, value in given["state"].items() if name in self.attributes}
        return {"value": {"value": given["value"], "state": changed}}


def lent(files: Mapping[str, str | bytes], target: str, sources: Mapping[str, ast.Module]) -> Loan:
    """The staged files of a function, in which the helpers that reach outside only ask.

    Args:
        files: of the function and what it needs, as they are staged.
        target: `module:qualname` of the function, which is not lent itself.
        sources: name → module of the repository as it came: who calls the helpers, and with what.
    """
    module, _, qualname = target.partition(":")
    changed: dict[str, str | bytes] = dict(files)
    helpers: dict[str, Helper] = {}
    calls: Mapping[str, list[ast.Call]] | None = None
    awaited = False
    for path, content in files.items():
        if not path.endswith(".py"):
            continue
        name = ".".join(path.removesuffix(".py").removesuffix("/__init__").split("/"))
        keep = {qualname.split(".")[0]} if name == module else set()
        try:
            tree = module_of(content)
        except SyntaxError:
            continue  # the candidate's own file: it fails by itself
        if name == module:
            awaited = any(
                isinstance(node, ast.AsyncFunctionDef) and node.name == qualname for node in tree.body
            )
        reaching = _reaching(tree, keep)
        if not reaching:
            continue
        calls = _calls(sources) if calls is None else calls
        for node in reaching:
            entry = f"{name}:{node.name}"
            helpers[entry] = _helper(entry, node, calls.get(node.name, []))
        elsewhere = {
            word
            for other, text in files.items()
            if other != path and other.endswith(".py")
            for word in _WORD.findall(text if isinstance(text, str) else text.decode("utf-8", "replace"))
        }
        changed[path] = _asked_for(tree, name, {node.name for node in reaching}, elsewhere)
    through = awaited or bool(helpers)
    if through:
        changed[f"{RUNNER}.py"] = _RUNNER_TEXT
    return Loan(changed, helpers, through, _attributes(sources.get(module), qualname))


def _attributes(tree: ast.Module | None, qualname: str) -> set[str]:
    """Names of `self` that a method speaks of, or of its parameters a function, without those by which something is
    reached."""
    if tree is None:
        return set()
    node, _ = definition(tree, qualname)
    if not isinstance(node, FunctionNode):
        return set()
    named = (inner for inner in ast.walk(node) if isinstance(inner, ast.Attribute))
    owners = {"self"} if "." in qualname else {each.name for each in parameters(node.args)}
    names = {each.attr for each in named if isinstance(each.value, ast.Name) and each.value.id in owners}
    return {name for name in names if not _LEADS.search(name)}


def asking(node: FunctionNode, name: str, module: str, *, method: bool = False) -> FunctionNode:
    """The function with a body that asks for its answer, through `ask`, `later` or `ask_method` of a module."""
    signature = node.args
    args = [argument.arg for argument in (*signature.posonlyargs, *signature.args)]
    itself = f"{args.pop(0)}, " if method else ""
    args += [f"*{signature.vararg.arg}"] if signature.vararg else []
    keywords = [f"{argument.arg!r}: {argument.arg}" for argument in signature.kwonlyargs]
    keywords += [f"**{signature.kwarg.arg}"] if signature.kwarg else []
    passed = "".join(f"{argument}, " for argument in args)
    ask = f"({name!r}, {itself}({passed}), {{{', '.join(keywords)}}})"
    # An import statement would bind a name, which a parameter may have.
    how = "{}.ask_method{}" if method else "{}.ask{}"
    if isinstance(node, ast.AsyncFunctionDef):
        how = "await {}.later{}"
    body = how.format(f"__import__({module!r})", ask)
    new = copy.copy(node)
    wrapper = module_of(f"async def f():\n    return {body}\n").body[0]
    assert isinstance(wrapper, ast.AsyncFunctionDef)
    new.body = wrapper.body
    return ast.fix_missing_locations(new)


def reaches_out(tree: ast.Module, node: FunctionNode) -> bool:
    """True for a function or method of a module that uses what reaches outside in its own lines."""
    return bool(_outside_names(tree) & _used(node) or _imports(node))


def _reaching(tree: ast.Module, keep: Collection[str]) -> list[FunctionNode]:
    """Functions of a module that use what reaches outside, by an import or by a name that was made with one."""
    outside = _outside_names(tree)
    return [
        node
        for node in tree.body
        if isinstance(node, FunctionNode)
        and node.name not in keep
        and (outside & _used(node) or _imports(node))
        # What it yields, or takes from a decorator's caller, cannot be asked for.
        and not node.decorator_list
        and not any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
    ]


def _outside_names(tree: ast.Module) -> set[str]:
    """Names of the module that stand for what reaches outside."""
    names = {alias for node in tree.body for alias in _imports(node)}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and names & _used(node):
            names |= {*defines(node)}
    return names


def _imports(node: ast.AST) -> list[str]:
    """Names that imports within bind to what reaches outside."""
    bound = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            bound += [
                alias.asname or alias.name.split(".")[0]
                for alias in inner.names
                if alias.name.split(".")[0] in _OUTSIDE and alias.name not in _HARMLESS
            ]
        elif isinstance(inner, ast.ImportFrom) and not inner.level and inner.module:
            bound += [
                alias.asname or alias.name
                for alias in inner.names
                if inner.module.split(".")[0] in _OUTSIDE
                and not {inner.module, f"{inner.module}.{alias.name}"} & _HARMLESS
            ]
    return bound


def _used(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _asked_for(tree: ast.Module, name: str, helpers: Collection[str], elsewhere: Collection[str]) -> str:
    """The module, whose helpers ask, without what only they needed.

    A client that is made where the module is imported would want its key there, and nobody is left who asks it.

    Args:
        elsewhere: names that other files speak of.
    """
    body = [
        asking(node, f"{name}:{node.name}", RUNNER)
        if isinstance(node, FunctionNode) and node.name in helpers
        else node
        for node in tree.body
    ]
    needed = {*elsewhere}.union(*(_used(node) for node in body if not _binds(node)))
    while more := set().union(*(_used(node) for node in body if _binds(node) & needed)) - needed:
        needed |= more
    lent_out = [node for node in tree.body if isinstance(node, FunctionNode) and node.name in helpers]
    theirs = set().union(*map(_used, lent_out))
    while more := set().union(*(_used(node) for node in body if _binds(node) & theirs)) - theirs:
        theirs |= more
    kept = [node for node in body if not _binds(node) or _binds(node) & needed or not _binds(node) & theirs]
    return ast.unparse(ast.Module(body=kept, type_ignores=[])) + "\n"


def _binds(node: ast.stmt) -> set[str]:
    """Names that an import or a plain assignment binds; none of what the module's meaning hangs on."""
    if isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.names[0].name == "*"):
        return set()
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return {*defines(node)} if isinstance(node, ast.Assign | ast.AnnAssign) else set()


def _calls(sources: Mapping[str, ast.Module]) -> Mapping[str, list[ast.Call]]:
    """Name of a function → its calls, by that name alone or through a module of the repository."""
    calls: dict[str, list[ast.Call]] = {}
    own = {name.rpartition(".")[2] for name in sources}
    for tree in sources.values():
        modules = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if alias.name.rpartition(".")[2] in own
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (
                isinstance(node.func, ast.Name) or root_name(node.func) in modules
            ):
                calls.setdefault(last_name(node.func), []).append(node)
    return calls


def _helper(entry: str, node: FunctionNode, calls: Sequence[ast.Call]) -> Helper:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    written: dict[str, Collection[re.Pattern[str]]] = {}
    anywhere: list[str] = []
    for parameter in parameters(node.args):
        given = [_given(call, parameter.name, names) for call in calls]
        patterns = [_pattern(value) for value in given if value is not None]
        if patterns and None not in patterns:
            written[parameter.name] = [re.compile(each) for each in dict.fromkeys(filter(None, patterns))]
        elif patterns and _LEADS.search(parameter.name):
            anywhere.append(parameter.name)
    return Helper(entry, names, written, anywhere)


def _pattern(value: ast.expr) -> str | None:
    """A regular expression of what an argument may be, in canonical JSON; None where the source does not write it."""
    known, plain = literal(value)
    if known:
        return re.escape(canonical(plain).decode())
    if isinstance(value, ast.JoinedStr) and any(isinstance(part, ast.Constant) for part in value.values):
        parts = (
            re.escape(canonical(part.value).decode()[1:-1]) if isinstance(part, ast.Constant) else _GAP
            for part in value.values
        )
        return f'"{"".join(parts)}"'
    return None


def _given(call: ast.Call, name: str, names: Sequence[str]) -> ast.expr | None:
    """What a call gives for a parameter; None where it leaves that to the default."""
    for keyword in call.keywords:
        if keyword.arg in (name, None):
            return keyword.value
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return call.args[0]  # no literal: whatever the list holds
    place = names.index(name) if name in names else len(call.args)
    return call.args[place] if place < len(call.args) else None
