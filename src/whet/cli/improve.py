"""`whet improve` and `whet gate`: an agent made better from what it did, and the proof, by one Experiment."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import InputError
from .flags import with_options
from .named import named, opened_rewards, rubric_of, warning
from .on_trial import on_trial
from .root import (
    AtLeastOne,
    BaseUrl,
    JudgeModel,
    ModelName,
    Print,
    app,
    counted,
    existing,
    listed,
    named_store,
    print_json,
)
from .table import (
    TOPIC,
    NamedColumns,
    TableColumns,
    TableOptions,
    TableRun,
    gate_by_table,
    improve_by_table,
    is_tabled,
    table_input,
)
from .thumbed import TOPIC as THUMBED
from .thumbed import ThumbOptions, ThumbRun, improve_agent_file

if TYPE_CHECKING:
    from ..judge import Reward
    from ..judge.agent_env import ModelCalls
    from ..learn.experiment import Experiment
    from ..learn.improvement import Improvement
    from ..learn.loop import Optimizer
    from ..learn.optimizers.evolve import EvolveOptions
    from ..prove.guardrails import Guardrail
    from ..record.store import Store
    from ..record.tracing.resources import Resource
    from ..types import Bundle, Sampling, Task, Trajectory, Verdict

COLUMNS = "A table of rows or tasks"
PROMPTS = "Prompts in files"
FEW_GROUPS = 60
"""Below this many, groups are dealt out by size: their hash alone may leave a split empty."""
FEWEST_THUMBS = 60
"""Rated runs below which a head learns nothing."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Options of both commands: the agent's runs, tasks and rewards."""

    store: Annotated[Path | None, Parameter(env_var="WHET_STORE")] = None
    """The record: runs to learn from, and where everything new is recorded; created if it does not exist."""
    reward: tuple[str, ...] = ()
    """Reward of a run: the name of a built-in one, such as exact, or module:function. May be repeated; the first one
    decides."""
    data: Path | None = None
    """A table of examples, or tasks to run the agent on: CSV, TSV, JSON, JSON Lines or Parquet. If omitted, the tasks
    of the recorded runs, which are replayed."""
    seed: int = 0
    """Random seed."""


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Options of both commands: the test and its guardrails."""

    not_lower: tuple[str, ...] = ()
    """A score that must not get worse, as NAME:MARGIN; cost:0.001 of the reward cost, which is minus the dollars. A
    margin such as 10% is a share of the baseline's mean. May be repeated."""
    not_higher: tuple[str, ...] = ()
    """The same for a score that should be low, such as a count of mistakes."""
    alpha: float = 0.05
    """Highest chance of promoting a change that has no effect."""
    regime: Literal["exchangeable", "new-group"] = "new-group"
    """How the tasks came, which decides what they prove: exchangeable (it is for more such tasks), or new-group (for
    tasks of a group that was not seen: a mailbox, a database, a person). Both are printed."""

    def guardrails(self) -> list[Guardrail]:
        """The guardrails of `--not-lower` and `--not-higher`.

        Raises:
            InputError: one is not NAME:MARGIN.
        """
        from ..prove.guardrails import read as read_guardrails

        return read_guardrails(self.not_lower, self.not_higher)


