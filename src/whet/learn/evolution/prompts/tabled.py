"""One prompt and a table of examples: read, said, improved, proven, written.

`plan_prompt` reads everything and spends nothing; its `sentences` say what can change, from which evidence, what the
gate can prove and what it costs.  `improve_prompt` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ....errors import InputError
from ....judge.metrics import JudgeMetric, KnownJudge, Metric, kept_marks, metric_named, shown, suited
from ....models import Price, RecordedModel
from ....models.base import Model, ModelRequest
from ....models.budget import Meter
from ....models.spending import estimate
from ....prove.power import power_in_words
from ....record.columns import Columns, Missing
from ....record.store import Log, Store
from ....record.store.bundles import BUNDLE_FILE, write_bundle
from ....record.store.findings import RewardFinding, open_findings, withheld
from ....record.tables import RowTable, read_table
from ....repository.text import as_written, diff, plain
from ....stats import gain_for
from ....types import Bundle, Sampling, Split, Task, Version, digest
from ...datasets.division import standing
from ...datasets.examples import divided, merged
from ...datasets.folds import folds_of
from ...datasets.signatures import Signature
from ...loop import Progress, quiet
from ..editing.slots import INPUT, slot_sentences
from ..search.cross_fitting import FOLDS, standing_in_folds
from ..search.settings import folder_in_git
from .improved import ImprovedText, moved, of_hundred
from .prompt_proof import LEAST_SEARCH, REFLECTIONS, PromptProof, PromptWork, held_out, out_of_fold
from .prompted import PromptAgent, messages_of
from .reflecting import ReflectOptions

_PROOF = 0.3
"""Share of the calls that the gate may take: each of its rows is asked before and after."""
_LIKELY = 2.0
"""Evidence, of the 20 that prove, from which on a prompt is called likely better."""
_LEAST = 24
"""Runs that a search needs at least: six rows as they stand, and three candidates."""
_CONTRADICTIONS = 3
"""Contradictions that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInput:
    """A table of examples, and which of its columns is what."""

    data: Path | RowTable
    """A file: CSV, TSV, JSON, JSON Lines or Parquet; or a table that was read already."""
    input: tuple[str, ...] = ()
    """Column of the input; several are given by name. Guessed and shown if omitted."""
    expected: str | None = None
    """Column of the right answer. Guessed and shown if omitted."""
    group: str | None = None
    """Column of the person, session or document of a row; such rows stay on one side of the proof."""
    missing: Missing | None = None
    """An empty expected cell: none (nothing is the right answer) or unknown (nobody knows it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """How one prompt is improved."""

    metric: str | None = None
    """One of whet.judge.metrics.METRICS; chosen from the look of the expected answers if None."""
    rubric: str = ""
    """What makes an answer good, for the metric judge; the one that `store` holds, proven, if omitted."""
    calls: int = 200
    """Most model calls: of search, proposals, judge and proof together."""
    price: Price | None = None
    temperature: float | None = None
    seed: int = 0
    alpha: float = 0.05
    regime: Sampling = "new-group"
    """How the rows came, which decides what they prove; both regimes are told."""
    output: Path = Path("whet_output")
    store: Path | None = None
    """The record; OUTPUT/runs.db if None. Answers in it are not asked for again."""
    write: bool = False
    """Put a proven prompt into its file."""
    folds: int | None = None
    """Parts of the table, each tried with a prompt that was searched on the others, so that every row is behind the
    proof; 0 holds a fifth back instead. If None, FOLDS where the calls allow it, else 0."""


@dataclass(frozen=True, slots=True)
class Intake:
    """The rows of a table, divided, and what there is to say about them."""

    table: RowTable
    columns: Columns
    tasks: Sequence[Task]
    sentences: Sequence[str]


def read_examples(
    source: TableInput,
    *,
    missing: Missing,
    signature: Signature | None = None,
    seed: int = 0,
    divides: bool = True,
) -> Intake:
    """The rows of a table as Tasks with their splits.

    Repeated inputs are merged and counted; contradictions are told and left out.

    Args:
        missing: what an empty cell means where the source does not say.
        signature: of the function that is called: cells of CSV are numbers and truth values then, but for what it
            takes or gives as `str`.  None leaves all text.
        divides: False leaves them all, without splits.

    Raises:
        InputError: nothing to read, or nothing left.
    """
    table = source.data if isinstance(source.data, RowTable) else read_table(source.data)
    columns = Columns.of(
        table,
        input=source.input,
        expected=source.expected,
        group=source.group,
        parameters=[parameter.name for parameter in signature.parameters] if signature is not None else (),
    )
    if signature is not None:
        table = table.typed(text=_texts(columns, signature), decimal=_decimals(columns, signature))
    rows, notes = columns.tasks(table, missing=source.missing or missing)
    said: list[str] = []
    distinct = merged(rows, said.append)
    contradictions = [sentence for sentence in said if sentence.startswith("contradiction")]
    others = [sentence for sentence in said if sentence not in contradictions]
    if len(contradictions) > _CONTRADICTIONS:
        rest = len(contradictions) - _CONTRADICTIONS
        contradictions = [*contradictions[:_CONTRADICTIONS], f"and {rest} more inputs with several answers"]
    if not distinct:
        raise InputError(f"{table.path} holds no row that is not contradicted: " + "; ".join(contradictions))
    tasks = divided(distinct, seed=seed) if divides else distinct
    if len(tasks) < len(distinct):
        others.append(
            f"{len(distinct) - len(tasks)} rows are left out, which nearly repeat one on the other side of the proof"
        )
    sentences = [*table.notes, *columns.sentences(table), *notes, *others, *contradictions]
    return Intake(table, columns, tasks, sentences)


def _texts(columns: Columns, signature: Signature) -> list[str]:
    """Columns that a function takes or gives as text, by its annotations."""
    annotated = {parameter.name: parameter.annotation for parameter in signature.parameters}
    if len(columns.input) == 1 and columns.input[0] not in annotated and signature.parameters:
        annotated[columns.input[0]] = signature.parameters[0].annotation
    texts = [name for name in columns.input if annotated.get(name) == "str"]
    return [*texts, columns.expected] if signature.returns == "str" else texts


def _decimals(columns: Columns, signature: Signature) -> list[str]:
    """The expected column of a function that gives a float: 5 in a table is its 5.0, and not equal to it."""
    return [columns.expected] if "float" in signature.returns else []


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What will be done, before anything is spent."""

    path: Path
    text: str
    intake: Intake
    metric: Metric | JudgeMetric
    shares: Shares
    settings: PromptSettings
    sentences: Sequence[str]


