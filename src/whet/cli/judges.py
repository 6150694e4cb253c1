"""`whet audit` of judges: a rubric asked at an endpoint, or verdicts that were recorded, each with its card."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError
from ..types import digest
from .named import recorded_model, rubric_text
from .root import counted, print_json

if TYPE_CHECKING:
    from ..judge.calibration import JudgedItems
    from ..judge.card import ReliabilityCard
    from ..judge.imported_audit import GraderAudit
    from ..judge.judge import Judge
    from ..judge.labelled import LabelledItem
    from ..judge.panel import Panel
    from ..judge.recorded import RecordedVerdicts
    from ..models import Model
    from ..record.store import Store


@dataclass(frozen=True)
class JudgeAudit:
    """The options of `whet audit` that judges have."""

    labels: Path | None
    models: tuple[str, ...]
    base_url: str | None
    api_key_env: str
    store: Path | None
    output: Path | None
    show: tuple[str, ...]
    structured: bool
    without_answer: bool
    panel: Path | None
    again: bool
    earlier: Path | None
    json: bool

    def since(self, earlier: Sequence[ReliabilityCard | None]) -> str:
        """A name for these cards, after which all is asked anew; "" where the record's answers will do.

        Of the same cards the same: an audit that was cut off goes on.
        """
        known = [card.verdicts for card in earlier if card is not None]
        return digest(msgspec.to_builtins(known), 12) if self.again and known else ""


def audit_rubrics(paths: Sequence[Path], options: JudgeAudit) -> int:
    """Measure each model with each rubric, and of several their panel, record the cards; 0 if one may decide."""
    from ..record.store import Store

    texts = {path: rubric_text(path) for path in paths}
    items = _items(options, f"{paths[0]} is the rubric of a judge")
    if not options.models or options.base_url is None:
        raise InputError(
            f"{paths[0]} is the rubric of a judge: give --model NAME and --base-url URL to ask it"
        )
    if len({path.stem for path in paths}) < len(paths) or len(set(options.models)) < len(options.models):
        raise InputError(
            "two of the judges have one name: give each rubric a file of its own name, each model once"
        )

    async def measured() -> tuple[list[ReliabilityCard], Panel | None, str]:
        async with AsyncExitStack() as stack:
            store = stack.enter_context(Store(options.store or ":memory:"))
            return await _measured(texts, items, options, store, stack)

    cards, panel, why = asyncio.run(measured())
    _write(options.output, cards, panel)
    _tell(options, cards, panel)
    if why and not options.json:
        print(f"  no panel: {why}")
    if options.store is None and not options.json:
        print("  note: give --store to record the card where whet gate looks for it")
    if panel is not None and options.output is None and not options.json:
        print("  note: give --output FOLDER to keep the panel, for --reward FOLDER/panel.json")
    return int(not any(card.admitted for card in cards))


async def _measured(
    rubrics: Mapping[Path, str],
    items: Sequence[LabelledItem],
    options: JudgeAudit,
    store: Store,
    stack: AsyncExitStack,
) -> tuple[list[ReliabilityCard], Panel | None, str]:
    """A card for each judge, and of several the panel's card and the panel, or why there is none."""
    from ..judge.calibration import ask_all, card_of
    from ..judge.card import recorded_card, save_card
    from ..judge.judge import Judge

    several = len(rubrics) * len(options.models) > 1
    asked: dict[str, tuple[Judge, JudgedItems]] = {}
    cards: dict[str, ReliabilityCard] = {}
    known = {text: recorded_card(store, text) for text in rubrics.values()}
    since = options.since(list(known.values()))
    for model_name in options.models:
        model = await recorded_model(
            model_name, store, options.base_url, stack, key_variable=options.api_key_env, since=since
        )
        for path, text in rubrics.items():
            name = f"{model_name}/{path.stem}" if several else path.stem
            judge = Judge(
                model,
                text,
                show=options.show,
                structured=options.structured,
                show_answer=not options.without_answer,
                name=name,
            )
            # Answers out of the record are those of the earlier card: they cannot show that the model has changed.
            earlier = known[text] if since else None
            asked[name] = judge, await ask_all(judge, items)
            cards[name] = card_of(
                name,
                asked[name][1],
                evaluator=judge.key,
                model=model_name,
                settings=judge.settings,
                earlier=earlier if earlier is not None and earlier.evaluator == judge.key else None,
            )
    # A rubric has one card in a record: that of the model that reads it best.
    for card in sorted(cards.values(), key=lambda card: (card.admitted, card.accuracy)):
        save_card(store, asked[card.judge][0].rubric, card)
    if not several:
        return list(cards.values()), None, ""
    panel, own, why = _panel_of(asked, cards, items, store, again=bool(since))
    return [*cards.values(), *([] if own is None else [own])], panel, why