def improve(
    agent: Annotated[
        str,
        Parameter(
            help="A prompt's file (.txt, .md); an agent's file (.py); a function, or an agent's function, as "
            "module:function, from the current folder."
        ),
    ],
    /,
    *,
    setup: Setup,
    comparison: GateOptions,
    table: TableOptions,
    thumbs: ThumbOptions,
    with_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--with",
            help="A learner by name, whet's own or a plug-in's. May be repeated, from simple to complicated. If "
            "omitted: evolve, if the agent declares prompts, functions or settings, and head, if people rated enough "
            "of its decisions.",
        ),
    ] = (),
    model: ModelName = None,
    base_url: BaseUrl = None,
    rollouts: Annotated[
        AtLeastOne,
        Parameter(help="Most runs of the agent for learning and deciding; the gate's runs are not counted."),
    ] = 2000,
    worth: Annotated[
        float, Parameter(help="Least improvement on validation that a learner must bring to be kept.")
    ] = 0.005,
    dry_run: Annotated[bool, Parameter(help="Only print what would be done.")] = False,
    release: Annotated[bool, Parameter(help="Make the result live if the gate promotes it.")] = False,
    json: Print = False,
) -> int:
    """Make a prompt, a function or an agent better, and prove it.

    A prompt, by a table of examples: whet improve prompt.txt --data examples.csv --model NAME --base-url URL

    A function, by a table of examples: whet improve prices:total --data examples.csv

    An agent's prompt, by the thumbs of people: whet improve my_agent.py --store runs.db --model NAME --base-url URL

    An agent's prompt, by a table of examples: whet improve my_agent.py --data examples.csv --model NAME --base-url URL
    (or its function, my_agent:answer, where that calls a model)

    An agent, from its recorded runs: whet improve my_agent:answer --store runs.db --reward exact

    A table's road says in sentences what can change, by which rows, what they can prove and what it costs; then it
    does that, and exits 0 if the result is proven better on rows that nothing was chosen on, and 1 if not.

    Of an agent, first prints which learners it will use, and on what evidence. Each learner must improve the agent on
    validation tasks to be kept; then the gate compares the result with the agent as it is, on tasks that nothing
    learned from. Run the same command again to resume.
    """
    from ..learn.evolution.in_one_call import agent_behind, is_agent_file

    of_file = is_agent_file(agent) and not setup.reward
    if setup.data is not None and not setup.reward and (file := agent_behind(agent)):
        # Its answers are its model's, which no edit of its code changes for the better in a sandbox without network.
        agent, thumbs, of_file = file, replace(thumbs, entry=thumbs.entry or agent), True
    by_table = not of_file and is_tabled(agent, setup.data, setup.reward)
    if setup.reward and agent.endswith(".py") and ":" not in agent:
        raise InputError(
            f"{agent} is improved by the thumbs of --store, or by a table, whose answers --metric compares; a "
            f"reward is of a function's runs, and changes what the agent declares: name the function, as "
            f"{_module(agent)}:FUNCTION, and declare its prompt "
            f'in the file, PROMPT = whet.resource("prompt", "..."), read with PROMPT.get()'
        )
    if (of_file or by_table) and (comparison.not_lower or comparison.not_higher):
        by = "thumbs" if of_file and setup.data is None else "a table"
        raise InputError(
            "--not-lower and --not-higher guard the scores of an agent that rewards judge: give --reward, or leave "
            f"them out where {agent} is improved by {by}"
        )
    shared: dict[str, Any] = {
        **_shared(setup, comparison, model, base_url),
        "target": agent,
        "dry_run": dry_run,
        "json": json,
    }
    if of_file:
        run = ThumbRun(
            **shared,
            output=table.output,
            release=release,
            source=None if setup.data is None else table_input(setup.data, table),
            metric=table.metric,
            rubric=rubric_of(table.rubric),
            proposer_model=table.proposer_model,
            judge_model=table.judge_model,
            price=table.price,
        )
        return improve_agent_file(run, thumbs)
    if by_table:
        return improve_by_table(TableRun(**shared, data=setup.data), table)
    guardrails = comparison.guardrails()

    async def improved(store: Store) -> None:
        async with AsyncExitStack() as stack:
            rewards = await opened_rewards(
                setup.reward, store, base_url, stack, judge_model=table.judge_model, steers=True
            )
            if told := warning(rewards):
                print(f"note: {told}", file=sys.stderr)
            model_calls = stack.enter_context(on_trial(metered=_dollars(rewards)))
            work = _work(
                store, agent, setup, table, rewards, name=f"improve/{agent}", model_calls=model_calls
            )
            plan = await _planned(work, with_, model, base_url, rollouts)
            if not json or dry_run:
                print(work.evidence())
                print(work.power(comparison.regime))
                for line in plan.lines:
                    print(line)
            if dry_run:
                return
            if not plan.learners:
                raise InputError(
                    f"there is nothing of {agent} that could change: declare its prompt, as PROMPT = "
                    'whet.resource("prompt", "...") read with PROMPT.get(), or a function with whet.evolve; or '
                    "name a learner with --with"
                )
            improvement, verdict = await _improved(work, plan, rollouts, worth, guardrails, comparison)
            released = release and verdict.releasable
            if released:
                work.experiment.release(verdict, reason=f"whet improve {agent}")
            _say(improvement, verdict, released=released, json=json)

    with _recorded(setup) as store:
        asyncio.run(improved(store))
    return 0