def plan_prompt(
    path: Path, source: TableInput, settings: PromptSettings, model: Model, judge: Model | None = None
) -> PromptPlan:
    """Read prompt and table, choose the metric, and share out the calls.

    Args:
        judge: of the metric judge; the model itself if None.

    Raises:
        InputError: an unreadable file, an unclear column, too few rows or calls, or a metric that cannot tell.
    """
    text = prompt_text(path)
    if settings.output.resolve() == path.resolve().parent:
        raise InputError(
            f"--output {settings.output} is the folder of {path}, which would be written over: name another"
        )
    intake = read_examples(source, missing="unknown", seed=settings.seed)
    known = [task for task in intake.tasks if task.answer_known]
    if not known:
        raise InputError(
            f"{intake.table.path}: not one cell of {intake.columns.expected} says what is right; name another column "
            "with --expected, or give --missing none where an empty cell is the right answer"
        )
    if len(known) < 10:
        raise InputError(
            f"{intake.table.path}: {len(known)} different rows with an expected answer are too few to learn from and "
            "to prove anything on; give at least 10, better 100"
        )
    name, why = (settings.metric, "") if settings.metric else suited(known)
    metric = metric_named(
        name,
        known,
        model=judge or model,
        rubric=settings.rubric,
        known=KnownJudge.at(settings.store, settings.rubric) if name == "judge" else None,
    )
    tried = shown(metric, known)
    shares = _shares(known, settings, 2 if isinstance(metric, JudgeMetric) else 1)
    if shares.gain is None:
        raise InputError(f"{shares.standing}. Nothing was spent")
    sentences = [
        f"{path} can change ({len(text):,} characters); {model.name} answers under it",
        *slot_sentences(text, intake.columns.input),
        *intake.sentences,
        metric.sentence + (f" (chosen because {why}; --metric names another)" if why else ""),
        *(f"  {line}" for line in tried.lines),
        shares.standing,
        shares.power(settings.regime),
        _cost(settings, model, text, shares, _column(intake)),
    ]
    return PromptPlan(path, text, intake, metric, shares, settings, sentences)


