"""The `whet` command that every family of commands adds itself to, and what many of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import cyclopts
import msgspec
from cyclopts import Group, Parameter, validators

from ..errors import InputError, NotFoundError
from ..escapes import read_json

if TYPE_CHECKING:
    from ..types import Json


def _version() -> str:
    from importlib.metadata import version  # which reads mail: a tenth of a second for every command

    return version("whet")


def _shown_default(default: object) -> str | None:
    """A default as `--help` shows it; None for a switch that is off, and for no value at all."""
    return None if default is None or default is False or default in ((), "") else str(default)


ABOUT = """\
Make an LLM agent better from what it does: record its runs, judge them, learn from them, prove that the change
helps, and put it live.

To watch all of it on an example, without a key or a network: pip install 'whet[train,head]', then whet demo.
With an agent of your own: whet init, then whet run -- python my_agent.py, then whet improve."""

app = cyclopts.App(
    name="whet",
    help=ABOUT,
    version=_version,
    help_format="markdown",
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    # By default cyclopts ends silently; main() says what is kept and how to resume.
    suppress_keyboard_interrupt=False,
)

LOOP = {
    "Start": ("demo", "init", "doctor", "run", "improve", "permissions"),
    "Record": ("show", "serve", "token", "replay", "feedback", "import", "export", "retain", "erase"),
    "Judge": (
        "label",
        "score",
        "findings",
        "generate-training-data",
        "refine",
        "generate-evaluators",
        "audit",
    ),
    "Learn": ("evolve", "extract-targets", "train", "tasks", "work", "sandbox"),
    "Prove": ("gate", "verdict", "baseline", "report"),
    "Ship": ("issues", "release", "rollback", "autopilot", "log", "diff", "serve-policy"),
}
"""The commands as `whet --help` lists them: along the loop, and in each part those first that one needs first."""

HOMES = {
    "audit": "audit",
    "autopilot": "autopilot",
    "baseline": "baseline",
    "demo": "loop",
    "diff": "log",
    "doctor": "wiring",
    "erase": "people",
    "evolve": "evolve",
    "export": "exchange",
    "extract-targets": "extract",
    "feedback": "people",
    "findings": "findings",
    "gate": "improve",
    "generate-evaluators": "audit",
    "generate-training-data": "training_data",
    "import": "exchange",
    "improve": "improve",
    "init": "wiring",
    "issues": "issues",
    "label": "label",
    "log": "log",
    "permissions": "permitted",
    "refine": "refine",
    "release": "release",
    "replay": "replay",
    "report": "report",
    "retain": "people",
    "rollback": "release",
    "run": "run",
    "sandbox": "sandbox",
    "score": "score",
    "serve": "server",
    "serve-policy": "serve_policy",
    "show": "show",
    "tasks": "queue task_guides task_sets task_writing",
    "token": "token",
    "train": "train",
    "verdict": "loop",
    "work": "server",
}
"""Command → the modules of this package that add it: a command imports these, and not the forty others."""

_GROUPS = {title: Group(title, sort_key=part) for part, title in enumerate(LOOP)}
app["--help"].group = app["--version"].group = Group("Help", sort_key=len(LOOP))
_PLACES = {
    name: {"group": _GROUPS[title], "sort_key": place}
    for title, names in LOOP.items()
    for place, name in enumerate(names)
}


def listed(name: str) -> dict[str, Any]:
    """The name of a command and its place in `whet --help`, as arguments of `app.command` or `cyclopts.App`."""
    return {"name": name, **_PLACES[name]}


Function = TypeVar("Function", bound=Callable[..., int])


def command(name: str) -> Callable[[Function], Function]:
    """Decorator: the function as the command of that name."""

    def add(function: Function) -> Function:
        app.command(function, **listed(name))
        return function

    return add


for _old, _command in {
    "run_openevolve": "evolve:command",
    "extract_targets": "extract:extract_targets",
    "generate_evaluators": "audit:generate_evaluators",
    "generate_training_data": "training_data:generate_training_data",
    "parallel": "parallel:parallel",
}.items():  # names of earlier versions, which scripts may use: they work and are not listed
    app.command(f"whet.cli.{_command}", name=_old, show=False)


AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
"""A count that makes no sense at zero: less is refused with the option's name."""

Record = Annotated[Path, Parameter(env_var="WHET_STORE", help="The record: a file, such as runs.db.")]
"""The store that a command reads; like `whet.trace`, it can take it from the environment."""