def _shared(setup: Setup, comparison: GateOptions, model: str | None, base_url: str | None) -> dict[str, Any]:
    """Options of both commands as fields of an ImproveRun."""
    return {
        "store": setup.store,
        "model": model,
        "base_url": base_url,
        "alpha": comparison.alpha,
        "regime": comparison.regime,
        "seed": setup.seed,
    }


def _module(path: str) -> str:
    """How Python names a file, from the current folder."""
    return ".".join(PurePath(path).with_suffix("").parts).lstrip("/.")


def gate(
    a: Annotated[
        str,
        Parameter(
            help="The baseline if B is given, otherwise the candidate, which is compared with what is live. One of: "
            "live (what is live in the store), none (the agent without any release), the id of a Bundle or a Verdict "
            "in the store, or the output folder of a learner. Or a prompt's file (.txt, .md), with B another one."
        ),
    ],
    b: Annotated[str | None, Parameter(help="The candidate.")] = None,
    /,
    *,
    entry: Annotated[
        str | None,
        Parameter(
            help="The agent's function, as module:function, imported from the current folder. Not for prompts' files."
        ),
    ] = None,
    setup: Setup,
    comparison: GateOptions,
    columns: TableColumns,
    metric: Annotated[
        str | None,
        Parameter(
            help="A score in [0, 1] that decides instead of the first reward. Of prompts' files without --reward: how "
            "answers are compared, as of whet improve."
        ),
    ] = None,
    margin: Annotated[
        float, Parameter(help="0 tests whether B is better; 0.02, whether it is worse by at most 0.02.")
    ] = 0.0,
    also: Annotated[
        tuple[str, ...],
        Parameter(
            help="Another candidate. May be repeated: the best of all is judged. Of an agent's tasks it is chosen by a "
            "race on those that are not the gate's; of rows and of prompts' files on a third of the rows, or of their "
            "groups, and judged on the others."
        ),
    ] = (),
    rollouts: Annotated[AtLeastOne, Parameter(help="Most runs of the agent in that race.")] = 400,
    model: ModelName = None,
    judge_model: JudgeModel = None,
    base_url: BaseUrl = None,
    ci: Annotated[
        bool,
        Parameter(
            help="For a workflow of GitHub: print an annotation, write the job's summary, and exit with 0 for keep, 1 "
            "for drop, 10 for more pairs and 11 where a finding has to be cleared first. Otherwise the exit code is 0 "
            "whatever the answer."
        ),
    ] = False,
    json: Print = False,
) -> int:
    """Prove that a candidate is better than the agent as it is, or than another candidate.

    For example: whet gate whet_output --entry my_agent:answer --store runs.db --reward exact

    Runs the agent under both on the gate's tasks, which no learner has seen, pair by pair, and records the Verdict.
    A function whose rows whet evolve recorded, or of which --data holds rows, is called with their inputs, in the
    sandbox. A table holds rows if it has a column called input, or, where --input or --expected names others, if a
    search has changed the function; else it holds tasks of an agent.

    Prompts in files, on rows that none of them was written from: whet gate old.txt new.txt --also newer.txt --data
    examples.csv --model NAME --base-url URL --store runs.db

    --reward rubric has a judge mark the answers by the rubric that whet label --rubric proved and recorded in --store,
    asked at --base-url; --reward FILE.json:JUDGE one that OpenAI Evals, MLflow, Langfuse or Phoenix defined, once
    whet audit FILE.json --labels FILE --store RECORD has admitted it.
    """
    from ..learn.evolution.in_one_call import is_prompt
    from ..prove import answers
    from ..prove.verdict import render, to_json

    prompts = is_prompt(a)
    if entry is None and not prompts:
        raise InputError(
            "name the agent's function: --entry module:function; or give two prompts' files and --data FILE"
        )
    if columns.missing is not None and not prompts:
        raise InputError(
            "--missing is for prompts' files: of other rows, one without a right answer never counts"
        )
    options: dict[str, Any] = {
        "metric": metric,
        "margin": margin,
        "guardrails": comparison.guardrails(),
    }

    async def proven(store: Store) -> Verdict:
        async with AsyncExitStack() as stack:
            rewards = await opened_rewards(setup.reward, store, base_url, stack, judge_model=judge_model)
            if told := warning(rewards, metric):
                raise InputError(told)
            if prompts:
                shared = {**_shared(setup, comparison, model, base_url), "store": Path(store.path)}
                run = TableRun(**shared, target=a, data=setup.data, dry_run=False, json=json)
                names = [a, *([] if b is None else [b]), *also]
                return await gate_by_table(
                    names, run, columns, store, rewards=rewards, judge_model=judge_model, **options
                )
            compared = _Compared(a, b, also, entry or "", rollouts, quiet=json)
            return await _gated(store, compared, setup, columns, comparison, rewards, options)

    with _recorded(setup, fresh=prompts, judged=bool(setup.reward or prompts)) as store:
        verdict = asyncio.run(proven(store))
    print(to_json(verdict).decode() if json else render(verdict))
    if not ci:
        return 0
    best = f"the best of {len(also) + 1 + (prompts and b is not None)}"
    answered = answers.answer(verdict, candidate=(a if b is None else b) if not also else best)
    if not json:
        print(answers.github(verdict, answered, os.environ, title="whet gate"))
    return answers.EXIT_CODES[answered.word]


