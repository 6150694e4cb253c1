"""The audit of imported judges: each is measured on labelled answers, by what it gave or by asking it again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError
from ..models import Model
from ..record.rows import row
from ..sandbox import Pool
from ..types import Trajectory
from .base import ascore
from .calibration import JudgedItems, ask_all, card_of
from .card import ReliabilityCard
from .graders import GraderSpec, ImportedGrader, of_item
from .imported import GradedItem, ImportedJudges
from .labelled import LabelledItem, answering, label_rows, read_labelled


@dataclass
class GraderAudit:
    """The cards of imported judges, and those that could not be measured."""

    cards: list[ReliabilityCard] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)
    """Judge → why it has no card."""
    notes: list[str] = field(default_factory=list)


def labelled_items(judges: ImportedJudges, labels: Path) -> list[LabelledItem]:
    """Labelled answers: those of a run, where one was read, else the rows of the labels.

    Raises:
        NotFoundError, InputError: as of `label_rows` and `read_labelled`; or no label is of an item of the run.
    """
    rows = label_rows(labels)
    if not judges.items:
        items = read_labelled(labels)
        if items[0].second is not None:
            raise InputError(f"{labels} holds pairs, and these judges grade single answers")
        columns = [line for line, _ in rows.values()]
        return [
            LabelledItem(item.id, of_item(item.first, line), None, item.label, item.kind)
            for item, line in zip(items, columns, strict=True)
        ]
    items = [
        LabelledItem(graded.id, _answer(graded), None, rows[graded.id][1])
        for graded in judges.items
        if graded.id in rows
    ]
    if not items:
        raise InputError(
            f"none of {len(judges.items)} items of the run is labelled in {labels}: a label has the id of a data "
            f"source item, such as {judges.items[0].id}"
        )
    return items


def _answer(graded: GradedItem) -> Trajectory:
    return of_item(answering(row(dict(graded.item)), graded.output), graded.item)


async def audit_graders(
    judges: ImportedJudges,
    items: Sequence[LabelledItem],
    *,
    model_of: Callable[[str], Awaitable[Model | None]],
    pool: Pool | None,
    earlier: Mapping[str, ReliabilityCard | None] | None = None,
) -> GraderAudit:
    """Measure each judge.

    Args:
        model_of: gives the model of a name; None where it is not to be asked.
        earlier: version of a judge → its card from before, for drift.
    """
    audit = GraderAudit()
    recorded = _recorded(judges.items, items)
    for spec in judges.specs:
        if spec.note and spec.kind != "unsupported":
            audit.notes.append(f"{spec.name}: {spec.note}")
        own = next((name for name in recorded if name == spec.name or name.startswith(f"{spec.name}-")), None)
        if own is not None and recorded[own].votes:
            audit.cards.append(
                card_of(spec.name, recorded.pop(own), evaluator=spec.version, model=spec.model)
            )
            continue
        await _ask(
            spec, items, audit, model_of=model_of, pool=pool, earlier=(earlier or {}).get(spec.version)
        )
    for name, verdicts in recorded.items():
        if verdicts.votes:
            audit.cards.append(card_of(name, verdicts))
        else:
            audit.unmeasured[name] = "the run holds no result of it on a labelled item"
    return audit


def _recorded(graded: Sequence[GradedItem], items: Sequence[LabelledItem]) -> dict[str, JudgedItems]:
    """Grader → what it gave on the labelled items of a run."""
    by_name: dict[str, JudgedItems] = {}
    labelled = {item.id for item in items}
    for one in graded:
        for name, mark in one.marks.items():
            own = by_name.setdefault(name, JudgedItems(items))
            if mark is not None and one.id in labelled:
                own.votes[one.id] = mark
    return by_name


async def _ask(
    spec: GraderSpec,
    items: Sequence[LabelledItem],
    audit: GraderAudit,
    *,
    model_of: Callable[[str], Awaitable[Model | None]],
    pool: Pool | None,
    earlier: ReliabilityCard | None,
) -> None:
    model = await model_of(next(iter(sorted(spec.models)), "")) if spec.asks else None
    grader = ImportedGrader(spec, model=model, pool=pool)
    first = await ascore(grader, items[0].first)
    if first.value is None:
        rest = [await ascore(grader, item.first) for item in items[1:2]]
        if all(score.value is None for score in rest):
            audit.unmeasured[spec.name] = first.reason
            return
    verdicts = await ask_all(grader, items, probe=spec.asks)
    settings: Mapping[str, str] = {"product": spec.product, "kind": spec.kind}
    audit.cards.append(
        card_of(
            spec.name,
            verdicts,
            evaluator=spec.version,
            model=model.name if model else "",
            settings=settings,
            earlier=earlier,
        )
    )
