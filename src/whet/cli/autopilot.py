"""`whet autopilot`: issues become proven repairs, by themselves, within limits."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
from cyclopts import Parameter

from ..errors import InputError
from .app import (
    AtLeastOne,
    BaseUrl,
    ModelName,
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


@pilot.default
def autopilot(
    *,
    store: Record,
    agent: Path | None = None,
    entry: str | None = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    mode: Literal["suggest", "ask", "act"] = "suggest",
    limits: Annotated[NightLimits, Parameter(name="*")] = NightLimits(),
    calls: AtLeastOne = 480,
    seed: int = 0,
    output: Path = Path("whet_autopilot"),
    deliver: Literal["none", "offline", "remote"] = "none",
    wait: float | None = None,
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
        The agent's file.
    entry
        The function that is called with what a person asks, as module:function. If omitted, it is found in the file.
    mode
        suggest writes proposals and verdicts only; ask waits for whet autopilot approve before anything touches the
        live traffic; act does it.
    calls
        Most calls of the agent for one issue.
    seed
        Random seed.
    output
        Folder of patches, trials and evidence.
    deliver
        What becomes of a repair that is live: none leaves its patch in --output; offline makes a branch of the agent's
        git repository, with the outcome files and the command that repeats the verdict; remote pushes it and opens a
        pull request.
    wait
        Seconds between two looks for new traffic. If omitted, it ends where nothing is left to do.
    journal
        Only print the journal.
    """
    from ..autopilot.journal import read
    from ..autopilot.shipping import delivery_of
    from ..record.store import Store

    with Store(existing(store)) as opened:
        if journal:
            for row in read(opened):
                _print(row, json=json)
            return 0
        if agent is None:
            raise InputError("no agent was named: give --agent FILE, or --journal to look back")
        refuse_half_a_model(model, base_url)
        work = _autopilot(
            opened, agent, entry, mode, limits, calls=calls, seed=seed, output=output, json=json
        )
        if deliver != "none":
            work.deliver = delivery_of(opened, agent.resolve().parent, offline=deliver == "offline")
        return _run(work, model, base_url, wait)


def _autopilot(
    store: Store,
    agent: Path,
    entry: str | None,
    mode: str,
    limits: NightLimits,
    *,
    calls: int,
    seed: int,
    output: Path,
    json: bool,
) -> Autopilot:
    from ..autopilot.night import NightBudget
    from ..autopilot.pilot import Autopilot, Mode, PilotOptions, settings_of
    from ..ship.issues import find_issues

    budget = NightBudget(
        hours=limits.hours,
        rollouts=limits.agent_calls,
        calls=limits.model_calls,
        tokens=limits.tokens,
        dollars=limits.dollars,
        alpha=limits.alpha,
        gates=limits.proofs,
        share=limits.share,
    )
    repair = settings_of(
        agent, entry=entry, calls=calls, seed=seed, output=output.resolve(), regime="exchangeable"
    )
    return Autopilot(
        store,
        PilotOptions(repair=repair, mode=Mode(mode)),
        budget,
        find_issues,
        say=lambda row: _print(row, json=json),
    )


def _run(work: Autopilot, model: str | None, base_url: str | None, wait: float | None) -> int:
    """Run it; Ctrl-C ends it within a step, and nothing that was paid for is lost."""
    import asyncio

    from ..models.openai import OpenAIModel
    from ..models.trial import trial_address

    async def run() -> str:
        if model is None or base_url is None:
            return await work.run(wait=wait)
        key, address = os.environ.get("OPENAI_API_KEY"), trial_address(base_url)
        async with OpenAIModel(address, model, api_key=key, meter=work.night.meter) as proposes:
            work.propose_by(proposes)
            return await work.run(wait=wait)

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
    """Let a stopped autopilot go on when it is run again."""
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
    from ..autopilot.pilot import approve
    from ..record.store import Store

    with Store(existing(store)) as opened:
        approve(opened, what)
    return 0


def _print(row: JournalRow, *, json: bool) -> None:
    if json:
        print_json(row)
    else:
        print(row.line())
    sys.stdout.flush()