@dataclass(frozen=True, slots=True)
class _Compared:
    """What `whet gate` compares, as it was named."""

    a: str
    b: str | None
    also: tuple[str, ...]
    entry: str
    rollouts: int
    quiet: bool

    def bundles(self, store: Store) -> tuple[Bundle, dict[str, Bundle]]:
        """The baseline, and the candidates by name."""
        baseline, first = ("live", self.a) if self.b is None else (self.a, self.b)
        return named_bundle(store, baseline), {
            name: named_bundle(store, name) for name in (first, *self.also)
        }


async def _gated(
    store: Store,
    compared: _Compared,
    setup: Setup,
    columns: NamedColumns,
    comparison: GateOptions,
    rewards: Sequence[Reward],
    options: dict[str, Any],
) -> Verdict:
    """The Verdict on Bundles of an agent or a function."""
    from ..judge import name_of
    from ..learn.evolution.gating import gate_rows, rows_of

    baseline, candidates = compared.bundles(store)
    options = {
        **options,
        "metric": options["metric"] or name_of(rewards[0]),
        "alpha": comparison.alpha,
        "regime": comparison.regime,
        "label": "live" if compared.b is None else compared.a,
    }
    data, entry = setup.data, compared.entry
    names = columns.of(data)
    changed = {name for bundle in (baseline, *candidates.values()) for name in bundle}
    rows = rows_of(store, entry, data, names, changed)
    if rows:
        return await gate_rows(
            candidates,
            against=baseline,
            repository=Path(),
            entry=entry,
            rows=rows,
            columns=names,
            rewards=rewards,
            store=store,
            seed=setup.seed,
            say=None if compared.quiet else print,
            **options,
        )
    with on_trial(metered=_dollars(rewards)) as model_calls:
        work = _work(store, entry, setup, columns, rewards, name=f"gate/{entry}", model_calls=model_calls)
        if not compared.quiet:
            print(work.power(comparison.regime))
        if len(candidates) == 1:
            return await work.experiment.gate(*candidates.values(), against=baseline, **options)
        improvement = await work.experiment.choose(
            candidates, against=baseline, metric=options["metric"], rollouts=compared.rollouts
        )
        if not compared.quiet:
            for tried in improvement.candidates:
                print(f"  {tried.reason}")
        return await work.experiment.gate(improvement, **options)