@dataclass(frozen=True, slots=True)
class Shares:
    """The rows of search and proof, and the calls of each."""

    tasks: Sequence[Task]
    """Those that the search and the gate use."""
    folds: Sequence[Sequence[Task]]
    """The same in folds, where every row is behind the proof; none where some are held back."""
    per_run: int
    """Model calls for one run: 2 where a judge is asked."""
    behind: int
    """Rows behind the proof."""
    rollouts: int
    """Runs of the prompt that the search may make."""
    reflections: int
    """Calls of the model that proposes; of folds, for each."""

    @property
    def gain(self) -> float | None:
        """The smallest gain that the rows behind the proof are likely to prove; None where there is none."""
        if not self.folds:
            return standing(self.tasks).gain
        return gain_for(self.behind, clusters=len({task.group or task.id for task in self.tasks}))

    def power(self, regime: Sampling) -> str:
        """A sentence on what the rows behind the proof can show in either regime."""
        held = [task for task in self.tasks if self.folds or task.split is Split.GATE]
        return power_in_words(self.behind, len({task.group or task.id for task in held}), regime=regime)

    @property
    def standing(self) -> str:
        """A sentence on the rows, and the gain that they are likely to prove."""
        if not self.folds:
            return standing(self.tasks).sentence
        return standing_in_folds(self.tasks, len(self.folds), "answered under a prompt")


