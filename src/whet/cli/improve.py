"""`whet improve` and `whet gate`: an agent made better from what it did, and the proof, by one Experiment."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from ..errors import InputError
from .app import AtLeastOne, Record, app, counted, existing
from .named import named

if TYPE_CHECKING:
    from ..experiment import Experiment
    from ..guardrails import Guardrail
    from ..improvement import Improvement
    from ..loop import Optimizer
    from ..optimizers.evolve import EvolveOptions
    from ..reward import Reward
    from ..store import Store
    from ..tracing.resources import Resource
    from ..types import Bundle, Task, Trajectory, Verdict

FEW_GROUPS = 60
"""Below it groups are dealt out by size: their hash alone may leave a split empty."""
FEWEST_THUMBS = 60
"""As many rated runs as a head takes to learn anything."""


@app.command
def improve(
    agent: str,
    /,
    *,
    store: Record,
    reward: tuple[str, ...],
    data: Path | None = None,
    with_: Annotated[tuple[str, ...], Parameter(name="--with")] = (),
    model: str | None = None,
    base_url: str | None = None,
    rollouts: AtLeastOne = 2000,
    not_lower: tuple[str, ...] = (),
    not_higher: tuple[str, ...] = (),
    alpha: float = 0.05,
    worth: float = 0.005,
    seed: int = 0,
    dry_run: bool = False,
    release: bool = False,
    json: bool = False,
) -> int:
    """Make an agent better from what it did, and prove it: whet improve my_agent:answer --store runs.db --reward exact

    Says first which learners it will use on which evidence. Each has to earn its place on validation; the gate
    compares the outcome with the agent as it is, on tasks that nothing learned from. The same command goes on where
    it was stopped.

    Parameters
    ----------
    agent
        The function, as module:function; it is imported from the current folder.
    store
        The record: runs to learn from, and where everything new goes.
    reward
        What a run is worth: a reward's name, exact for example, or module:function. May be repeated; the first
        one decides.
    data
        Tasks to run the agent on, JSON Lines; without it those of the recorded runs, which are replayed.
    with_
        A learner by name, whet's own or a plug-in's; may be repeated, from simple to complicated. Without it:
        evolve, if the agent declares prompts, functions or settings, and head, if people rated enough of its decisions.
    model
        A language model for learners that ask one.
    base_url
        Where it answers: an OpenAI-compatible endpoint.
    rollouts
        Runs of the agent that learning and deciding may take; the gate's come on top.
    not_lower
        A score that must not get worse, as NAME:MARGIN; may be repeated.
    not_higher
        The same for a score that should be low, such as a cost.
    alpha
        Chance of promoting anything where nothing has an effect.
    worth
        What a learner must add on validation to be worth it.
    seed
        Of everything random.
    dry_run
        Only say what would be done.
    release
        Make it live if the gate promotes it.
    json
        Print one JSON object.
    """
    rails = _guardrails(not_lower, not_higher)
    with _opened(agent, store, reward, data, name=f"improve/{agent}", seed=seed) as work:
        plan = asyncio.run(_planned(work, with_, model, base_url, rollouts))
        if not json or dry_run:
            print(work.evidence())
            for line in plan.lines:
                print(line)
        if dry_run:
            return 0
        if not plan.learners:
            raise InputError("there is no learner for this agent; name one with --with")
        improvement, verdict = asyncio.run(_improved(work, plan, rollouts, worth, rails, alpha))
        released = release and verdict.promote
        if released:
            work.experiment.release(verdict, reason=f"whet improve {agent}")
    _say(improvement, verdict, released=released, json=json)
    return 0


@app.command
def gate(
    a: str,
    b: str | None = None,
    /,
    *,
    entry: str,
    store: Record,
    reward: tuple[str, ...],
    data: Path | None = None,
    metric: str | None = None,
    margin: float = 0.0,
    not_lower: tuple[str, ...] = (),
    not_higher: tuple[str, ...] = (),
    alpha: float = 0.05,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Prove a candidate: whet gate [A] B --entry my_agent:answer --store runs.db --reward exact

    Runs the agent under both on the gate's tasks, which no learner saw, pair by pair, and records the Verdict.

    Parameters
    ----------
    a
        The baseline, if B is given: live (what is live in the store), none (the agent as it came), the id of a
        Bundle or a Verdict in the store, or the output folder of a learner. With one alone it is the candidate,
        against what is live.
    b
        The candidate.
    entry
        The agent, as module:function; it is imported from the current folder.
    store
        The record.
    reward
        What a run is worth: a reward's name, exact for example, or module:function. May be repeated; the first
        one decides.
    data
        Tasks to run the agent on, JSON Lines; without it those of the recorded runs, which are replayed.
    metric
        The score that decides instead, in [0, 1].
    margin
        0 asks whether B is better; 0.02 whether it is worse by no more than that.
    not_lower
        A score that must not get worse, as NAME:MARGIN; may be repeated.
    not_higher
        The same for a score that should be low, such as a cost.
    alpha
        Chance of promoting a candidate that has no effect.
    seed
        Of everything random.
    json
        Print the verdict as one JSON object.
    """
    from ..verdict import render, to_json

    rails = _guardrails(not_lower, not_higher)
    with _opened(entry, store, reward, data, name=f"gate/{entry}", seed=seed) as work:
        old, new = (_bundle(work.store, one) for one in (("live", a) if b is None else (a, b)))
        verdict = asyncio.run(
            work.experiment.gate(
                new,
                against=old,
                metric=metric or work.metric,
                margin=margin,
                guardrails=rails,
                alpha=alpha,
                label="live" if b is None else a,
            )
        )
    print(to_json(verdict).decode() if json else render(verdict))
    return 0


