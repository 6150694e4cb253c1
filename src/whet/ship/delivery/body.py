"""The body of a pull request: what changes, by how much it is better, and how anybody repeats the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...record.store import Store
from ...stats import ClusterMean
from ...types import Bundle, Verdict
from ..provenance import provenance_of
from .evidence import PICTURE, DeliveredEvidence
from .markdown import fenced, plain, span, verbatim
from .picture import Bar, effect_svg

EXAMPLES = 3
"""Won and lost examples that are shown, each."""
LONGEST_DIFF = 40_000
"""Characters; GitHub takes 65,536 of a body."""
FEWEST = 8
"""Tasks of a kind below which its effect says nothing, so that it is named and not drawn."""
_MOST_KINDS = 12
_Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


def title_of(bundle: Bundle, evidence: DeliveredEvidence) -> str:
    """One line without anything that a page would make a link of."""
    names = ", ".join(plain(name, 40) for name in sorted(bundle)[:3])
    return (
        f"{names}: {plain(evidence.metric, 30)} {evidence.verdict.effect:+.3f} on {evidence.verdict.n} tasks"
    )


def body_of(
    store: Store,
    bundle: Bundle,
    verdict: Verdict | None,
    evidence: DeliveredEvidence,
    diff: str,
    examples: int,
    *,
    hashes: Mapping[str, str],
    picture: str = PICTURE,
) -> str:
    """The whole body, in Markdown.

    Args:
        verdict: as the record has it, which may rest on more than the files (guardrails, several contenders).
        diff: of the source, for `git apply`.
        examples: won and lost ones that are shown with their text, each.
        hashes: path → SHA-256 of the files beside it.
        picture: its address, or its path beside the body.
    """
    pairs = _pairs(evidence)
    parts = [
        _sentence(bundle, evidence),
        _diff(diff),
        f"### How much better\n\n![effect and 95 % interval, of all tasks and of each kind]({picture})",
        _figures(evidence, verdict),
        "### What may not get worse\n\n" + _guardrails(evidence, verdict),
        "### By kind of task\n\n" + _slices(pairs),
        "### Won and lost\n\n" + _examples(store, pairs, examples),
        "### Who judged\n\n" + _evaluators(store, bundle, evidence, verdict),
        "### Cost and time\n\n" + _costs(pairs),
        _repeat(evidence, hashes),
        "### Back\n\nRevert the merge. What runs from the record: `whet rollback` (a trial: `whet rollback "
        f"{bundle.id}`). To put it live after the merge: `whet release {evidence.folder}/bundle.json`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sentence(bundle: Bundle, evidence: DeliveredEvidence) -> str:
    verdict = evidence.verdict
    names = ", ".join(span(name) for name in sorted(bundle))
    low, high = verdict.interval
    proven = "is shown to be better" if verdict.promote else "is **not** shown to be better"
    if verdict.margin:
        proven = proven.replace("better", f"not worse by more than {verdict.margin:g}")
    return (
        f"This change of {names} {proven}: {span(evidence.metric)} changes by **{verdict.effect:+.3f}** "
        f"[{low:+.3f}, {high:+.3f}] over {verdict.n} tasks that nothing was learned or chosen on."
    )


def _diff(diff: str) -> str:
    if not diff:
        return "### The change\n\nNo file of the source changes; what is released is in `bundle.json`."
    if len(diff) > LONGEST_DIFF or _unreadable(diff):
        return f"### The change\n\n{len(diff):,} characters: see *Files changed*."
    return "### The change\n\n" + verbatim(diff, "diff")


def _unreadable(diff: str) -> bool:
    """True of a diff with bytes that are no UTF-8, which the API does not take."""
    return any("\ud800" <= letter <= "\udfff" for letter in diff)


def picture_of(evidence: DeliveredEvidence) -> str:
    """The effect and its interval, of all and of each kind of task, as SVG."""
    verdict = evidence.verdict
    shown, _ = _by_slice(_pairs(evidence))
    bars = [("all", verdict.n, verdict.effect, *verdict.interval), *shown]
    return effect_svg(bars, title=f"Change of {plain(evidence.metric, 30)}, with its 95 % interval")


def _figures(evidence: DeliveredEvidence, recorded: Verdict | None) -> str:
    verdict = evidence.verdict
    low, high = verdict.interval
    rows = [
        ("tasks", f"{verdict.n}"),
        ("effect", f"{verdict.effect:+.4f}"),
        ("95 % interval", f"{low:+.4f} to {high:+.4f}"),
        ("e-value", f"{verdict.e_value:.4g}"),
        ("decision", "promote" if verdict.promote else "do not promote"),
    ]
    table = "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)
    if recorded is None or _agrees(recorded, verdict):
        return table
    low, high = recorded.interval
    return table + (
        f"\n\nThe record's own Verdict {span(recorded.id)} rests on more than these rows: effect "
        f"{recorded.effect:+.4f} [{low:+.4f}, {high:+.4f}], e-value {recorded.e_value:.4g}, {recorded.n} pairs."
    )


def _agrees(recorded: Verdict, verdict: Verdict) -> bool:
    figures = [
        (each.effect, *each.interval, each.e_value, each.n, each.promote) for each in (recorded, verdict)
    ]
    return figures[0] == figures[1]


def _pairs(evidence: DeliveredEvidence) -> list[_Pair]:
    after = {str(row.get("task")): row for row in evidence.rows["candidate"]}
    return [
        (row, after[str(row.get("task"))])
        for row in evidence.rows["baseline"]
        if str(row.get("task")) in after
    ]


def _value(row: Mapping[str, Any]) -> float | None:
    value = row.get("success", row.get("score"))
    return float(value) if isinstance(value, int | float) else None


def _by_slice(pairs: Sequence[_Pair]) -> tuple[list[Bar], list[tuple[str, int]]]:
    """The largest kinds of task with effect and interval, and every other one with its tasks.

    Where no task has a kind, what was right before and what was wrong.
    """
    slices: dict[str, ClusterMean] = {}
    for before, after in pairs:
        old, new = _value(before), _value(after)
        if old is None or new is None:
            continue
        named = before.get("slice") or ("was right" if old >= 0.5 else "was wrong")
        mean = slices.setdefault(plain(str(named), 24), ClusterMean())
        mean.add(new - old, str(before.get("group", "")))
    ordered = sorted(slices.items(), key=lambda item: -item[1].n)
    shown = [(name, mean) for name, mean in ordered if mean.n >= FEWEST][:_MOST_KINDS]
    bars = []
    for name, mean in shown:
        low, high = mean.interval()
        bars.append((name, mean.n, mean.mean, max(low, -1.0), min(high, 1.0)))
    return bars, [(name, mean.n) for name, mean in ordered[len(shown) :]]


def _slices(pairs: Sequence[_Pair]) -> str:
    bars, others = _by_slice(pairs)
    rows = [
        f"| {span(name)} | {n} | {effect:+.3f} | {low:+.3f} to {high:+.3f} |"
        for name, n, effect, low, high in bars
    ]
    table = "| kind | tasks | effect | 95 % interval |\n|---|---|---|---|\n" + "\n".join(rows)
    few = [(name, n) for name, n in others if n < FEWEST]
    more = [(name, n) for name, n in others if n >= FEWEST]
    for kinds, why in ((few, f"of fewer than {FEWEST} tasks, too few to say anything"), (more, "smaller")):
        if kinds:
            names = ", ".join(f"{span(name)} ({n})" for name, n in kinds[:40])
            rest = f" and {len(kinds) - 40} more" if len(kinds) > 40 else ""
            table += f"\n\nNot in the table, {why}: {names}{rest}; {sum(n for _, n in kinds)} tasks together."
    return table


def _guardrails(evidence: DeliveredEvidence, recorded: Verdict | None) -> str:
    """What holds and what fails, with its figures: of the files, and what the record's own Verdict has beside them."""
    files = evidence.verdict.guardrails
    beside = {} if recorded is None else {k: v for k, v in recorded.guardrails.items() if k not in files}
    if not files and not beside:
        return "Nothing beside the metric was asked for."
    rows = [
        f"| {span(name)} | {'holds' if held else 'fails'} | these files |" for name, held in files.items()
    ]
    rows += [
        f"| {span(name)} | {'holds' if held else 'fails'} | the record alone |"
        for name, held in beside.items()
    ]
    told = [reason for reason in evidence.verdict.reasons if reason.startswith("Guardrail ")]
    table = "| guardrail | | judged on |\n|---|---|---|\n" + "\n".join(rows)
    return table + (f"\n\n{fenced(chr(10).join(told))}" if told else "")