def _panel_of(
    asked: Mapping[str, tuple[Judge, JudgedItems]],
    cards: Mapping[str, ReliabilityCard],
    items: Sequence[LabelledItem],
    store: Store,
    *,
    again: bool,
) -> tuple[Panel | None, ReliabilityCard | None, str]:
    """The panel of the judges that nothing moves which should not, of single answers with its card, recorded.

    The last is why there is none.
    """
    from ..judge.calibration import ballots_of
    from ..judge.card import recorded_card, save_card
    from ..judge.panel import FAMILIES, FEWEST, PanelJudge, fit_panel
    from ..judge.panel_reward import calibrated, panel_card

    voting = {name: verdicts for name, (_, verdicts) in asked.items() if not cards[name].moved}
    models = {asked[name][0].model.name for name in voting}
    if len(models) < FAMILIES:
        why = f"it takes {FAMILIES} models whom nothing moves that should not to tell which of them errs; here are "
        return None, None, why + (", ".join(sorted(models)) or "none")
    if len(items) < 2 * FEWEST:
        return None, None, f"it takes {2 * FEWEST} labelled items, and there are {len(items)}"
    ballots = ballots_of(voting)
    judges = {
        name: PanelJudge(
            judge.rubric, judge.model.name, judge.settings, judge.key, cards[name].threshold or 0.0
        )
        for name, (judge, _) in asked.items()
        if name in voting
    }
    panel = fit_panel(ballots, families={name: judge.model for name, judge in judges.items()})
    panel = msgspec.structs.replace(panel, judges=judges)
    if items[0].second is not None:
        return panel, None, ""
    panel, said = calibrated(panel, ballots)
    card = panel_card(panel, said, items, earlier=recorded_card(store, panel.key) if again else None)
    save_card(store, panel.key, card)
    return panel, card, ""


