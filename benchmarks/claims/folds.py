"""The main job over folds and seeds: every agent's figures, what was released, and by how much it is better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from page import percent, points, publish, table
from runs import Ran, Row, averaged, pooled, results, run_all

from whet.prove.gate import compare
from whet.stats import cluster_interval

AGENTS = (
    "weak",
    "naive",
    "rule",
    "rule (judge)",
    "head",
    "cloned",
    "trained",
    "trained (judge)",
    "route",
    "released",
    "head, true clues",
)
PAIRS = (("released", "weak"), ("released", "rule"), ("released", "naive"), ("trained", "cloned"))
TIERS = ("mix", "exact", "vague", "hard")


def mail(folder: Path, *, data: Path, folds: int, seeds: Sequence[int], parallel: int, reuse: bool) -> None:
    """Real mail: all folds of the owners for each seed."""
    jobs = [(seed, fold) for seed in seeds for fold in range(folds)]
    runs = run_all(jobs, folder=folder / "mail", mail=data, parallel=parallel, reuse=reuse)
    publish("Real mail", describe(runs, apart=False, claims=True))


def synthetic(folder: Path, *, seeds: Sequence[int], parallel: int, reuse: bool) -> None:
    """Synthetic companies, another one for each seed."""
    jobs = [(seed, None) for seed in seeds]
    runs = run_all(jobs, folder=folder / "synthetic", mail=None, parallel=parallel, reuse=reuse)
    publish("Synthetic mail", describe(runs, apart=True, claims=False))


def describe(runs: Sequence[Ran], *, apart: bool, claims: bool) -> list[str]:
    """All tables of the section."""
    by_seed: dict[int, list[Ran]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, []).append(run)
    tables = {seed: pooled(some) for seed, some in by_seed.items()}
    lines: list[str] = []
    for seed, found in tables.items():
        released = ", ".join(
            ("" if run.fold is None else f"fold {run.fold}: ") + f"{run.report['released']}"
            for run in by_seed[seed]
        )
        lines += [f"### Seed {seed}", "", f"Released: {released}.", "", *_agents(found), *_differences(found)]
    lines += ["### Over the seeds", "", *_over_seeds(list(tables.values()), apart=apart)]
    lines += ["### By owner", "", *_owners(list(tables.values()))] if not apart else []
    lines += ["### Runs", "", *_runs(runs)]
    if claims:
        lines += ["### Against what was asked for", "", *_asked(tables, runs)]
    return lines


def mean(values: Iterable[float]) -> float | None:
    """Mean, None of nothing."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _agents(found: Mapping[str, Mapping[str, Row]]) -> list[str]:
    rows = []
    for agent in (agent for agent in AGENTS if agent in found):
        for tier in TIERS:
            chosen = [row for row in found[agent].values() if tier in ("mix", row.tier)]
            low, high = cluster_interval(
                [row.success for row in chosen], [row.mailbox for row in chosen], bounds=(0.0, 1.0)
            )
            success = percent(mean(row.success for row in chosen))
            rows.append(
                [
                    f"{agent}, {tier}" if tier == "mix" else f"· {tier}",
                    f"{success} [{percent(low)}, {percent(high)}]",
                    percent(mean(row.hallucination for row in chosen)),
                    percent(mean(row.unknown for row in chosen if row.answerable)),
                    percent(mean(row.unknown for row in chosen if not row.answerable)),
                    f"{mean(row.turns for row in chosen) or 0.0:.2f}",
                    str(len(chosen)),
                ]
            )
    heads = (
        "agent",
        "success %",
        "hallucination %",
        "unknown % (answerable)",
        "unknown % (not)",
        "turns",
        "n",
    )
    return table(heads, rows)


def _differences(found: Mapping[str, Mapping[str, Row]]) -> list[str]:
    rows = []
    for new, old in PAIRS:
        verdict = compare(results(found[old]), results(found[new]), against=old)
        rows.append(
            [
                f"{new} − {old}",
                points(verdict.effect, verdict.interval),
                f"{verdict.e_value:.3g}",
                str(verdict.n),
                "yes" if verdict.promote else "no",
            ]
        )
    cost = (mean(row.success for row in found["head, true clues"].values()) or 0.0) - (
        mean(row.success for row in found["head"].values()) or 0.0
    )
    lines = table(("comparison", "points", "e-value", "n", "proven better"), rows)
    return [
        *lines,
        f"Parsing the question costs {100 * cost:.1f} points (head with the question's true clues).",
        "",
    ]