def _shares(known: Sequence[Task], settings: PromptSettings, per_run: int) -> Shares:
    """Every row out of fold where the calls allow it or it is asked for; else a fifth held back.

    Raises:
        InputError: too few calls.
    """
    needed = calls_out_of_fold(len(known), settings.folds or FOLDS, per_run)
    if settings.folds or (settings.folds is None and settings.calls >= needed):
        folds = folds_of(known, settings.folds or FOLDS, seed=settings.seed)
        if settings.calls < needed or len(folds) < 2:
            raise InputError(
                f"--folds {settings.folds}: each of {len(known)} rows is asked before and after, and every fold is "
                f"searched; that takes --calls {needed} and rows of 2 groups at the least"
            )
        rollouts = (settings.calls - len(folds) * REFLECTIONS) // per_run - 2 * len(known)
        return Shares(known, folds, per_run, len(known), rollouts, REFLECTIONS)
    reflections = min(ReflectOptions().rounds, max(3, settings.calls // 40))
    held = [task for task in known if task.split is Split.GATE]
    if not held:
        raise InputError(f"{standing(known).sentence}. Nothing was spent")
    behind = min(len(held), int(_PROOF * settings.calls / (2 * per_run)))
    rollouts = (settings.calls - 2 * per_run * behind - reflections) // per_run
    if rollouts < _LEAST or not behind:
        raise InputError(
            f"--calls {settings.calls}: {2 * per_run * behind} of them prove and {reflections} propose, which leaves "
            f"{max(0, rollouts)} runs to search with, and {_LEAST} are needed"
        )
    spread = {task.id for task in _spread(held, behind)}
    tasks = [task for task in known if task.split is not Split.GATE or task.id in spread]
    return Shares(tasks, (), per_run, behind, rollouts, reflections)


def calls_out_of_fold(rows: int, folds: int, per_run: int) -> int:
    """Fewest calls that prove on every row."""
    return per_run * (2 * rows + (folds + 1) * LEAST_SEARCH) + folds * REFLECTIONS


def prompt_text(path: Path) -> str:
    """The prompt of a file, with plain line ends.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    try:
        return plain(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read the prompt {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the prompt {path} is not UTF-8: {error}") from error


def _column(intake: Intake) -> str:
    """The column of an input that is one; several have their own names in it."""
    return intake.columns.input[0] if len(intake.columns.input) == 1 else INPUT


def _spread(held: Sequence[Task], count: int) -> list[Task]:
    """So many of the gate's rows, of as many groups as possible: by the place in their group, then by hash."""
    place: dict[str, int] = {}
    ranked = []
    for task in sorted(held, key=lambda task: digest(["gate", task.id])):
        key = task.group or task.id
        place[key] = place.get(key, -1) + 1
        ranked.append((place[key], task))
    ranked.sort(key=lambda entry: entry[0])
    return [task for _, task in ranked[:count]]


def _cost(settings: PromptSettings, model: Model, text: str, shares: Shares, column: str) -> str:
    """A sentence on the most that it costs."""
    sizes = [
        estimate(
            ModelRequest.of(messages_of(text, task.initial_state["input"], column=column), {})
        ).prompt_tokens
        for task in shares.tasks[:50]
    ]
    prompt_tokens = int(settings.calls * sum(sizes) / len(sizes))
    money = "its price is unknown (--price)"
    if settings.price is not None:
        money = (
            f"about ${settings.price.of(prompt_tokens, settings.calls * 100):.2f} with answers of 100 tokens"
        )
    judged = ", each with one of the judge" if shares.per_run == 2 else ""
    return (
        f"at most {settings.calls} calls of {model.name}: {shares.rollouts * shares.per_run} to search, "
        f"{shares.reflections * max(1, len(shares.folds))} to propose, {2 * shares.per_run * shares.behind} to prove "
        f"({shares.behind} rows before and after{judged}); about {prompt_tokens:,} prompt tokens, {money}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovedPrompt(ImprovedText):
    """What became of a prompt in a file."""

    path: Path
    before: str
    plan: Sequence[str] = ()
    folds: int = 0
    """Folds of the proof; 0 where rows were held back."""
    advice: str = ""
    """What to do next, where nothing is proven: what would tell more, or clear a finding."""

    def sentences(self) -> list[str]:
        """The result in words."""
        lines = self.of_search("rows")
        if self.gate is not None and self.verdict is not None:
            apart = (
                f"out of {self.folds} folds, each searched without it"
                if self.folds
                else "that nothing was chosen on"
            )
            lines.append(f"on {self.verdict.n} rows {apart}: {moved(*self.gate)}; {of_hundred(*self.gate)}")
            lines += [f"  {reason}" for reason in self.verdict.reasons]
        if self.advice:
            lines.append(self.advice)
        dollars = f", ${self.spent['dollars']:.4f}" if self.spent.get("dollars") else ""
        lines.append(f"spent: {self.spent['calls']:.0f} calls, {self.spent['tokens']:,.0f} tokens{dollars}")
        return lines

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "prompt": str(self.path),
            "before": self.before,
            **self.plain(),
            "folds": self.folds,
            "advice": self.advice,
        }


async def improve_prompt(
    plan: PromptPlan,
    model: Model,
    *,
    proposer: Model | None = None,
    meter: Meter | None = None,
    progress: Progress = quiet,
) -> ImprovedPrompt:
    """Search, prove and write.

    Args:
        model: answers under the prompt.
        proposer: writes better prompts; the model itself if None.
        meter: of both and of the judge, for what was spent.

    Raises:
        TrainingRefused: the model cannot be asked.
    """
    settings, resource = plan.settings, plan.path.name
    settings.output.mkdir(parents=True, exist_ok=True)
    with Store(settings.store or settings.output / "runs.db") as store:
        answers = RecordedModel(model, Log(store, f"answers/{resource}"))
        metric = kept_marks(plan.metric, store)
        agent = PromptAgent(
            resource, plan.text, answers, temperature=settings.temperature, column=_column(plan.intake)
        )
        start = Bundle([Version(resource=resource, content=plan.text, kind="prompt")])
        # Another prompt, table or setting is another experiment: checkpoints of the one say nothing of the other.
        identity = digest(
            [
                plan.text,
                [task.id for task in plan.shares.tasks],
                plan.metric.version,
                settings.calls,
                len(plan.shares.folds),
            ],
            12,
        )
        work = PromptWork(
            agent=agent,
            start=start,
            metric=metric,
            proposer=proposer or model,
            store=store,
            name=f"improve/{resource}/{identity}",
            seed=settings.seed,
            alpha=settings.alpha,
            regime=settings.regime,
            folder=settings.output / "artifacts",
            progress=progress,
        )
        shares = plan.shares
        if shares.folds:
            proof = await out_of_fold(work, shares.folds, shares.rollouts, shares.reflections)
        else:
            proof = await held_out(work, shares.tasks, shares.rollouts, shares.reflections)
        findings = open_findings(store.database, proof.bundle.id)
    return _written(plan, proof, findings, meter)


def _advice(plan: PromptPlan, proof: PromptProof, findings: Sequence[RewardFinding]) -> str:
    """What to do where nothing is proven; "" where there is nothing to say."""
    verdict = proof.verdict
    if verdict is None:
        if proof.spread or proof.dev[0] >= plan.metric.right:
            return ""
        name = "judge" if isinstance(plan.metric, JudgeMetric) else plan.metric.key
        return (
            f"the metric {name} gave every answer the same mark ({proof.dev[0]:g}), so it cannot tell good ones from "
            "bad ones here: look at an answer (whet show), and name another metric (--metric)"
        )
    if verdict.promote:
        return withheld(findings)
    if verdict.blocks:
        return f"not proven, whatever its score says: {next(iter(verdict.blocks.values()))}"
    if verdict.effect <= 0 or not verdict.needed or verdict.e_value < _LIKELY:
        return "nothing shows that it is better, so nothing better was found"
    more = max(1, verdict.needed - verdict.n)
    advice = f"likely better, and not proven: about {more} more rows behind the proof would tell"
    shares, known = plan.shares, [task for task in plan.intake.tasks if task.answer_known]
    if shares.folds or len(known) <= verdict.n:
        return advice
    calls = calls_out_of_fold(len(known), FOLDS, shares.per_run)
    return f"{advice}; --calls {calls} or more puts all {len(known)} rows behind it, each out of fold"


def _written(
    plan: PromptPlan, proof: PromptProof, findings: Sequence[RewardFinding], meter: Meter | None
) -> ImprovedPrompt:
    """The result, with the files of it.

    An open finding keeps a prompt out of its file, as it keeps it from being released.
    """
    settings, resource, verdict = plan.settings, plan.path.name, proof.verdict
    after = str(proof.bundle[resource].content)
    proven = verdict is not None and verdict.promote and not findings
    original = plan.path.read_bytes().decode("utf-8-sig")
    new = as_written(original, after)
    patch = diff(folder_in_git(plan.path.resolve().parent) + plan.path.name, original, new)
    output, written = settings.output, None
    # What an earlier run left would be taken for this one's.
    for name in ("agent.patch", "refused.patch", resource, BUNDLE_FILE):
        if output / name != plan.path:
            (output / name).unlink(missing_ok=True)
    if proven and settings.write:
        plan.path.write_bytes(new.encode())
        written = plan.path
    elif proven:
        written = output / resource
        written.write_bytes(new.encode())
    if patch:
        file = output / ("agent.patch" if proven else "refused.patch")
        file.write_bytes(patch.encode())
        written = written or file
    if proven:
        record = (settings.store or output / "runs.db").resolve()
        write_bundle(
            output / BUNDLE_FILE,
            proof.bundle,
            baseline=proof.start,
            verdict=verdict,
            store=record,
        )
    result = ImprovedPrompt(
        path=plan.path,
        before=plan.text,
        after=after,
        proven=proven,
        reason=proof.reason,
        dev=proof.dev,
        dev_rows=proof.dev_rows,
        gate=proof.gate,
        verdict=verdict,
        causes=proof.causes,
        spent={kind: (meter or Meter()).spent[kind] for kind in ("calls", "tokens", "dollars")},
        written=written,
        patch=patch,
        plan=plan.sentences,
        folds=proof.folds,
        advice=_advice(plan, proof, findings),
    )
    (output / "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(result.json()), indent=2))
    return result
