"""`whet autopilot`: issues become proven repairs, by themselves, within limits."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
from cyclopts import Parameter

from ..errors import InputError
from .named import is_judge
from .root import (
    AtLeastOne,
    BaseUrl,
    Print,
    Record,
    app,
    existing,
    listed,
    print_json,
    refuse_half_a_model,
)

if TYPE_CHECKING:
    from ..autopilot.journal import JournalRow
    from ..autopilot.pilot import Autopilot
    from ..record.store import Store

app.command(
    cyclopts.App(
        help="Repair the issues of an agent by itself, within limits; look at it, and stop it.",
        **listed("autopilot"),
    )
)
pilot = app["autopilot"]


@dataclass(frozen=True, kw_only=True)
class NightLimits:
    """Options: what one night may spend at the most."""

    hours: float = 8.0
    """Hours of the night, restarts included."""
    agent_calls: int = 10000
    """Calls of the agent."""
    model_calls: int = 500
    """Calls of the model that proposes."""
    tokens: int | None = None
    """Tokens of the model that proposes."""
    dollars: float | None = None
    """Dollars of the model that proposes."""
    alpha: float = 0.05
    """Highest chance that anything without an effect is promoted in the whole night."""
    proofs: AtLeastOne = 120
    """Most proofs, among which that chance is shared out."""
    share: float = 0.2
    """Most of the live traffic that is on trial."""
    first_share: float = 0.05
    """Share of it at which a trial begins: it rises as harm by the whole trial is excluded."""


@dataclass(frozen=True, kw_only=True)
class PilotFlags:
    """Options: how an autopilot works, in a command of its own or inside `whet serve`."""

    entry: str | None = None
    """The function that is called with what a person asks, as module:function. If omitted, it is found in the file."""
    model: str | None = None
    """The language model that proposes, by the name that its endpoint knows. Its base URL has to be given, too."""
    base_url: BaseUrl = None
    mode: Literal["suggest", "ask", "act"] = "suggest"
    """suggest writes proposals and verdicts only; ask waits for whet autopilot approve before anything touches the live
    traffic; act does it."""
    limits: Annotated[NightLimits, Parameter(name="*")] = field(default_factory=NightLimits)
    calls: AtLeastOne = 480
    """Most calls of the agent for one issue."""
    seed: int = 0
    """Random seed."""
    output: Path = Path("whet_autopilot")
    """The output folder: patches, trials and evidence."""
    deliver: Literal["none", "offline", "remote"] = "none"
    """What becomes of a repair that is live: none leaves its patch in the output folder; offline makes a branch of the
    agent's git repository, with the outcome files and the command that repeats the verdict; remote pushes it and opens
    a pull request."""
    reward: str | None = None
    """Judges the runs and answers of an agent whose model has weights of its own: module:function, or a judge that a
    card in the record admits, asked at the base URL, such as a panel (cards/panel.json). With it and an entry new
    weights are trained from the record, proven on questions that no training sees, and released."""
    train: str = "sft"
    """Method of whet train for these weights, with its options, as one text: "sft --epochs 12"."""
    wait: float | None = None
    """Seconds between two looks for new traffic. If omitted, whet autopilot ends where nothing is left to do, and
    whet serve looks every minute."""

    def words(self) -> list[str]:
        """As options of `whet autopilot`, for a process that runs it."""
        return _words(self)


AS_IT_COMES = PilotFlags()


def refuse_half_a_pilot(how: PilotFlags) -> None:
    """Refuse a model without its endpoint, or an endpoint at which nothing is asked.

    Raises:
        InputError: one of the two is missing.
    """
    if how.model is None and is_judge(how.reward or ""):
        if how.base_url is None:
            raise InputError(f"{how.reward} is a judge, which is asked: give its base URL, too")
        return
    refuse_half_a_model(how.model, how.base_url)


def _wherever(reward: str) -> str:
    """The reward as it is named in any folder."""
    file, colon, judge = reward.partition(":")
    return f"{Path(file).resolve()}{colon}{judge}" if is_judge(reward) and Path(file).is_file() else reward


def _words(options: PilotFlags | NightLimits) -> list[str]:
    words: list[str] = []
    for option in fields(options):
        value = getattr(options, option.name)
        if isinstance(value, NightLimits):
            words += _words(value)
        elif value is not None:
            words += [f"--{option.name.replace('_', '-')}={value}"]
    return words


def agent_file(agent: Path, entry: str | None) -> Path:
    """The agent's file: as given, or that of the entry's module in a folder.

    Raises:
        InputError: there is none.
    """
    if not agent.is_dir():
        if not agent.is_file():
            raise InputError(f"there is no agent at {agent}: give its file, or its folder and an entry")
        return agent
    if entry is None:
        raise InputError(f"{agent} is a folder: say which function is called, as an entry module:function")
    module = entry.partition(":")[0]
    if not module.isidentifier() or not (agent / f"{module}.py").is_file():
        raise InputError(
            f"there is no module {module!r} in {agent}: an entry is module:function of a file in it"
        )
    return agent / f"{module}.py"


@pilot.default
def autopilot(
    *,
    store: Record,
    agent: Path | None = None,
    how: Annotated[PilotFlags, Parameter(name="*")] = AS_IT_COMES,
    journal: bool = False,
    json: Print = False,
) -> int:
    """Repair what goes wrong: whet autopilot --store runs.db --agent my_agent.py --model NAME --base-url URL

    It finds the issues of the record, proposes repairs, proves them, tries them on a share of the traffic, makes live
    what people like better, and takes back what relapses. Every step is a row of the journal. Started again it goes on
    where it stood, also after kill -9.

    Parameters
    ----------
    agent
        The agent's file, or its folder with --entry.
    journal
        Only print the journal.
    """
    from ..autopilot.journal import read
    from ..record.store import Store

    with Store(existing(store)) as opened:
        if journal:
            for row in read(opened):
                _print(row, json=json)
            return 0
        if agent is None:
            raise InputError("no agent was named: give --agent FILE, or --journal to look back")
        refuse_half_a_pilot(how)
        return _run(_autopilot(opened, agent_file(agent, how.entry), how, json=json), how)


def _autopilot(store: Store, agent: Path, how: PilotFlags, *, json: bool) -> Autopilot:
    from ..autopilot.night import NightBudget
    from ..autopilot.pilot import Autopilot, Mode, PilotOptions, settings_of
    from ..autopilot.shipping import delivery_of
    from ..autopilot.weights import WeightOptions
    from ..ship.issues import find_issues

    limits = how.limits
    budget = NightBudget(
        hours=limits.hours,
        rollouts=limits.agent_calls,
        calls=limits.model_calls,
        tokens=limits.tokens,
        dollars=limits.dollars,
        alpha=limits.alpha,
        gates=limits.proofs,
        share=limits.share,
        first_share=limits.first_share,
    )
    repair = settings_of(
        agent,
        entry=how.entry,
        calls=how.calls,
        seed=how.seed,
        output=how.output.resolve(),
        regime="exchangeable",
    )
    weights = WeightOptions(
        root=agent.resolve().parent,
        entry=how.entry or "",
        reward=_wherever(how.reward or ""),
        base_url=how.base_url if is_judge(how.reward or "") else None,
        train=how.train,
        output=how.output.resolve(),
    )
    return Autopilot(
        store,
        PilotOptions(repair=repair, mode=Mode(how.mode), weights=weights),
        budget,
        find_issues,
        deliver=None
        if how.deliver == "none"
        else delivery_of(store, agent.resolve().parent, offline=how.deliver == "offline"),
        say=lambda row: _print(row, json=json),
    )


def _run(work: Autopilot, how: PilotFlags) -> int:
    """Run it; Ctrl-C and SIGTERM end it within a step, and nothing that was paid for is lost."""
    import asyncio

    from ..autopilot.serving import ends_with_its_server
    from ..models.openai import OpenAIModel
    from ..models.trial import trial_address

    async def run() -> str:
        ending = asyncio.current_task()
        assert ending is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.cancel)
        if how.model is None or how.base_url is None:
            return await work.run(wait=how.wait)
        key, address = os.environ.get("OPENAI_API_KEY"), trial_address(how.base_url)
        async with OpenAIModel(address, how.model, api_key=key, meter=work.night.meter) as proposes:
            work.propose_by(proposes)
            return await work.run(wait=how.wait)

    ends_with_its_server()
    with suppress(asyncio.CancelledError):
        asyncio.run(run())
    return 0


@pilot.command(name="stop")
def stop_autopilot(*, store: Record, reason: str = "by hand") -> int:
    """Stop the autopilot of a record within a step, wherever it runs.

    Parameters
    ----------
    reason
        For the journal.
    """
    from ..autopilot.night import stop
    from ..record.store import Store

    with Store(existing(store)) as opened:
        stop(opened, reason)
    print("stopped: nothing more is spent; whet autopilot start lets it go on")
    return 0


@pilot.command(name="start")
def start_autopilot(*, store: Record) -> int:
    """Let a stopped autopilot go on, or the next night begin: inside whet serve at once, else when it is run again."""
    from ..autopilot.night import start
    from ..record.store import Store

    with Store(existing(store)) as opened:
        start(opened)
    return 0


@pilot.command(name="approve")
def approve_autopilot(what: str, /, *, store: Record) -> int:
    """Let it do what it asks for: whet autopilot approve trial-1 --store runs.db

    Parameters
    ----------
    what
        As the journal names it.
    """
    from ..autopilot.asking import decide
    from ..record.store import Store

    with Store(existing(store)) as opened:
        decide(opened, what, allow=True)
    return 0


@pilot.command(name="refuse")
def refuse_autopilot(what: str, /, *, store: Record) -> int:
    """Have it leave what it asks for: whet autopilot refuse trial-1 --store runs.db

    Parameters
    ----------
    what
        As the journal names it.
    """
    from ..autopilot.asking import decide
    from ..record.store import Store

    with Store(existing(store)) as opened:
        decide(opened, what, allow=False)
    return 0


def _print(row: JournalRow, *, json: bool) -> None:
    if json:
        print_json(row)
    else:
        print(row.line())
    sys.stdout.flush()
