"""One run of `whet evolve --target`: a repository and rows in, a patch and its evidence out.

Writes into its folder: `agent.patch` (what `git apply` takes), `examples.jsonl` (every row, before and
after), `history.json` (scores, lineage, what each operator earned, per search), `verdict.json` (the
whole report), and `evolution.db` with `answers.db`, from which the same command goes on where it ended.
The repository itself is never written to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..budget import Meter
from ..data.examples import Example
from ..data.recorded import distinct, recorded
from ..errors import InputError, NotFoundError, TrainingRefused
from ..models import Price
from ..models.base import Model
from ..reward.evaluator import Evaluator, load
from ..reward.generation import Folder
from ..reward.proof import prove
from ..sandbox import Limits, Local, Pool, Sandbox
from ..store import Store
from ..types import Budget, Json, Split, digest
from .agent import DATA, Agent
from .blocks import BLOCKS
from .demonstrations import Demonstration, pool_of
from .edits import EDITS
from .engine import Found, SearchOptions
from .estimate import Estimate, estimated
from .improving import FINALISTS, Improved, Improvement, mean
from .job import command_of, folder_in_git, modules_of, names_of, proposers_of, spent_of
from .journal import Record
from .journal import opened as opened_journal
from .networked import Networked
from .openevolve import Config
from .outside import Comparer, Inside, Outside, Trial, Way
from .pieces import patch
from .proposers import Proposer, Proposes


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetJob:
    """What `whet evolve --target` is asked to do."""

    targets: Sequence[str]
    repository: Path = Path()
    entry: str | None = None
    """The function that everything is judged through."""
    data: Path | None = None
    """A folder with one for each function, or a file with rows of the entry."""
    evaluators: Path | None = None
    """A folder with one for each function, or one evaluator, which is proven first."""
    store: Path | None = None
    """The record of runs: well-rated ones become demonstrations of a prompt."""
    config: Config | None = None
    budget: Budget = field(default_factory=Budget)
    price: Price | None = None
    iterations: int | None = None
    cpu_seconds: float | None = None
    offline: bool = False
    edits: bool = True
    workers: int | None = None
    timeout: float | None = None
    seed: int | None = None
    output: Path = Path("whet_output")
    target_score: float | None = None
    population: str = "auto"
    ask: str = "changes"
    command: str = ""
    """As in a Job, both."""
    command_seconds: float = 600.0
    unsafe_local: bool = False
    network: bool = False
    """The entry runs outside, with its network and environment; what evolves of it stays inside (`networked.py`)."""
    agent_calls: int | None = None
    """Calls of an entry that runs outside, at most."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What came of a TargetJob."""

    improved: Improved
    agent: Agent
    evaluators: Mapping[str, str]
    """Function → what compared its answers."""
    output: Path
    patch: str
    seconds: float
    models: Sequence[str]
    spent: Mapping[str, Json]
    """Of those models: calls, tokens, dollars."""
    agent_calls: int = 0
    """Of an entry that ran outside."""

    def json(self) -> dict[str, Json]:
        """What `--json` prints and `verdict.json` holds."""
        improved, verdict = self.improved, self.improved.verdict
        searches = improved.searches.values()
        return {
            "targets": [each.mark.name for each in self.agent.pieces],
            "entry": self.agent.entry,
            "scores": {name: _scores(rows) for name, rows in improved.trials.items()},
            "pieces": msgspec.to_builtins(improved.decisions),
            "promote": bool(verdict and verdict.promote),
            "verdict": msgspec.to_builtins(verdict) if verdict else None,
            "why_no_verdict": improved.why,
            "patch": str(self.output / "agent.patch") if self.patch else None,
            "examples": str(self.output / "examples.jsonl"),
            "evaluators": dict(self.evaluators),
            "iterations": sum(each.iterations for each in searches),
            "evaluations": sum(each.evaluations for each in searches),
            "duplicates_skipped": sum(each.duplicates for each in searches),
            "timeouts": sum(each.timeouts for each in searches),
            "resumed": sum(each.replayed for each in searches),
            "changes_taken_back": improved.taken_back,
            "cpu_seconds": round(sum(each.cpu_seconds for each in searches), 3),
            "seconds": round(self.seconds, 3),
            "models": list(self.models),
            "spent": dict(self.spent),
            "agent_calls": self.agent_calls,
            "co_resident": False,
            "trusted_only": improved.trusted_only,
        }


def _scores(rows: Sequence[tuple[Trial, Trial]]) -> dict[str, Json]:
    """Split → how many rows there are, and their mean score before and after."""
    found: dict[str, Json] = {}
    for part in (Split.TRAIN, Split.VALIDATION, Split.GATE):
        mine = [pair for pair in rows if (pair[0].row.split or Split.TRAIN) is part and pair[0].row.goal]
        if mine:
            before, after = mean([old for old, _ in mine]), mean([new for _, new in mine])
            found[part.value] = {"n": len(mine), "before": before, "after": after}
    plain = [pair for pair in rows if not pair[0].row.goal]
    if plain:
        found["without_a_goal"] = {"n": len(plain), "changed": sum(a.answer != b.answer for a, b in plain)}
    return found