_COMMANDS: dict[str, tuple[Callable[..., int], tuple[str, ...]]] = {
    "improve": (
        improve,
        ("data", "model", "base_url", "store", "reward", "with_", "rollouts", "dry_run", "release"),
    ),
    "gate": (
        gate,
        (
            *("entry", "store", "reward", "data", "margin", "metric", "also", "ci"),
            *("model", "judge_model", "base_url"),
        ),
    ),
}
"""Command → its function, and the options that its help lists first."""

# Resolved when they are asked for: reading the options' docstrings costs milliseconds.
for _name, (_function, _) in _COMMANDS.items():
    app.command(f"{__name__}:{_name}_command", help=_function.__doc__, **listed(_name))


def __getattr__(name: str) -> Any:
    if not name.endswith("_command"):
        raise AttributeError(name)
    function, first = _COMMANDS[name.removesuffix("_command")]
    options: dict[str, Any] = {"setup": Setup(), "comparison": GateOptions()}
    topics: dict[str, Sequence[str]] = {"": (*first, "json")}
    if name == "improve_command":
        options |= {"table": TableOptions(), "thumbs": ThumbOptions()}
        topics[TOPIC] = [field.name for field in fields(TableOptions)]
        topics[THUMBED] = [field.name for field in fields(ThumbOptions)]
    else:
        options["columns"] = TableColumns()
        topics[COLUMNS] = [field.name for field in fields(NamedColumns)]
        topics[PROMPTS] = ["missing"]
    return with_options(function, options, topics=topics)


@contextmanager
def _recorded(setup: Setup, *, fresh: bool = False, judged: bool | None = None) -> Iterator[Store]:
    """The record while it is open.

    Args:
        fresh: it may be a new one, whatever `setup` says of tasks.
        judged: something says how good a run is; if None, whether `setup` names a reward.
    """
    from ..record.store import Store

    path = named_store(setup.store)
    if not (bool(setup.reward) if judged is None else judged):
        raise InputError(
            "nothing says how good a run is: give --reward NAME (exact, rated, thumbs or module:function), or --data "
            "with a table of examples"
        )
    # With tasks of its own a first run may make the record.
    if setup.data is None and not fresh:
        existing(path)
    with Store(path) as store:
        yield store


def _work(
    store: Store,
    agent: str,
    setup: Setup,
    columns: NamedColumns,
    rewards: Sequence[Reward],
    *,
    name: str,
    model_calls: ModelCalls | None,
) -> _Work:
    """The work of an agent that is imported."""
    function = named(agent)
    tasks = columns.tasks(setup.data)
    if tasks is None:
        tasks = tasks_of(store, function)
    return _Work(function, store, tasks, rewards, name=name, seed=setup.seed, model_calls=model_calls)