@contextmanager
def _opened(
    agent: str, store: Path, reward: Sequence[str], data: Path | None, *, name: str, seed: int
) -> Iterator[_Work]:
    """The agent's work while the store is open."""
    from ..store import Store

    if data is None:
        existing(store)
    function, rewards = named(agent), _rewards(reward)
    with Store(store) as opened:
        yield _Work(function, opened, _tasks(opened, function, data), rewards, name=name, seed=seed)


class _Work:
    """One agent, its tasks and rewards, as an Experiment."""

    def __init__(
        self,
        function: Any,
        store: Store,
        tasks: Sequence[Task],
        rewards: Sequence[Reward],
        *,
        name: str,
        seed: int,
    ) -> None:
        from ..agent_env import calls
        from ..data.splits import split
        from ..experiment import Experiment
        from ..heads import load_head
        from ..reward import name_of
        from ..tracing import register_loader

        register_loader("head", load_head)
        # A task that shares nothing with another is a group of its own.
        grouped = [task if task.group else replace(task, group=task.id) for task in tasks]
        groups = {task.group for task in grouped}
        if len(groups) < 3:
            raise InputError(
                f"{counted(len(tasks), 'task')} in {counted(len(groups), 'group')} cannot be divided into train, "
                "validation and gate. Record more runs, or give tasks with --data"
            )
        divided = split(grouped, seed=seed, balanced=len(groups) < FEW_GROUPS)
        self.store, self.metric = store, name_of(rewards[0])
        self.experiment: Experiment = Experiment(
            env=calls(function, record=store),
            tasks=divided,
            rewards=rewards,
            store=store,
            seed=seed,
            name=name,
        )

    def evidence(self) -> str:
        """What there is to learn from and to prove on, in a line."""
        count = len(self.experiment.train) + len(self.experiment.validation)
        return (
            f"{counted(count, 'task')} to learn from, {len(self.experiment.validation)} of them for validation; "
            f"{self.metric} decides"
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which learners, from where, on which evidence."""

    start: Bundle
    learners: dict[str, Optimizer]
    lines: list[str]


async def _planned(
    work: _Work, chosen: Sequence[str], model: str | None, base_url: str | None, rollouts: int
) -> _Plan:
    from ..tracing import resources
    from ..tracing.resources import Function
    from ..types import Bundle

    start = work.store.live() or Bundle()
    declared = resources()
    lines: list[str] = []
    recorded = await work.experiment.recorded()
    runs = [run for group in recorded for run in group.trajectories]
    used = _read(declared, runs, lines)
    settings = [name for name in used if _evolves(declared[name], lines)]
    # A function as it came is not named: its Version is the bare text that a search makes of it.
    came = [declared[name] for name in settings if not isinstance(declared[name], Function)]
    start = Bundle([handle.default_version for handle in came]).put(*start.values())
    rated = sum(any(said.value for said in run.feedback) for run in runs)
    decisions = {step.name for run in runs for step in run.steps if step.kind == "function"}
    learners: dict[str, Optimizer] = {}
    for name in chosen or ("evolve", "head"):
        if name == "evolve" and not settings:
            lines.append(
                "evolve: not used, for the agent declares nothing that can vary (whet.resource, whet.evolve)"
            )
        elif name == "head" and not chosen and (rated < FEWEST_THUMBS or not decisions):
            lines.append(
                f"head: not used, for {counted(rated, 'run')} with a thumb and {counted(len(decisions), 'decision')} "
                f"are recorded; it takes {FEWEST_THUMBS} runs that decided"
            )
        else:
            learners[name] = _learner(name, work.metric, settings, model, base_url, rollouts)
            evidence = f"{counted(len(runs), 'recorded run')}, {rated} of them rated"
            if name == "evolve":
                evidence = f"{', '.join(settings)} on {counted(len(work.experiment.train), 'train task')}"
            lines.append(f"{name}: {evidence}")
    return _Plan(start, learners, lines)


def _read(names: Iterable[str], runs: Sequence[Trajectory], lines: list[str]) -> list[str]:
    """Names of what the recorded runs have read; all where no run says which Versions it ran under."""
    told = [run for run in runs if run.versions]
    read = {name for run in told for name in run.versions}
    unread = [name for name in names if told and name not in read]
    if unread:
        lines.append(
            f"evolve: leaves {', '.join(unread)} out, which none of {counted(len(told), 'recorded run')} has read; "
            "record runs that read them"
        )
    return [name for name in names if name not in unread]


def _evolves(handle: Resource, lines: list[str]) -> bool:
    """Whether `Evolve` can change this: a text, a function that can be called by JSON, a value with a knob."""
    from ..evolution.functions import refusal
    from ..evolution.operators import knobs
    from ..tracing.resources import Function

    if isinstance(handle, Function):
        reason = refusal(handle)
        if reason:
            lines.append(f"evolve: leaves {handle.name} as it is, for {reason}")
        return not reason
    content = handle.version.content
    return isinstance(content, str) or bool(knobs({"content": content}))


def _learner(
    name: str, metric: str, settings: Sequence[str], model: str | None, base_url: str | None, rollouts: int
) -> Optimizer:
    """The learner of that name, with what it takes of this."""
    from ..plugins import load, optimizer

    known: dict[str, Any] = {"score": metric}
    if name == "evolve":
        known |= {"resources": tuple(settings), "options": _search(rollouts)}
    if model is not None:
        if base_url is None:
            raise InputError(f"--model {model} needs --base-url: where it answers")
        known["model"] = load("whet.models", "openai")(
            base_url, model, api_key=os.environ.get("OPENAI_API_KEY")
        )
    takes = inspect.signature(load("whet.optimizers", name)).parameters
    return optimizer(name, **{key: value for key, value in known.items() if key in takes})


async def _improved(
    work: _Work, plan: _Plan, rollouts: int, worth: float, rails: Sequence[Guardrail], alpha: float
) -> tuple[Improvement, Verdict]:
    from ..types import Budget

    improvement = await work.experiment.compose(
        plan.learners,
        bundle=plan.start,
        metric=work.metric,
        worth=worth,
        budget=Budget(rollouts=rollouts),
    )
    verdict = await work.experiment.gate(
        improvement, metric=work.metric, guardrails=rails, alpha=alpha, label="the agent as it is"
    )
    return improvement, verdict


def _say(improvement: Improvement, verdict: Verdict, *, released: bool, json: bool) -> None:
    from ..verdict import render

    if json:
        rows = [
            {"name": one.name, "entered": one.entered, "reason": one.reason, "bundle": one.bundle.id}
            for one in improvement.candidates
        ]
        whole = {
            "bundle": verdict.candidate,
            "candidates": rows,
            "verdict": verdict,
            "diff": improvement.diff(),
            "released": released,
            "rollouts": improvement.rollouts,
        }
        print(msgspec.json.encode(whole).decode())
        return
    for candidate in improvement.candidates:
        print(f"  {candidate.reason}")
    print(render(verdict))
    if improvement.bundle != improvement.parent:
        print(improvement.diff())
    if released:
        print("released; whet rollback goes back")
    elif verdict.promote:
        print(f"not released: give --release, or whet release {verdict.candidate}")


def _search(rollouts: int) -> EvolveOptions:
    """A search that comes to an end within about half of these rollouts; the rest is for deciding."""
    from ..optimizers.evolve import EvolveOptions

    tasks = max(24, min(240, rollouts // 20))
    probe = min(24, tasks)
    generations = max(2, min(20, rollouts // (2 * (8 * probe + tasks))))
    proposals = max(8, min(60, rollouts // 60))  # of texts and functions: each is run on all train tasks
    return EvolveOptions(
        generations=generations, children=8, tasks=tasks, probe=probe, finish=2, proposals=proposals
    )


def _rewards(names: Sequence[str]) -> list[Reward]:
    from ..plugins import load

    return [named(name) if ":" in name else load("whet.rewards", name) for name in names]


def _guardrails(not_lower: Sequence[str], not_higher: Sequence[str]) -> list[Guardrail]:
    from ..guardrails import Guardrail

    rails = []
    for spec in (*not_lower, *not_higher):
        metric, _, margin = spec.rpartition(":")
        try:
            rails.append(Guardrail(metric, float(margin), higher_is_better=spec in not_lower))
        except ValueError:
            raise InputError(f"{spec!r} is not NAME:MARGIN, such as answered:0.02") from None
    return rails


def _tasks(store: Store, function: Any, data: Path | None) -> list[Task]:
    from ..data.tasks import from_jsonl, tasks
    from ..replay import runs_of

    return from_jsonl(data) if data is not None else tasks(runs_of(function, store.trajectories()))


def _bundle(store: Store, name: str) -> Bundle:
    """What `live`, `none`, an id, or a learner's output stands for."""
    from ..store import read_bundle, release_of
    from ..types import Bundle

    if name == "none":
        return Bundle()
    if name == "live":
        return store.live() or Bundle()
    path = Path(name)
    return read_bundle(path).bundle if path.exists() else release_of(store, name)