async def run_target_job(
    job: TargetJob,
    *,
    models: Sequence[Model] | None = None,
    progress: Callable[[str, Record], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> TargetReport:
    """Run a TargetJob.

    Args:
        models: asked instead of those of the config.
        notice: told why a search begins anew where there is an earlier one in the folder.

    Raises:
        InputError: a target, row or option that cannot be used.
        TrainingRefused: an evaluator that was not admitted, or cannot tell better from worse.
        SandboxError: the sandbox cannot be trusted here, with the fix.
    """
    started = time.monotonic()
    agent = Agent(job.repository, job.targets, job.entry, job.network)
    async with AsyncExitStack() as stack:
        opened = await _open(job, agent, models, stack)
        store = stack.enter_context(Store(job.output / "evolution.db"))
        run = Improvement(
            agent,
            opened.judges,
            opened.proposers,
            opened.options,
            lambda name, made_of: opened_journal(store, digest([name, made_of]), name, made_of, notice),
            progress,
            job.population,
            opened.meter,
            _shown(job, agent, opened.judges),
            opened.writer,
        )
        improved = await run.run()
    text = patch(agent.pieces, improved.program, agent.written, folder_in_git(agent.repository.root))
    report = TargetReport(
        improved,
        agent,
        {name: judge.comparer.name for name, judge in opened.judges.items()},
        job.output,
        text,
        time.monotonic() - started,
        names_of(opened.proposers),
        spent_of(opened.meter, job.price),
        opened.network.calls if opened.network is not None else 0,
    )
    _write(report)
    return report


async def estimate_target_job(job: TargetJob, *, models: Sequence[Model] | None = None) -> Estimate:
    """What a TargetJob would take; judges the source as it stands, and asks no model to propose."""
    agent = Agent(job.repository, job.targets, job.entry, job.network)
    async with AsyncExitStack() as stack:
        opened = await _open(job, agent, models, stack)
        entry = agent.entry
        name = entry if entry is not None and entry in opened.judges else next(iter(opened.judges))
        known = opened.judges[name]
        judge = Outside(agent.target(name), known.rows, known.way, known.comparer)
        return await estimated(
            judge,
            agent.start,
            opened.options,
            opened.proposers,
            job.budget,
            price=job.price,
            outside=len(judge.rows) if judge.way.varies else None,
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    judges: Mapping[str, Outside]
    proposers: Sequence[Proposes]
    options: SearchOptions
    meter: Meter
    writer: Model | None
    network: Networked | None


async def _open(
    job: TargetJob, agent: Agent, models: Sequence[Model] | None, stack: AsyncExitStack
) -> _Opened:
    """Everything that a run needs, closed with `stack`."""
    config = job.config or Config(iterations=100)
    options = _options(job, config, agent)
    job.output.mkdir(parents=True, exist_ok=True)
    meter = Meter(job.budget)
    proposers: list[Proposes] = []
    if not job.offline:
        proposers += await proposers_of(
            config, models, job.output, stack, meter=meter, price=job.price, ask=job.ask
        )
    writer = next((each.model for each in proposers if isinstance(each, Proposer)), None)
    if job.command:
        proposers.append(command_of(job.command, job.command_seconds, job.output, stack))
    if not proposers and not options.edits:
        raise InputError("nothing can propose a change: --models-only needs a model (--model or --config)")
    data = job.data or job.repository / DATA
    rows = agent.rows(data, seed=options.seed)
    way, network, bench = await _ways(job, agent, rows, options, stack)
    judges = {}
    for name, mine in rows.items():
        evaluator = await _evaluator(job, name, mine)
        comparer = await stack.enter_async_context(Comparer(evaluator, bench))
        used = network if network is not None and name == agent.entry else way
        judges[name] = Outside(agent.target(name, []), mine, used, comparer)
    return _Opened(judges, proposers, options, meter, writer, network)


async def _ways(
    job: TargetJob,
    agent: Agent,
    rows: Mapping[str, Sequence[Example]],
    options: SearchOptions,
    stack: AsyncExitStack,
) -> tuple[Way, Networked | None, Pool]:
    """How functions are called, how an entry that keeps its network is, and where evaluators run."""
    timeout = 10.0 if job.timeout is None else job.timeout
    memory = (job.config.memory_mb if job.config else None) or 1024
    limits = Limits(
        memory=memory << 20,
        cpu_seconds=max(1.0, timeout),
        wall_seconds=timeout,
        processes=64,
    )

    def made() -> Sandbox | Local:
        return Local(limits=limits) if job.unsafe_local else Sandbox(limits=limits)

    sliced = [callee for name, callee in agent.callees.items() if not (job.network and name == agent.entry)]
    warm = modules_of(text for callee in sliced for text in callee.files.values() if isinstance(text, str))
    # An agent outside holds a process for each of its functions, and for one that hung.
    held = 2 * max(1, sum(each.code for each in agent.pieces)) if job.network else 1
    pool = await stack.enter_async_context(Pool(made(), modules=warm, workers=held * options.workers))
    # Of its own, so that what judges never shares a process with what is judged.
    bench = await stack.enter_async_context(Pool(made()))
    if not job.network:
        return Inside(pool), None, bench
    network = Networked(
        agent,
        pool,
        seconds=120.0 if job.timeout is None else job.timeout,
        most=job.agent_calls,
        without=[job.output, job.repository / DATA],
    )
    mine = rows.get(agent.entry or "", [])
    validation = sum(row.split is Split.VALIDATION for row in mine)
    # What comes after the search: its finalists on the validation rows, and start and end on the others.
    network.kept = (FINALISTS + 1) * validation + 2 * sum(
        row.split is Split.GATE or not row.goal for row in mine
    )
    least = network.kept + sum(row.goal and row.split is Split.TRAIN for row in mine)
    if job.agent_calls is not None and job.agent_calls < least:
        raise InputError(
            f"--agent-calls {job.agent_calls}: for these {len(mine)} rows the start, the finalists and the gate take "
            f"{least}, so none are left to search with: give more calls, or fewer rows"
        )
    return Inside(pool), network, bench


def _options(job: TargetJob, config: Config, agent: Agent) -> SearchOptions:
    timed = job.budget.seconds is not None or job.cpu_seconds is not None
    iterations = job.iterations if job.iterations is not None or timed else config.iterations
    if iterations is not None and iterations < 1:
        raise InputError(f"--iterations {iterations}: it must be at least 1")
    code, text = any(each.code for each in agent.pieces), any(not each.code for each in agent.pieces)
    workers = config.workers if job.workers is None else job.workers
    return SearchOptions(
        iterations=iterations,
        seed=config.seed if job.seed is None else job.seed,
        workers=workers,
        # A candidate that asks a model per row is dear: fewer are drawn before what came of others is known.
        in_flight=max(4 if job.network else 8, workers),
        edits=((*EDITS,) * code + (*BLOCKS,) * text) if job.edits else (),
        target=job.target_score,
        patience=config.patience,
        cpu_seconds=job.cpu_seconds,
        max_length=max(config.max_length, 2 * sum(len(each.text) for each in agent.pieces)),
    )


def _shown(job: TargetJob, agent: Agent, judges: Mapping[str, Outside]) -> dict[str, Sequence[Demonstration]]:
    """Function → rated runs of the store that its prompts may show.

    Raises:
        NotFoundError: there is no such store.
    """
    if job.store is None:
        return {}
    if not job.store.exists():
        raise NotFoundError(f"there is no store at {job.store}")
    with Store(job.store) as opened:
        runs = list(opened.trajectories())
    found: dict[str, Sequence[Demonstration]] = {}
    for name, judge in judges.items():
        callee = agent.callees[name]
        rows, _ = distinct(recorded(callee.signature, callee.entry.partition(":")[2], runs))
        found[name] = pool_of(rows, judge.every)
    return found


async def _evaluator(job: TargetJob, name: str, rows: Sequence[Example]) -> Evaluator | None:
    """What compares the answers of one function: given and proven, or the best that is admitted; None for equality."""
    path = job.evaluators
    if path is not None and path.is_file():
        found = load(str(path))
        goals = [row.row for row in rows if row.goal and row.split is not Split.GATE]
        proof = await prove(found, rows=goals)
        if not proof.admitted:
            raise TrainingRefused(
                f"evaluator {path} is not admitted for {name}: {'; '.join(proof.reasons)}. "
                f"whet audit {path} --target ROWS shows the table"
            )
        return found
    folders = [path / name, path] if path is not None else [job.repository / "evaluators" / name]
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


def _write(report: TargetReport) -> None:
    output, improved = report.output, report.improved
    (output / "agent.patch").write_bytes(report.patch.encode())
    history = {name: _history(found) for name, found in improved.searches.items()}
    (output / "history.json").write_text(json.dumps(history, indent=2), encoding="utf-8")
    (output / "verdict.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(report.json()), indent=2) + b"\n"
    )
    lines = [
        msgspec.json.encode(_line(name, before, after))
        for name, pairs in improved.trials.items()
        for before, after in pairs
    ]
    (output / "examples.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def _line(name: str, before: Trial, after: Trial) -> dict[str, Json]:
    row = before.row
    return {
        "function": name,
        "id": row.id,
        "split": (row.split or Split.TRAIN).value,
        "input": row.input,
        "wanted": row.wanted,
        "before": before.answer,
        "after": after.answer,
        "score_before": before.score,
        "score_after": after.score,
        "provenance": dict(row.provenance),
    }


def _history(found: Found) -> dict[str, object]:
    return {
        "history": [{"proposal": number, "best_score": score} for number, score in found.history],
        "lineage": [
            {
                "proposal": record.number,
                "operator": record.operator,
                "score": record.score,
                "donor": record.donor,
                "program": record.id,
            }
            for record in found.lineage()
        ],
        "operators": found.operators,
        "stopped": found.stopped,
    }