def _dollars(rewards: Sequence[Reward]) -> bool:
    """True if what the model calls of a run cost is asked for."""
    from ..judge import name_of

    return any(name_of(reward) == "cost" for reward in rewards)


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
        model_calls: ModelCalls | None,
    ) -> None:
        from ..judge import name_of
        from ..judge.agent_env import calls
        from ..learn.datasets.splits import split
        from ..learn.experiment import Experiment
        from ..models.heads import load_head
        from ..record.tracing import register_loader
        from ..types import Split

        register_loader("head", load_head)
        # A task that shares nothing with another is a group of its own.
        grouped = [task if task.group else replace(task, group=task.id) for task in tasks]
        groups = {task.group for task in grouped}
        if len(groups) < 3:
            raise InputError(
                f"{counted(len(tasks), 'task')} in {counted(len(groups), 'group')} cannot be divided into train, "
                "validation and gate: record more runs, or give tasks with --data"
            )
        divided = split(grouped, seed=seed, balanced=len(groups) < FEW_GROUPS)
        self.store, self.metric = store, name_of(rewards[0])
        self._held = [task.group for task in divided if task.split is Split.GATE]
        self.experiment: Experiment = Experiment(
            env=calls(function, record=store, model_calls=model_calls),
            tasks=divided,
            rewards=rewards,
            store=store,
            seed=seed,
            name=name,
            # Of two rollouts at once nobody could tell whose a model call is.
            concurrency=64 if model_calls is None else 1,
        )

    def evidence(self) -> str:
        """A line on the tasks to learn from and to decide on."""
        count = len(self.experiment.train) + len(self.experiment.validation)
        return (
            f"{counted(count, 'task')} to learn from, {len(self.experiment.validation)} of them for validation; "
            f"{self.metric} decides"
        )

    def power(self, regime: Sampling) -> str:
        """A line on what the gate's tasks can prove in either regime."""
        from ..prove.power import power_in_words

        return power_in_words(len(self._held), len(set(self._held)), regime=regime)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The learners, their start, and a line on the evidence of each."""

    start: Bundle
    learners: dict[str, Optimizer]
    lines: list[str]


async def _planned(
    work: _Work, chosen: Sequence[str], model: str | None, base_url: str | None, rollouts: int
) -> _Plan:
    from ..record.tracing import resources
    from ..record.tracing.resources import FunctionResource
    from ..types import Bundle

    start = work.store.live() or Bundle()
    declared = resources()
    lines: list[str] = []
    recorded = await work.experiment.recorded()
    runs = [run for group in recorded for run in group.trajectories]
    used = _read(declared, runs, lines)
    settings = [name for name in used if _evolves(declared[name], lines)]
    # A function as it came is not named: its Version is the bare text that a search makes of it.
    came = [declared[name] for name in settings if not isinstance(declared[name], FunctionResource)]
    start = Bundle([handle.default_version for handle in came]).put(*start.values())
    rated = sum(any(feedback.value for feedback in run.feedback) for run in runs)
    decisions = {step.name for run in runs for step in run.steps if step.kind == "function"}
    learners: dict[str, Optimizer] = {}
    for name in chosen or ("evolve", "head"):
        if name == "evolve" and not settings:
            lines.append(
                "evolve: not used, because the agent declares nothing that can vary (whet.resource, whet.evolve)"
            )
        elif name == "head" and not chosen and (rated < FEWEST_THUMBS or not decisions):
            lines.append(
                f"head: not used, because {counted(rated, 'run')} with a thumb and "
                f"{counted(len(decisions), 'decision')} are recorded; it needs {FEWEST_THUMBS} runs with decisions"
            )
        else:
            learners[name] = _learner(name, work.metric, settings, model, base_url, rollouts)
            evidence = f"{counted(len(runs), 'recorded run')}, {rated} of them rated"
            if name == "evolve":
                evidence = f"{', '.join(settings)} on {counted(len(work.experiment.train), 'train task')}"
            lines.append(f"{name}: {evidence}")
    return _Plan(start, learners, lines)


def _read(names: Iterable[str], runs: Sequence[Trajectory], lines: list[str]) -> list[str]:
    """Names that the recorded runs have read; all of them where no run says which Versions it ran under."""
    versioned = [run for run in runs if run.versions]
    read = {name for run in versioned for name in run.versions}
    unread = [name for name in names if versioned and name not in read]
    if unread:
        lines.append(
            f"evolve: leaves {', '.join(unread)} out, which none of {counted(len(versioned), 'recorded run')} has "
            "read; record runs that read them"
        )
    return [name for name in names if name not in unread]


def _evolves(handle: Resource, lines: list[str]) -> bool:
    """True for a text, a function that can be called by JSON, or a value with a knob: `Evolve` can change these."""
    from ..learn.evolution.agents.functions import refusal
    from ..learn.evolution.editing.operators import knobs
    from ..record.tracing.resources import FunctionResource

    if isinstance(handle, FunctionResource):
        reason = refusal(handle)
        if reason:
            lines.append(f"evolve: leaves {handle.name} as it is: {reason}")
        return not reason
    content = handle.version.content
    return isinstance(content, str) or bool(knobs({"content": content}))


def _learner(
    name: str, metric: str, settings: Sequence[str], model: str | None, base_url: str | None, rollouts: int
) -> Optimizer:
    """The learner of that name, made with those of these arguments that it takes."""
    from ..learn.plugins import load, optimizer
    from ..models.trial import trial_address

    arguments: dict[str, Any] = {"score": metric}
    if name in ("evolve", "reflect"):
        arguments["resources"] = tuple(settings)
    if name == "evolve":
        arguments["options"] = _search(rollouts)
    if model is not None:
        if base_url is None:
            raise InputError(f"--model {model} needs --base-url, its endpoint")
        arguments["model"] = load("whet.models", "openai")(
            trial_address(base_url), model, api_key=os.environ.get("OPENAI_API_KEY")
        )
    takes = inspect.signature(load("whet.optimizers", name)).parameters
    return optimizer(name, **{key: argument for key, argument in arguments.items() if key in takes})


async def _improved(
    work: _Work,
    plan: _Plan,
    rollouts: int,
    worth: float,
    guardrails: Sequence[Guardrail],
    comparison: GateOptions,
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
        improvement,
        metric=work.metric,
        guardrails=guardrails,
        alpha=comparison.alpha,
        regime=comparison.regime,
        label="the agent as it is",
    )
    return improvement, verdict


def _say(improvement: Improvement, verdict: Verdict, *, released: bool, json: bool) -> None:
    from ..prove.verdict import render

    if json:
        rows = [
            {
                "name": candidate.name,
                "entered": candidate.entered,
                "reason": candidate.reason,
                "bundle": candidate.bundle.id,
            }
            for candidate in improvement.candidates
        ]
        report = {
            "bundle": verdict.candidate,
            "candidates": rows,
            "verdict": verdict,
            "diff": improvement.diff(),
            "released": released,
            "rollouts": improvement.rollouts,
        }
        print_json(report)
        return
    for candidate in improvement.candidates:
        print(f"  {candidate.reason}")
    print(render(verdict))
    if improvement.bundle != improvement.parent:
        print(improvement.diff())
    if released:
        print("released; whet rollback takes it back")
    elif verdict.releasable:
        print(f"not released: add --release, or run whet release {verdict.candidate}")


def _search(rollouts: int) -> EvolveOptions:
    """A search that ends within about half of these rollouts; the rest is for deciding."""
    from ..learn.optimizers.evolve import EvolveOptions

    tasks = max(24, min(240, rollouts // 20))
    probe = min(24, tasks)
    generations = max(2, min(20, rollouts // (2 * (8 * probe + tasks))))
    proposals = max(8, min(60, rollouts // 60))  # of texts and functions: each is run on all train tasks
    return EvolveOptions(
        generations=generations, children=8, tasks=tasks, probe=probe, finish=2, proposals=proposals
    )


def tasks_of(store: Store, function: Any) -> list[Task]:
    """The tasks of an agent's recorded runs."""
    from ..judge.replay import runs_of
    from ..record.influence import weighed
    from ..record.tasks import tasks

    influence = weighed(runs_of(function, store.trajectories()))
    if influence.sentence:
        print(influence.sentence, file=sys.stderr)
    return tasks(influence.runs)


def named_bundle(store: Store, name: str) -> Bundle:
    """The Bundle that `live`, `none`, an id, or a learner's output stands for."""
    from ..record.store import read_bundle, release_of
    from ..types import Bundle

    if name == "none":
        return Bundle()
    if name == "live":
        return store.live() or Bundle()
    path = Path(name)
    return read_bundle(path).bundle if path.exists() else release_of(store, name)
