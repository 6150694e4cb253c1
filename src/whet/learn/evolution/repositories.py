"""`whet evolve --target`: a repository and rows in, an Experiment on them, a patch and its evidence out.

Writes into its folder: `agent.patch` (for `git apply`), `bundle.json` (for `whet release`), `examples.jsonl`
(every row, before and after), `history.json` (scores, lineage and the earnings of each operator, per search),
`verdict.json` (the whole report), and `runs.db`, the record from which the same command resumes, unless another
is named.  The repository itself is never written to.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from ...errors import InputError, TrainingRefused
from ...judge.evaluator import Evaluator, load
from ...judge.generation import Folder
from ...judge.proof import prove
from ...models.base import Model
from ...models.budget import Meter
from ...record.columns import ColumnNames
from ...record.influence import weighed
from ...record.store import Store
from ...record.store.bundles import BUNDLE_FILE, write_bundle
from ...record.tracing.signals import hear
from ...sandbox import Pool
from ...types import Bundle, Json, Split, Task, Trajectory, Verdict
from ..datasets.division import standing
from ..datasets.recorded import distinct, recorded
from ..experiment import Experiment
from .agents.agent import DATA, RepositoryAgent
from .agents.candidates import ProgramCodec
from .agents.networked import Networked
from .agents.outside import Compared, Comparer, Inside, Targets
from .agents.pieces import patch
from .function_proof import FunctionFolds, function_folds
from .improving import FINALISTS, Decision, Pieces, judged_by
from .reports import EvolutionReport, Pairs, findings_of, none_lost
from .search.cross_fitting import CrossFitting
from .search.demonstrations import Demonstration, pool_of
from .search.engine import SearchOptions, SearchOutcome
from .search.estimate import Estimate, estimated
from .search.records import SearchProgress
from .search.settings import RepositoryInput, Settings, folder_in_git, lineage_of, modules_of

_PREFLIGHT = 200
"""Rows on whose right answers an evaluator is tried before anything is spent."""


async def evolve_targets(
    source: RepositoryInput,
    settings: Settings,
    *,
    models: Sequence[Model] | None = None,
    progress: SearchProgress | None = None,
    notice: Callable[[str], None] | None = None,
    meter: Meter | None = None,
) -> EvolutionReport:
    """Improve the targets of a repository, and let the gate judge the result.

    Args:
        models: used instead of those of the config.
        progress: called with every committed record and the function that it is about.
        notice: called with the reason where a search begins anew although the record has an earlier one.
        meter: counts what is spent, for who shows it.

    Raises:
        InputError: a target, row or option that cannot be used.
        TrainingRefused: an evaluator that was not admitted, or cannot tell better from worse.
        SandboxError: the sandbox cannot be trusted here, with the fix.
    """
    started = time.monotonic()
    agent = RepositoryAgent(source.repository, source.targets, source.entry, source.network)
    intake: list[str] = []

    def note(sentence: str) -> None:
        intake.append(sentence)
        if notice is not None:
            notice(sentence)

    async with AsyncExitStack() as stack:
        run = await _opened(source, settings, agent, models, stack, note)
        pieces, form = run.pieces, run.pieces.env.form
        if settings.store is not None:
            pieces.shown = _shown(agent, run.rows, run.store)
        pieces.progress, pieces.notice = progress, notice
        learned = await _learned(run, settings, meter, progress)
        rows, verdict, why = learned.rows, learned.verdict, learned.why
        findings = findings_of(rows)
        if verdict is not None:
            sentences = [str(finding["sentence"]) for finding in findings]
            lost = none_lost(rows)
            verdict = replace(
                verdict,
                promote=verdict.promote and not lost,
                reasons=(*verdict.reasons, *filter(None, [lost]), *sentences),
            )
        store = run.store
        # First: it says what it was made from, and a Version that is recorded stays as it is.
        store.put_versions(*learned.bundle.values())
        for search in learned.searches.values():
            store.put_versions(*lineage_of(search, form))
        write_bundle(
            run.output / BUNDLE_FILE, learned.bundle, baseline=Bundle(), verdict=verdict, store=run.record
        )
    program = form.program(learned.bundle)
    report = EvolutionReport(
        agent=agent,
        bundle=learned.bundle,
        searches=learned.searches,
        decisions=learned.decisions,
        rows=rows,
        verdict=verdict,
        why=why,
        folds=len(run.folds),
        out_of_fold=learned.out_of_fold,
        taken_back=learned.taken_back,
        evaluators={name: comparer.name for name, comparer in pieces.comparers.items()},
        output=run.output,
        patch=patch(agent.pieces, program, agent.repository.written, folder_in_git(agent.repository.root)),
        seconds=time.monotonic() - started,
        trusted_only=pieces.env.trusted_only,
        models=pieces.proposing.names,
        spent=learned.spent,
        agent_calls=run.network.calls if run.network is not None else 0,
        findings=findings,
        standing={name: msgspec.to_builtins(standing(mine)) for name, mine in run.rows.items()},
        intake=intake,
    )
    report.write()
    return report


async def estimate_targets(
    source: RepositoryInput,
    settings: Settings,
    *,
    models: Sequence[Model] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Estimate:
    """The cost of a run: judges the source as it stands, and asks no model to propose.

    Args:
        notice: called with the rows that were merged and left out, and the difference that the gate can show.
    """
    agent = RepositoryAgent(source.repository, source.targets, source.entry, source.network)
    async with AsyncExitStack() as stack:
        run = await _opened(source, settings, agent, models, stack, notice)
        return await estimated(run.experiment, run.pieces, settings.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """What was searched, what it came to, and the proof."""

    bundle: Bundle
    rows: Mapping[str, Pairs]
    verdict: Verdict | None
    why: str
    searches: Mapping[str, SearchOutcome]
    decisions: Sequence[Decision]
    taken_back: int
    spent: Mapping[str, Json]
    out_of_fold: tuple[float, float] | None = None


async def _learned(
    run: _Opened, settings: Settings, meter: Meter | None, progress: SearchProgress | None
) -> _Learned:
    """Search once and judge on the gate's rows; or once for each fold, and judge on all rows."""
    if run.folds:
        return await _folded(run, settings, meter, progress)
    pieces, experiment = run.pieces, run.experiment
    improvement = await experiment.improve(pieces, rounds=1, budget=settings.budget, within=meter)
    rows = await _every_row(run, experiment, improvement.bundle)
    verdict, why = None, "no row was held back for the gate: give more rows"
    if not len(improvement.bundle):
        why = _why_nothing(pieces.decisions)
    elif run.held:
        verdict, why = (
            await experiment.gate(
                improvement,
                metric="score",
                alpha=settings.alpha,
                label="the source as it stands",
                regime=settings.regime,
            ),
            "",
        )
    return _Learned(
        bundle=improvement.bundle,
        rows=rows,
        verdict=verdict,
        why=why,
        searches=pieces.searches,
        decisions=pieces.decisions,
        taken_back=pieces.taken_back,
        spent=pieces.proposing.spent,
    )


