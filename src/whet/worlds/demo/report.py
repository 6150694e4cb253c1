"""The demo's report: tables in the terminal, and one self-contained HTML file.

Everything that comes from a mail, a question or an agent is written as text: it passes
through `escape`, and the page carries no script at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ...escapes import neutral

TIERS = ("mix", "exact", "vague", "hard")


def percent(value: float | None, signed: bool = False) -> str:
    """`0.915` → `91.5`, `None` → `–`; in percent."""
    return "–" if value is None else f"{100 * value:{'+' if signed else ''}.1f}"


def _rows(report: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for line in report["learners"]:
        mix = line["figures"]["mix"]
        low, high = mix["interval"]
        rows.append(
            [
                line["name"],
                line["learns_from"],
                f"{percent(mix['success'])} [{percent(low)}, {percent(high)}]",
                percent(line["figures"]["hard"]["success"]),
                percent(mix["hallucination"]),
                f"{percent(mix['idk_unanswerable'])} / {percent(mix['idk_answerable'])}",
                f"{mix['turns']:.1f}",
                str(line["rollouts"]),
                "–" if line["lift"] is None else f"{100 * line['lift']:+.2f}",
                f"{line['seconds']:.0f}",
            ]
        )
    return rows


HEADS = (
    "agent",
    "learned from",
    "success % (mix) [95 %]",
    "hard",
    "hallucination %",
    "unknown %: right / wrong",
    "turns",
    "rollouts",
    "points per 1,000 rollouts",
    "seconds",
)
SHORT = ("agent", "success % [95 %]", "hard", "halluc.", "unknown r/w", "turns", "rollouts", "lift/1k", "s")
NARROW = ("agent", "success % [95 %]", "halluc.", "unknown r/w", "turns", "rollouts")
"""The same for a terminal, without what each learned from."""


def in_words(report: Mapping[str, Any]) -> list[str]:
    """The table in plain words, for somebody who sees it for the first time."""
    before, after = (report["stages"][name]["mix"] for name in ("weak", "released"))

    def of_100(figures: Mapping[str, Any], name: str) -> str:
        return "–" if figures[name] is None else f"{100 * figures[name]:.0f}"

    if report["released"] == "weak":
        summary = f"Nothing is released. Of 100 questions the agent as it came gets {of_100(before, 'success')} right"
        wrong = f"{of_100(before, 'hallucination')} wrong with confidence"
    else:
        summary = (
            f"Of 100 questions the released agent ({report['released']}) gets {of_100(after, 'success')} right "
            f"instead of {of_100(before, 'success')}"
        )
        wrong = (
            f"{of_100(after, 'hallucination')} wrong with confidence instead of "
            f"{of_100(before, 'hallucination')}"
        )
    return [
        f"{summary}, and {wrong}.",
        "success: right answers, with the interval that holds the rate in 95 of 100 cases; hard: the same where the "
        "question names little of the mail; halluc.: wrong with confidence.",
        "unknown r/w: of questions without and with an answer, how often it says that it does not know, rightly and "
        "wrongly; turns: steps of a question.",
        "rollouts: questions that it was tried on while learning; lift/1k: points of success per 1,000 of them; s: "
        "seconds.",
    ]


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """The table of all learners, what was released, and the verdict with its evidence."""
    console.print(
        f"{report['n']} questions from mailboxes that nothing trained on: {report['held_out']}", markup=False
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    columns = SHORT if console.width >= 100 else NARROW
    for head in columns:
        table.add_column(head, justify="left" if head == "agent" else "right", no_wrap=True)
    for line, row in zip(report["learners"], _rows(report), strict=True):
        cells = dict(zip(SHORT, [row[0], *row[2:]], strict=True))
        table.add_row(
            *(cells[head] for head in columns), style="bold" if line["name"] == "released" else None
        )
    console.print(table)
    for sentence in in_words(report):
        console.print(neutral(sentence), markup=False, highlight=False)
    console.print()
    for reason in report["composition"]:
        console.print(f"  {neutral(reason)}", markup=False)
    verdict = report["verdict"]
    low, high = verdict["interval"]
    console.print(
        f"{'PROMOTED' if verdict['promote'] else 'REFUSED'}: {report['judged']} against {verdict['against']}: "
        f"{percent(verdict['effect'], True)} points [{percent(low, True)}, {percent(high, True)}], "
        f"e-value {verdict['e_value']:.3g}, n = {verdict['n']}",
        style="bold green" if verdict["promote"] else "bold red",
        markup=False,
    )
    for reason in verdict["reasons"]:
        console.print(f"  {neutral(reason)}", markup=False)
    console.print(
        f"seed {report['seed']}, {report['seconds']:.0f} s ({report['cpu_seconds']:.0f} CPU-seconds)",
        markup=False,
    )


def chart(
    name: str, series: Mapping[str, Sequence[tuple[float, float]]], width: int = 460, height: int = 200
) -> str:
    """An SVG line chart of `series` name → (x, y) points; `""` when there is nothing to draw."""
    points = [point for line in series.values() for point in line]
    if len(points) < 2:
        return ""
    margin, bottom, top = 44, 24, 22
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    x1 = x1 if x1 > x0 else x0 + 1
    if y0 == y1:  # what never moved runs through the middle
        y0, y1 = y0 - 0.5, y1 + 0.5
    colours = ("#1b6ca8", "#c8553d", "#588b3c", "#7d5ba6", "#b58900")

    def place(x: float, y: float) -> str:
        across = margin + (x - x0) / (x1 - x0) * (width - margin - 8)
        down = height - bottom - (y - y0) / (y1 - y0) * (height - bottom - top)
        return f"{across:.1f},{down:.1f}"

    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
        f' aria-label="{escape(name)}"><text x="{margin}" y="12" class="t">{escape(name)}</text>'
    ]
    for value in (y0, (y0 + y1) / 2, y1):
        down = place(x0, value).split(",")[1]
        parts.append(
            f'<line x1="{margin}" x2="{width - 8}" y1="{down}" y2="{down}" class="g"/>'
            f'<text x="{margin - 4}" y="{down}" class="l" text-anchor="end">{value:.3g}</text>'
        )
    parts.append(f'<text x="{margin}" y="{height - 6}" class="l">{x0:.3g}</text>')
    parts.append(f'<text x="{width - 8}" y="{height - 6}" class="l" text-anchor="end">{x1:.3g}</text>')
    for number, (label, line) in enumerate(series.items()):
        colour = colours[number % len(colours)]
        path = " ".join(place(x, y) for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(line) == 1:  # a line of one point is invisible
            across, _, down = path.partition(",")
            parts.append(f'<circle cx="{across}" cy="{down}" r="2.5" fill="{colour}"/>')
        if len(series) > 1:
            parts.append(
                f'<text x="{width - 10}" y="{12 + 12 * number}" style="fill:{colour}" class="l" text-anchor="end">'
                f"{escape(label)}</text>"
            )
    return "".join(parts) + "</svg>"


STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c}
table{border-collapse:collapse;font-size:14px}td,th{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right}
td{white-space:nowrap}td.w{white-space:normal}
td:first-child,th:first-child,td.w,th.w{text-align:left}tr.b td{font-weight:600;background:#f0f6ef}
pre{background:#f6f6f4;padding:.7rem;overflow:auto;font-size:13px;white-space:pre-wrap}.two{display:grid;
grid-template-columns:1fr 1fr;gap:1rem}.v{padding:.7rem 1rem;border-left:5px solid #588b3c;background:#f0f6ef}
.v.no{border-color:#c8553d;background:#faf0ee}svg .t{font-size:12px;font-weight:600}svg .l{font-size:10px;fill:#666}
svg .g{stroke:#e4e4e4}.add{color:#2a6f2a}.del{color:#a33}h2{margin-top:2.2rem}
"""


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], wide: int = 1, bold: int | None = None
) -> str:
    def cell(tag: str, index: int, text: str) -> str:
        return f"<{tag}{' class=w' if index < wide else ''}>{escape(str(text))}</{tag}>"

    head = "".join(cell("th", index, text) for index, text in enumerate(heads))
    body = "".join(
        f"<tr{' class=b' if number == bold else ''}>"
        + "".join(cell("td", index, text) for index, text in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _diff(text: str) -> str:
    lines = []
    for line in text.splitlines():
        kind = "add" if line.startswith("+") else "del" if line.startswith("-") else ""
        lines.append(f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line))
    return "<pre>" + "\n".join(lines) + "</pre>"


def html(report: Mapping[str, Any]) -> str:
    """The whole report as one page without script or outside resources."""
    verdict = report["verdict"]
    low, high = verdict["interval"]
    names = [line["name"] for line in report["learners"]]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>whet: what was learned</title>",
        f"<style>{STYLE}</style><h1>What the agent learned, and the proof</h1>",
        f"<p class='v{'' if verdict['promote'] else ' no'}'><b>{'Promoted' if verdict['promote'] else 'Refused'}:</b> "
        f"{escape(report['judged'])} against {escape(verdict['against'])}: {percent(verdict['effect'], True)} points "
        f"[{percent(low, True)}, {percent(high, True)}], e-value {verdict['e_value']:.3g}, n = {verdict['n']}."
        + "".join(f"<br>{escape(reason)}" for reason in verdict["reasons"])
        + "</p>",
        f"<p>{escape(report['about'])}. Judged on mailboxes that nothing trained on: {escape(report['held_out'])}.</p>",
        "<h2>All learners, side by side</h2>",
        _table(HEADS, _rows(report), wide=2, bold=names.index("released") if "released" in names else None),
        f"<p>{escape(in_words(report)[0])}</p>",
        "<ul>" + "".join(f"<li>{escape(reason)}</li>" for reason in report["composition"]) + "</ul>",
        "<h2>By tier</h2>",
        _table(
            ["agent", *(f"{tier} success / hallucination %" for tier in TIERS)],
            [
                [line["name"]]
                + [
                    f"{percent(line['figures'][tier]['success'])} / {percent(line['figures'][tier]['hallucination'])}"
                    for tier in TIERS
                ]
                for line in report["learners"]
            ],
        ),
        "<h2>By mailbox</h2>",
        _table(["mailbox", "n", *report["owners"]["agents"]], report["owners"]["rows"]),
        "<h2>Curves</h2>",
        "".join(chart(name, series) for name, series in report["curves"].items()),
        "<h2>What changed</h2>",
    ]
    for name, text in report["diffs"].items():
        parts.append(f"<h3>{escape(name)}</h3>{_diff(text)}")
    if report["importances"]:
        parts.append("<h3>What the head looks at</h3>")
        parts.append(
            _table(["feature", "gain"], [[name, f"{gain:.0f}"] for name, gain in report["importances"]])
        )
    if report["route"]:
        parts.append(f"<h3>Who takes which question</h3><pre>{escape(report['route'])}</pre>")
    parts.append("<h2>Before and after</h2>")
    for example in report["examples"]:
        parts.append(
            f"<h3>{escape(example['question'])}</h3><p>Truth: {escape(example['truth'])}</p><div class=two>"
            f"<div><b>before</b><pre>{escape(example['before'])}</pre></div>"
            f"<div><b>after</b><pre>{escape(example['after'])}</pre></div></div>"
        )
    parts.append("<h2>Where the time went</h2>")
    parts.append(
        _table(
            ["stage", "seconds", "CPU-seconds", "rollouts"],
            [
                [row["stage"], f"{row['seconds']:.1f}", f"{row['cpu_seconds']:.1f}", str(row["rollouts"])]
                for row in report["timings"]
            ],
        )
    )
    parts.append(
        f"<p>Seed {report['seed']}; {report['seconds']:.0f} s on the clock, {report['cpu_seconds']:.0f} CPU-seconds. "
        + " ".join(escape(note) for note in report["notes"])
        + "</p></html>"
    )
    return "".join(parts)


def write_html(report: Mapping[str, Any], path: Path) -> None:
    """Write the page, whole or not at all."""
    temporary = path.with_suffix(".part")
    temporary.write_text(html(report), encoding="utf-8")
    temporary.replace(path)