def audit_verdicts(path: Path, options: JudgeAudit) -> int:
    """A card for each judge whose verdicts a file holds, and a panel of all; 0 if one of them may be believed.

    Without labels, what became of each judge's verdicts since an earlier file; 0 if none drifted.
    """
    from ..judge.calibration import ballots_of, card_of, recorded_verdicts
    from ..judge.labelled import items_by_id
    from ..judge.panel import FEWEST, fit_panel
    from ..judge.recorded import read_verdicts
    from ..judge.votes import model_of

    recorded = read_verdicts(path)
    before = None if options.earlier is None else read_verdicts(options.earlier)
    notes = recorded.notes(path) + ([] if before is None else before.notes(options.earlier or path))
    if options.labels is None and before is not None:
        return _tell_drift(recorded, before, notes, options)
    if options.labels is not None and recorded.exported:
        items = items_by_id(options.labels)
    else:
        items = _items(options, f"{path} holds verdicts of judges")
    rows, unlabelled = recorded.on(items) if recorded.exported else (recorded.rows, 0)
    if unlabelled:
        notes.append(f"{path}: {unlabelled} of {len(recorded.rows)} verdicts are on items without a label")
    verdicts = recorded_verdicts(items, rows)
    earlier = {} if before is None else recorded_verdicts(items, before.on(items)[0])
    cards = [
        card_of(
            judge,
            own,
            model=model_of(judge),
            earlier=card_of(judge, earlier[judge]) if judge in earlier and earlier[judge].votes else None,
        )
        for judge, own in sorted(verdicts.items())
        if own.votes
    ]
    if not cards:
        judged = next((str(row["id"]) for row in recorded.rows if "id" in row), "")
        such = f": they are on {judged} and the like, labels on {items[0].id}" if judged else ""
        raise InputError(
            f"{path} holds no verdict on the items of {options.labels}{such}. {'; '.join(notes)}".rstrip(". ")
        )
    panel = None
    if len(cards) > 1 and len(items) < 2 * FEWEST:
        notes.append(f"no panel: it takes {2 * FEWEST} labelled items, and there are {len(items)}")
    elif len(cards) > 1:
        panel = fit_panel(ballots_of(verdicts))
    _write(options.output, cards, panel)
    _tell(options, cards, panel, **({"notes": notes} if options.json else {}))
    if not options.json:
        for note in notes:
            print(f"  note: {note}")
    believed = any(card.admitted for card in cards) or (panel is not None and not panel.refusal)
    return int(not believed)


def _tell_drift(
    now: RecordedVerdicts, before: RecordedVerdicts, notes: list[str], options: JudgeAudit
) -> int:
    from ..judge.recorded import drifts

    told, silent = drifts(before.rows, now.rows)
    notes = [*notes, *silent]
    if options.json:
        shown = [{**asdict(drift), "drifted": drift.drifted} for drift in told]
        print_json({"drift": shown, "notes": notes})
    else:
        for drift in told:
            low, high = drift.interval
            print(
                f"{drift.judge:32} {drift.changed:.1%} [{low:.1%}, {high:.1%}] of {drift.items} verdicts changed, mean "
                f"{drift.before:.2f} -> {drift.now:.2f}  {'DRIFTED' if drift.drifted else 'as before'}"
            )
        for note in notes:
            print(f"  note: {note}")
    if not told:
        raise InputError(f"{options.earlier} and the verdicts of now have no item in common")
    return int(any(drift.drifted for drift in told))


def read_by_panel(path: Path, options: JudgeAudit) -> int:
    """A panel's verdicts on pairs without labels, by recorded verdicts of its judges; 0 if it decided on any kind."""
    from ..judge.calibration import unlabelled_ballots
    from ..judge.panel import Panel
    from ..record.rows import numbered

    assert options.panel is not None
    try:
        panel = msgspec.json.decode(options.panel.read_bytes(), type=Panel)
    except OSError as error:
        raise InputError(f"cannot read the panel {options.panel}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
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
    from ..judge.card import recorded_card, save_card
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
            store = stack.enter_context(Store(options.store or ":memory:"))
            pool = None
            if any(spec.runs_code for spec in judges.specs):
                pool = await stack.enter_async_context(Pool())

            known = {spec.version: recorded_card(store, spec.version) for spec in judges.specs}
            since = options.since(list(known.values()))

            async def model_of(name: str) -> Model | None:
                asked = options.models[0] if options.models else name
                if options.base_url is None or not asked:
                    return None
                return await recorded_model(
                    asked, store, options.base_url, stack, key_variable=options.api_key_env, since=since
                )

            audited = await audit_graders(
                judges, items, model_of=model_of, pool=pool, earlier=known if since else {}
            )
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
    if panel.live:
        return f"{figures}\n" + "\n".join(
            f"  alone, {kind or 'any answer'}: "
            + (
                f"sure of {live.coverage:.0%} of {live.items} answers, right on {live.accuracy:.3f} of these"
                if live.accuracy is not None
                else f"sure of none of {live.items} answers: label more of them, or ask better judges"
            )
            for kind, live in panel.live.items()
        )
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