NewRecord = Annotated[
    Path, Parameter(env_var="WHET_STORE", help="The record: a file, created if it does not exist.")
]
"""The store that a command writes to."""

Print = Annotated[bool, Parameter(help="Print one JSON object instead of text.")]
"""`--json`."""

ADVANCED = Parameter(group=Group("Advanced", sort_key=1))
"""In an annotation: list the option below those that matter first."""

Host = Annotated[str, Parameter(help="Address to listen on.")]
Port = Annotated[int, Parameter(help="Port to listen on; 0 takes any free port and prints it.")]
Token = Annotated[str | None, Parameter(env_var="WHET_TOKEN")]
AllowHost = Annotated[
    tuple[str, ...],
    Parameter(
        help="A further name by which clients may address this server, besides localhost. May be repeated."
    ),
]
Upstream = Annotated[
    str | None,
    Parameter(
        help="Where model calls go: an OpenAI-compatible address, up to and including /v1; WHET_UPSTREAM_KEY may hold "
        "its API key. If omitted, the base URLs in the environment, else OpenAI and Anthropic."
    ),
]
Speaks = Annotated[
    tuple[str, ...],
    Parameter(
        help="API that the upstream supports: chat, responses or messages. May be repeated. Calls to the others are "
        "translated to chat."
    ),
]
AskTokens = Annotated[
    bool,
    Parameter(
        help="Ask the upstream for token ids and log-probabilities, which training needs and vLLM provides."
    ),
]

ModelName = Annotated[
    str | None,
    Parameter(help="A language model to ask, by the name that its endpoint knows. Needs --base-url."),
]
BaseUrl = Annotated[
    str | None, Parameter(help="The model's endpoint: an OpenAI-compatible address, up to and including /v1.")
]
JudgeModel = Annotated[
    str | None,
    Parameter(
        help="The model that --reward grounded (answers by what the run's tools brought) and factual (by the right "
        "answer) ask. Needs --base-url."
    ),
]
KeyVariable = Annotated[str, Parameter(help="The environment variable that holds the model's API key.")]

Reward = Annotated[
    str | None,
    Parameter(
        help="A reward that judges the runs now, as module:function; whet.judge:rated takes the last value that "
        "people gave."
    ),
]
"""`--reward-function`."""


def print_json(content: object) -> None:
    """One line of JSON on standard output."""
    print(msgspec.json.encode(content).decode())


def refuse_half_a_model(model: str | None, base_url: str | None) -> None:
    """Refuse a model without its endpoint, and an endpoint without its model.

    Raises:
        InputError: one of the two is missing.
    """

    if (model is None) != (base_url is None):
        raise InputError("a model needs both --model and --base-url")


def needed_token(token: str | None) -> str:
    """The token of a server.

    Raises:
        InputError: there is none.
    """

    if token is None:
        raise InputError(
            "no token: give --token, or set WHET_TOKEN; whet token write --store FILE prints one"
        )
    return token


def counted(number: int, noun: str) -> str:
    """`1 file`, `1,200 files`, `2 trajectories`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def say_redacted(counts: Mapping[str, int]) -> None:
    """Print how many secrets of each kind were taken out of what was recorded."""
    for rule, count in sorted(counts.items()):
        print(f"redacted: {count} x {rule}")


def existing(store: Path) -> Path:
    """The path of a store to read; opening it would create a missing one.

    Raises:
        NotFoundError: there is no file, or it is empty.
    """

    if not store.exists():
        raise NotFoundError(f"there is no store at {store}")
    if store.is_file() and store.stat().st_size == 0:
        raise NotFoundError(f"{store} is an empty file, not a store; it was left as it is")
    return store


def named_store(store: Path | None) -> Path:
    """The path of a store that an option or the environment names.

    Raises:
        InputError: neither does.
    """

    if store is None:
        raise InputError("no store was named: give --store FILE, or set WHET_STORE")
    return store


def content_of(file: Path) -> Json:
    """The content of a resource's file: JSON if its name ends in .json, else text.

    Raises:
        InputError: it cannot be read, or is neither.
    """
    try:
        body = file.read_bytes()
        return read_json(msgspec.json.decode, body) if file.suffix == ".json" else body.decode()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kind = "JSON" if file.suffix == ".json" else "UTF-8 text"
        raise InputError(f"{file} is not {kind}: {error}") from error
