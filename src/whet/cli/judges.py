"""`whet audit` of judges: a rubric asked at an endpoint, or verdicts that were recorded, each with its card."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError
from .app import counted, existing, print_json
from .named import recorded_model, rubric_text

if TYPE_CHECKING:
    from ..judge.card import ReliabilityCard
    from ..judge.imported_audit import GraderAudit
    from ..judge.labelled import LabelledItem
    from ..judge.panel import Panel
    from ..models import Model
    from ..record.store import Store


@dataclass(frozen=True)
class JudgeAudit:
    """The options of `whet audit` that judges have."""

    labels: Path | None
    model: str | None
    base_url: str | None
    api_key_env: str
    store: Path | None
    output: Path | None
    show: tuple[str, ...]
    structured: bool
    without_answer: bool
    panel: Path | None
    json: bool


def audit_rubric(path: Path, options: JudgeAudit) -> int:
    """Measure the judge that reads a rubric, record its card; 0 if it may decide at a gate."""
    from ..judge.calibration import ask_all, card_of
    from ..judge.card import recorded_card, save_card
    from ..judge.judge import Judge
    from ..record.store import Store

    rubric, items = rubric_text(path), _items(options, f"{path} is the rubric of a judge")
    if options.model is None or options.base_url is None:
        raise InputError(f"{path} is the rubric of a judge: give --model NAME and --base-url URL to ask it")
    model_name = options.model

    async def measured() -> ReliabilityCard:
        async with AsyncExitStack() as stack:
            store = stack.enter_context(Store(existing(options.store) if options.store else ":memory:"))
            model = await _model(options, store, stack)
            judge = Judge(
                model,
                rubric,
                show=options.show,
                structured=options.structured,
                show_answer=not options.without_answer,
                name=path.stem,
            )
            card = card_of(
                path.stem,
                await ask_all(judge, items),
                evaluator=judge.key,
                model=model_name,
                settings=judge.settings,
                earlier=recorded_card(store, rubric),
            )
            save_card(store, rubric, card)
            return card

    card = asyncio.run(measured())
    _write(options.output, [card])
    _tell(options, [card])
    if options.store is None and not options.json:
        print("  note: give --store to record the card where whet gate looks for it")
    return int(not card.admitted)


async def _model(options: JudgeAudit, store: Store, stack: AsyncExitStack) -> Model:
    assert options.model is not None
    return await recorded_model(
        options.model, store, options.base_url, stack, key_variable=options.api_key_env
    )


def audit_verdicts(path: Path, options: JudgeAudit) -> int:
    """A card for each judge whose verdicts a file holds, and a panel of all; 0 if one of them may be believed."""
    from ..judge.calibration import ballots_of, card_of, recorded_verdicts
    from ..judge.panel import fit_panel
    from ..judge.votes import model_of
    from ..record.rows import numbered

    items = _items(options, f"{path} holds verdicts of judges")
    rows = [line for _, _, line in numbered(path)]
    verdicts = recorded_verdicts(items, rows)
    cards = [
        card_of(judge, own, model=model_of(judge)) for judge, own in sorted(verdicts.items()) if own.votes
    ]
    if not cards:
        raise InputError(f"{path} holds no verdict on the items of {options.labels}")
    panel = fit_panel(ballots_of(verdicts)) if len(cards) > 1 else None
    _write(options.output, cards, panel)
    _tell(options, cards, panel)
    believed = any(card.admitted for card in cards) or (panel is not None and not panel.refusal)
    return int(not believed)


def read_by_panel(path: Path, options: JudgeAudit) -> int:
    """A panel's verdicts on pairs without labels, by recorded verdicts of its judges; 0 if it decided on any kind."""
    from ..judge.calibration import unlabelled_ballots
    from ..judge.panel import Panel
    from ..record.rows import numbered

    assert options.panel is not None
    try:
        panel = msgspec.json.decode(existing(options.panel).read_bytes(), type=Panel)
    except msgspec.DecodeError as error:
        raise InputError(f"{options.panel} is no panel that whet audit wrote: {error}") from error
    ballots = unlabelled_ballots([line for _, _, line in numbered(path)])
    readings = panel.read(ballots)
    rows = [
        {"id": ballot.id, "kind": kind, "winner": {True: 1, False: 2, None: None}[verdict.first]}
        | {"sure": verdict.sure, "decided_by": reading.decided_by}
        for kind, reading in readings.items()
        for ballot, verdict in zip(
            [one for one in ballots if one.kind == kind], reading.verdicts, strict=True
        )
    ]
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "panel_verdicts.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    if options.json:
        print_json(
            {
                "verdicts": rows,
                "refused": {kind: one.refusal for kind, one in readings.items() if one.refusal},
            }
        )
    for kind, reading in () if options.json else readings.items():
        sure = sum(verdict.sure for verdict in reading.verdicts)
        print(
            f"{kind or 'all':16} {len(reading.verdicts)} pairs decided by {reading.decided_by}, {sure} of them surely"
        )
        if reading.refusal:
            print(f"  the panel refused: {reading.refusal}")
    return int(all(reading.refusal for reading in readings.values()))