async def _folded(
    run: _Opened, settings: Settings, meter: Meter | None, progress: SearchProgress | None
) -> _Learned:
    pieces, ids = run.pieces, [task.id for fold in run.folds for task in fold]
    count = len(run.folds)
    options = pieces.options
    if options.iterations is not None and settings.asks(pieces.proposing.models):
        # Calls are what is paid: each search has its share of them. Edits cost nothing but time.
        options = replace(options, iterations=max(1, options.iterations // count))
    if options.cpu_seconds is not None:
        options = replace(options, cpu_seconds=options.cpu_seconds / count)

    def searching(tasks: Sequence[Task], place: int) -> Pieces:
        name = next(iter(run.rows))
        shown = _shown(pieces.agent, {name: tasks}, run.store) if settings.store is not None else {}
        return replace(
            pieces,
            options=options,
            shown=shown,
            chosen_on=ids,
            progress=partial(progress, search=place, searches=count) if progress is not None else None,
            # Of this search alone.
            searches={},
            decisions=[],
            taken_back=0,
            _aside={},
        )

    search = FunctionFolds(
        folds=run.folds,
        experiment=run.experiment_on,
        pieces=searching,
        form=pieces.env.form,
        budget=settings.budget,
        meter=meter,
    )
    proof = await CrossFitting(
        search=search,
        folds=run.folds,
        rewards=run.experiment.rewards,
        store=run.store,
        name=run.experiment.name,
        what="the source as it stands",
        alpha=settings.alpha,
        regime=settings.regime,
    ).run()
    return _Learned(
        bundle=proof.bundle,
        rows=await _every_row(run, search.everything(), proof.bundle),
        verdict=proof.verdict,
        why="; ".join([proof.reason, *([_why_nothing(search.decisions)] if search.decisions else [])]),
        searches=search.searches,
        decisions=search.decisions,
        taken_back=search.taken_back,
        spent=search.spent or pieces.proposing.spent,
        out_of_fold=proof.gate,
    )


async def _every_row(run: _Opened, experiment: Experiment, after: Bundle) -> dict[str, Pairs]:
    """Every row before and after."""
    trajectories: dict[str, list[Trajectory]] = {}
    for bundle in (Bundle(), after)[: 1 + (len(after) > 0)]:
        run.pieces.env.reserve(bundle, [*experiment.train, *experiment.validation], spare=False)
        groups = [group for part in Split for group in await experiment.evaluate(bundle, part)]
        groups += await experiment.collect(bundle, run.plain)
        for group in groups:
            trajectories.setdefault(group.task.id, []).extend(group.trajectories)
    return {
        # Where nothing changed a row has one run, which is both.
        name: [(trajectories[row.id][0], trajectories[row.id][-1]) for row in mine]
        for name, mine in run.rows.items()
    }


def _why_nothing(decisions: Sequence[Decision]) -> str:
    """The reason for no verdict where nothing changed."""
    why = "nothing better was found, so there is nothing to judge"
    if decisions and all((decision.own or decision.end_to_end) == (0, 0) for decision in decisions):
        why += (
            "; every candidate was worth 0 on every row, so a search had nothing to climb: "
            "an evaluator that values what is nearly right gives it a slope (--evaluators)"
        )
    return why


@dataclass(frozen=True, slots=True)
class _Opened:
    """Everything that a run needs, closed with its stack."""

    experiment: Experiment
    experiment_on: Callable[[Sequence[Task], str], Experiment]
    """Makes one of some tasks, whose name ends with a suffix."""
    folds: Sequence[Sequence[Task]]
    """Empty where rows are held back."""
    store: Store
    pieces: Pieces
    rows: Mapping[str, Sequence[Task]]
    """Function → all its rows."""
    plain: Sequence[Task]
    """Rows that are only shown: their answer is unknown, or the gate does not judge by their function."""
    held: int
    """Rows of the gate."""
    network: Networked | None
    output: Path
    record: Path


async def _opened(
    source: RepositoryInput,
    settings: Settings,
    agent: RepositoryAgent,
    models: Sequence[Model] | None,
    stack: AsyncExitStack,
    note: Callable[[str], None] | None,
) -> _Opened:
    output = settings.output or Path("whet_output")
    options = _options(source, settings, agent, models)
    proposing = settings.proposing(models)
    output.mkdir(parents=True, exist_ok=True)
    names = ColumnNames(input=source.input, expected=source.expected, group=source.group)
    rows = _apart(
        agent.rows(source.data or source.repository / DATA, seed=options.seed, note=note, columns=names)
    )
    if note is not None:
        for name, mine in rows.items():
            note(f"{name}: {standing(mine).sentence}")
            note(f"{name}: {standing(mine).power(settings.regime)}")
    ways, network, bench = await _ways(source, settings, agent, rows, options, output, stack)
    comparers = {
        name: await stack.enter_async_context(Comparer(await _evaluator(source, name, mine), bench))
        for name, mine in rows.items()
    }
    for name, mine in rows.items():
        # Not the gate's rows: nothing is decided by them before the gate.
        open_rows = [row for row in mine if row.answer_known and row.split is not Split.GATE]
        broken = await comparers[name].refuse_broken(open_rows[:_PREFLIGHT])
        if broken and note is not None:
            note(
                f"{name}: {comparers[name].name} breaks on the right answer of {len(broken)} of "
                f"{len(open_rows[:_PREFLIGHT])} rows, where every answer is therefore worth 0; first {broken[0]}"
            )
    reached = {name: [piece for piece in agent.pieces if agent.reaches(name, piece)] for name in rows}
    targets = {name: agent.target(name, reached[name]) for name in rows}
    env = Targets(targets, ways, ProgramCodec.of(agent.pieces))
    tasks, plain = _tasks(agent, rows)
    folds = _folds(source, settings, rows, options.seed)
    record = settings.store or output / "runs.db"
    store = stack.enter_context(Store(record))

    def experiment_on(tasks: Sequence[Task], suffix: str = "") -> Experiment:
        return Experiment(
            env=env,
            tasks=tasks,
            rewards=[Compared(comparers)],
            seed=options.seed,
            store=store,
            name=f"evolve/{agent.entry or agent.pieces[0].mark.name}{suffix}",
            folder=output / "artifacts",
            record=0.0,
            concurrency=1,  # a candidate answers one call at a time; how many do is the search's affair
        )

    pieces = Pieces(agent, env, comparers, proposing, options, settings.population)
    held = sum(task.split is Split.GATE for task in tasks)
    return _Opened(
        experiment=experiment_on(tasks),
        experiment_on=experiment_on,
        folds=folds,
        store=store,
        pieces=pieces,
        rows=rows,
        plain=plain,
        held=held,
        network=network,
        output=output,
        record=record.resolve(),
    )


def _apart(rows: Mapping[str, Sequence[Task]]) -> dict[str, list[Task]]:
    """The rows, none of which has an id that one of another function has."""
    occurrences = Counter(row.id for mine in rows.values() for row in mine)
    return {
        name: [replace(row, id=f"{name}/{row.id}") if occurrences[row.id] > 1 else row for row in mine]
        for name, mine in rows.items()
    }


def _tasks(agent: RepositoryAgent, rows: Mapping[str, Sequence[Task]]) -> tuple[list[Task], list[Task]]:
    """The tasks that are learned from and judged on, and those that are only shown."""
    judged = judged_by(agent, rows)
    tasks: list[Task] = []
    plain: list[Task] = []
    for name, mine in rows.items():
        for row in mine:
            if not row.answer_known or (row.split is Split.GATE and name not in judged):
                plain.append(replace(row, group=""))
            else:
                # The gate looks at other rows than those of this function, so their groups do not concern it.
                apart = f"{name}/{row.group}" if row.group else ""
                tasks.append(row if name in judged else replace(row, group=apart))
    return tasks, plain


def _folds(
    source: RepositoryInput, settings: Settings, rows: Mapping[str, Sequence[Task]], seed: int
) -> Sequence[Sequence[Task]]:
    """The folds that are asked for.

    Raises:
        InputError: of several functions, of an agent with its network, or of rows that cannot be divided.
    """
    if not settings.folds:
        return ()
    if source.network or len(rows) != 1:
        raise InputError(
            f"--folds {settings.folds} is for the rows of one function in the sandbox; here are rows of "
            f"{len(rows)} ({', '.join(rows)}){' and --network' if source.network else ''}: leave it out"
        )
    return function_folds(next(iter(rows.values())), settings.folds, seed=seed)


async def _ways(
    source: RepositoryInput,
    settings: Settings,
    agent: RepositoryAgent,
    rows: Mapping[str, Sequence[Task]],
    options: SearchOptions,
    output: Path,
    stack: AsyncExitStack,
) -> tuple[dict[str, Inside], Networked | None, Pool]:
    """How each function is called, how an entry that keeps its network is, and where evaluators run."""
    timeout = 10.0 if settings.timeout is None else settings.timeout
    outside = agent.entry if source.network else None
    sliced = [callee for name, callee in agent.callees.items() if name != outside]
    warm = modules_of(text for callee in sliced for text in callee.files.values() if isinstance(text, str))
    # An agent outside holds a process for each of its functions, and for one that hung.
    processes = 2 * max(1, sum(piece.code for piece in agent.pieces)) if source.network else 1
    pool = Pool(settings.sandbox(timeout, 1024), modules=warm, workers=processes * options.workers)
    inside = Inside(await stack.enter_async_context(pool))
    # A pool of their own, so that an evaluator never shares a process with a candidate.
    bench = await stack.enter_async_context(Pool(settings.sandbox(timeout, 1024)))
    ways: dict[str, Inside] = dict.fromkeys(rows, inside)
    if outside is None:
        return ways, None, bench
    network = Networked(
        agent,
        pool,
        seconds=120.0 if settings.timeout is None else settings.timeout,
        most=source.agent_calls,
        without=[output, source.repository / DATA],
    )
    stack.callback(network.end)
    mine = rows.get(outside, [])
    validation = sum(row.split is Split.VALIDATION for row in mine)
    # Calls that come after the search: its finalists on the validation rows, and start and end on the others.
    network.kept = (FINALISTS + 1) * validation + 2 * sum(
        row.split is Split.GATE or not row.answer_known for row in mine
    )
    least = network.kept + sum(row.answer_known and row.split is Split.TRAIN for row in mine)
    if source.agent_calls is not None and source.agent_calls < least:
        raise InputError(
            f"--agent-calls {source.agent_calls}: for these {len(mine)} rows the start, the finalists and the gate "
            f"take {least}, so none are left to search with: give more calls, or fewer rows"
        )
    return {**ways, outside: network}, network, bench


def _options(
    source: RepositoryInput, settings: Settings, agent: RepositoryAgent, models: Sequence[Model] | None
) -> SearchOptions:
    return settings.search(
        code=any(piece.code for piece in agent.pieces),
        text=any(not piece.code for piece in agent.pieces),
        length=sum(len(piece.text) for piece in agent.pieces),
        asks=settings.asks(models),
        dear=source.network,
    )


def _shown(
    agent: RepositoryAgent, rows: Mapping[str, Sequence[Task]], store: Store
) -> dict[str, Sequence[Demonstration]]:
    """Function → rated runs of the record that its prompts may show, without those of earlier searches."""
    # First: what users let show in their sessions rates the runs that are read below.
    hear(store)
    recorded_runs = (run for run in store.trajectories() if "function" not in run.task.initial_state)
    # What a prompt shows, a model obeys: nobody's corrections fill it, and none that gives orders is among them.
    runs = weighed(recorded_runs).runs
    demonstrations: dict[str, Sequence[Demonstration]] = {}
    for name, mine in rows.items():
        callee = agent.callees[name]
        rated_rows, _ = distinct(recorded(callee.signature, callee.entry.partition(":")[2], runs))
        demonstrations[name] = pool_of(rated_rows, mine)
    return demonstrations


async def _evaluator(source: RepositoryInput, name: str, rows: Sequence[Task]) -> Evaluator | None:
    """The comparer of one function's answers: the one named, once proven, or the best admitted; None for equality."""
    path = source.evaluators
    if path is not None and path.is_file():
        evaluator = load(str(path))
        # An evaluator that was chosen by the gate's rows would be judged there by what admitted it.
        goals = [row for row in rows if row.answer_known and row.split is not Split.GATE]
        proof = await prove(evaluator, rows=goals)
        if not proof.admitted:
            raise TrainingRefused(
                f"evaluator {path} is not admitted for {name}: {'; '.join(proof.reasons)}. "
                f"whet audit {path} --target ROWS shows the table"
            )
        return evaluator
    folders = [path / name, path] if path is not None else [source.repository / "evaluators" / name]
    for folder in folders:
        if folder.is_dir():
            best = Folder(folder).best()
            if best is not None:
                return best
    if path is not None:
        raise InputError(
            f"{path} holds no admitted evaluator for {name}: whet generate-evaluators --target {name}"
        )
    return None