def _examples(store: Store, pairs: Sequence[_Pair], most: int) -> str:
    changed = [
        (new - old, before, after)
        for before, after in pairs
        if (old := _value(before)) is not None and (new := _value(after)) is not None and new != old
    ]
    won = sorted((each for each in changed if each[0] > 0), key=lambda each: -each[0])
    lost = sorted((each for each in changed if each[0] < 0), key=lambda each: each[0])
    parts = [f"{len(won)} tasks won, {len(lost)} lost, {len(pairs) - len(won) - len(lost)} as before."]
    for name, examples in (("Won", won[:most]), ("Lost", lost[:most])):
        for _, before, after in examples:
            parts.append(f"{name}:\n\n" + fenced(_example(store, before, after)))
    return "\n\n".join(parts)


def _example(store: Store, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    lines = [f"task    {before.get('task')}"]
    for number, (name, row) in enumerate((("before", before), ("after", after))):
        run = next(iter(store.trajectories(ids=[str(row.get("run"))], limit=1)), None)
        if run is not None and not number:
            lines.append(f"asked   {_short(run.task.instruction)}")
        answer = "(the run is not in this record)" if run is None else _short(run.output)
        lines.append(f"{name:7} {_value(row):g}  {answer}")
    return "\n".join(lines)


def _short(content: Any) -> str:
    text = " ".join(str(content).split())
    return text if len(text) <= 400 else text[:397] + "..."


def _evaluators(store: Store, bundle: Bundle, evidence: DeliveredEvidence, recorded: Verdict | None) -> str:
    lines = [f"metric     {evidence.metric}", *(f"judge      {sentence}" for sentence in evidence.judges)]
    for version in bundle.values():
        known = list(store.versions(ids=[version.id]))
        if known:
            provenance = provenance_of(store, version.id)
            lines += [f"evaluator  {name}: {proof}" for name, proof in provenance.evaluators.items()]
            lines += list(provenance.lines())[:8]
    if recorded is not None:
        lines += [f"reason     {reason}" for reason in recorded.reasons]
    return fenced("\n".join(dict.fromkeys(lines)))


def _costs(pairs: Sequence[_Pair]) -> str:
    rows = []
    for name, unit, scale in (("cost", "$ per 1,000 tasks", 1000.0), ("seconds", "s per task", 1.0)):
        both = [
            (float(old), float(new))
            for before, after in pairs
            if isinstance(old := before.get(name), int | float)
            and isinstance(new := after.get(name), int | float)
        ]
        if not both:
            rows.append(f"| {unit} | not known | | |")
            continue
        old, new = (scale * sum(side) / len(both) for side in zip(*both, strict=True))
        change = f"{(new - old) / old:+.0%}" if old else ""
        rows.append(f"| {unit} | {old:.4g} | {new:.4g} | {change} |")
    return "| | before | after | change |\n|---|---|---|---|\n" + "\n".join(rows)


def _repeat(evidence: DeliveredEvidence, hashes: Mapping[str, str]) -> str:
    sums = "\n".join(f"{digest}  {path}" for path, digest in hashes.items())
    return (
        "### Repeat it\n\nThe outcomes of both sides are on this branch. From the root of a clone, this prints "
        f"`{evidence.folder}/verdict.json` to the byte:\n\n"
        + verbatim(evidence.command, "sh")
        + "\n\nSHA-256 (`sha256sum --check`):\n\n"
        + verbatim(sums, "text")
    )