def audit_imported(path: Path, options: JudgeAudit) -> int:
    """A card for each judge that another product's files define or recorded; 0 if one of them may be believed."""
    from ..judge.card import save_card
    from ..judge.imported import read_judges
    from ..judge.imported_audit import audit_graders, labelled_items
    from ..record.store import Store
    from ..sandbox import Pool

    judges = read_judges(path)
    if options.labels is None:
        raise InputError(
            f"{path} defines {counted(len(judges.specs), 'judge')}: give --labels with labelled answers (input, "
            "output, label, and the columns that they read), or of a run id and label"
        )
    items = labelled_items(judges, options.labels)

    async def measured() -> GraderAudit:
        async with AsyncExitStack() as stack:
            store = stack.enter_context(Store(existing(options.store) if options.store else ":memory:"))
            pool = None
            if any(spec.runs_code for spec in judges.specs):
                pool = await stack.enter_async_context(Pool())

            async def model_of(name: str) -> Model | None:
                if options.base_url is None or not (options.model or name):
                    return None
                asked = options.model or name
                return await recorded_model(
                    asked, store, options.base_url, stack, key_variable=options.api_key_env
                )

            audited = await audit_graders(judges, items, model_of=model_of, pool=pool)
            defined = {spec.version for spec in judges.specs}
            for card in audited.cards:
                if card.evaluator in defined:  # a result without a definition cannot be asked at a gate
                    save_card(store, card.evaluator, card)
            return audited

    audited = asyncio.run(measured())
    _write(options.output, audited.cards)
    if options.json:
        _tell(options, audited.cards, unmeasured=audited.unmeasured, skipped=judges.skipped)
    else:
        print(f"{counted(len(items), 'labelled answer')}; trust those that are admitted:")
        if audited.cards:
            print(_table(audited.cards))
        for name, why in audited.unmeasured.items():
            print(f"{name:32} not measured: {why}")
        for note in [*audited.notes, *(f"left out: {place}" for place in judges.skipped)]:
            print(f"  note: {note}")
    return int(not any(card.admitted for card in audited.cards))


def _table(cards: list[ReliabilityCard]) -> str:
    lines = []
    for card in sorted(cards, key=lambda card: -card.accuracy):
        low, high = card.accuracy_interval
        verdict = "admitted" if card.admitted else f"refused: {card.reasons[0]}"
        lines.append(f"{card.judge:32} {card.accuracy:.3f} [{low:.3f}, {high:.3f}]  {verdict}")
    return "\n".join(lines)


def _items(options: JudgeAudit, what: str) -> list[LabelledItem]:
    from ..judge.labelled import read_labelled

    if options.labels is None:
        raise InputError(
            f"{what}: give --labels with labelled pairs (input, output_1, output_2, label 1 or 2) or answers (input, "
            "output, label)"
        )
    return read_labelled(options.labels)


def _tell(
    options: JudgeAudit,
    cards: list[ReliabilityCard],
    panel: Panel | None = None,
    **more: Mapping[str, str] | Sequence[str],
) -> None:
    if options.json:
        shown = [
            {**msgspec.to_builtins(card), "admitted": card.admitted, "reasons": card.reasons}
            for card in cards
        ]
        print_json({"cards": shown, "panel": None if panel is None else msgspec.to_builtins(panel), **more})
        return
    print("\n".join(cards[0].lines()) if len(cards) == 1 else _table(cards))
    if panel is not None:
        print(_panel_line(panel))


def _panel_line(panel: Panel) -> str:
    kinds = (
        f"{len(panel.kinds)} kinds, each read without its labels"
        if len(panel.kinds) > 1
        else "halves of the items"
    )
    figures = f"panel {panel.accuracy:.3f}, best judge chosen elsewhere {panel.single_accuracy:.3f} ({kinds})"
    if panel.refusal:
        return f"{figures}; refused: {panel.refusal}"
    sure = [kind or "any other kind" for kind in panel.thresholds]
    return f"{figures}; " + (
        f"sure of {', '.join(sure)}" if sure else "sure of nothing yet: label more of one kind"
    )


def _write(folder: Path | None, cards: list[ReliabilityCard], panel: Panel | None = None) -> None:
    """Cards as JSON and badges, and the panel, in a folder."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for card in cards:
        name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in card.judge)
        content = {**msgspec.to_builtins(card), "admitted": card.admitted, "reasons": card.reasons}
        (folder / f"{name}.card.json").write_bytes(msgspec.json.format(msgspec.json.encode(content)))
        (folder / f"{name}.badge.svg").write_text(card.badge(), encoding="utf-8")
    if panel is not None:
        (folder / "panel.json").write_bytes(msgspec.json.encode(panel))