def _over_seeds(tables: Sequence[Mapping[str, Mapping[str, Row]]], *, apart: bool) -> list[str]:
    sides = averaged(tables, apart=apart)
    rows = []
    for new, old in PAIRS:
        verdict = compare(sides[old], sides[new], against=old)
        rows.append([f"{new} − {old}", points(verdict.effect, verdict.interval), str(verdict.n)])
    what = (
        "Each seed is another company"
        if apart
        else "A question asked in several seeds counts once, as its mean"
    )
    return [
        f"{what}; intervals clustered by mailbox.",
        "",
        *table(("comparison", "points", "distinct questions"), rows),
    ]


def _owners(tables: Sequence[Mapping[str, Mapping[str, Row]]]) -> list[str]:
    agents = [
        agent for agent in ("weak", "naive", "rule", "head", "trained", "released") if agent in tables[0]
    ]
    owners = sorted({row.mailbox for found in tables for row in found["weak"].values()})
    rows = []
    for owner in owners:
        cells = []
        for agent in agents:
            chosen = [row for found in tables for row in found[agent].values() if row.mailbox == owner]
            cells.append(percent(mean(row.success for row in chosen)))
        distinct = len(
            {row.question for found in tables for row in found["weak"].values() if row.mailbox == owner}
        )
        rows.append([owner, str(distinct), *cells])
    return table(("owner", "distinct questions", *(f"{agent} %" for agent in agents)), rows)


def _runs(runs: Sequence[Ran]) -> list[str]:
    rows = [
        [
            str(run.seed),
            "–" if run.fold is None else str(run.fold),
            f"{run.seconds:.0f}",
            f"{run.report['cpu_seconds']:.0f}",
            f"{run.peak:.2f}" if run.peak else "–",
            str(run.report["n"]),
            run.report["released"],
            "yes" if run.report["verdict"]["promote"] else "no",
        ]
        for run in runs
    ]
    return table(("seed", "fold", "seconds", "CPU-seconds", "peak GB", "n", "released", "promoted"), rows)


def _asked(tables: Mapping[int, Mapping[str, Mapping[str, Row]]], runs: Sequence[Ran]) -> list[str]:
    """Each line that was set beforehand, by seed: what came out, and whether it holds."""
    wanted: list[tuple[str, list[tuple[bool, str]]]] = []

    def line(what: str, values: Sequence[tuple[bool, str]]) -> None:
        wanted.append((what, list(values)))

    def share(found: Mapping[str, Mapping[str, Row]], field: str, *, answerable: bool | None = None) -> float:
        rows = [row for row in found["released"].values() if answerable in (None, row.answerable)]
        return mean(getattr(row, field) for row in rows) or 0.0

    each = list(tables.values())
    line("success ≥ 91 %", [(v >= 0.91, percent(v)) for f in each for v in [share(f, "success")]])
    line(
        "hallucination ≤ 4.5 %", [(v <= 0.045, percent(v)) for f in each for v in [share(f, "hallucination")]]
    )
    for old, least in (("weak", 0.15), ("rule", 0.03), ("naive", 0.08)):
        verdicts = [compare(results(f[old]), results(f["released"]), against=old) for f in each]
        line(
            f"≥ {100 * least:+.0f} points over {old}" + (", interval above 0" if old == "rule" else ""),
            [
                (v.effect >= least and (old != "rule" or v.interval[0] > 0), points(v.effect, v.interval))
                for v in verdicts
            ],
        )
    unknown = [share(f, "unknown", answerable=False) for f in each]
    line("unknown on unanswerable ≥ 85 %", [(v >= 0.85, percent(v)) for v in unknown])
    line("turns ≤ 4.5", [(v <= 4.5, f"{v:.2f}") for f in each for v in [share(f, "turns")]])
    slowest = [max(run.seconds for run in runs if run.seed == seed) for seed in tables]
    line("slowest run ≤ 420 s", [(v <= 420, f"{v:.0f} s") for v in slowest])
    line("distinct pairs ≥ 600", [(len(f["released"]) >= 600, str(len(f["released"]))) for f in each])
    rows = [[what, *(f"{text} {'✓' if met else '✗'}" for met, text in values)] for what, values in wanted]
    return table(("line", *(f"seed {seed}" for seed in tables)), rows)
