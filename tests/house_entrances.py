"""Writes docs/entrances.md: every entrance of the record with every consumer, from what the cells do.

    python tests/house_entrances.py

goes in by each entrance, over real HTTP on loopback where that is the way, and asks each consumer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from entrances_consumers import CONSUMERS, cell
from entrances_world import ENTRANCES, GROUPS, Runs, enter

PAGE = Path(__file__).resolve().parent.parent / "docs" / "entrances.md"
Cells = Mapping[tuple[str, str], tuple[bool, str]]
_HEAD = """<!-- Written by scripts/reference from tests/test_entrances.py; do not edit. -->

# Entrances and consumers

Whatever way a run came into the record, whatever reads the record gets the same run. This page is a test: two runs of
one task, one that goes right and one that goes wrong, go in by every entrance with everything that this entrance can
carry (a task, tool calls, an answer, token ids), a person gives the one a thumb up and the other a thumb down, and
every consumer is asked about them. A cell says what came out, after that was held to what the runs did (a reward ranks
the good run above the bad one; an export has the tools with their arguments, results and ids; a replay gives the same
answer), or the number of a sentence below the table: what is missing, and what to do about it.

An entrance refuses what it does not carry. Token ids come through the gateway, a traced model step or an Env's policy;
an answer and the tool calls that are needed come with a Task; a person's correction becomes the answer of the run's
task in `whet.tasks(store)`. `Experiment.improve` learns weights from what the store has of the two (SFT, by thumbs).
"""


def read(runs: Runs, entrance: str) -> dict[tuple[str, str], tuple[bool, str]]:
    """Each consumer's cell of one entrance."""
    found = {}
    for consumer in CONSUMERS:
        found[entrance, consumer] = cell(consumer, runs)
    return found


def page(cells: Cells) -> str:
    """The page that says these cells."""
    sentences = list(dict.fromkeys(text for worked, text in _ordered(cells).values() if not worked))
    works = sum(worked for worked, _ in cells.values())
    lines = [
        _HEAD,
        f"{len(ENTRANCES)} entrances, {len(CONSUMERS)} consumers, {len(cells)} cells: {works} work, "
        f"{len(cells) - works} refuse.",
    ]
    for group, entrances in GROUPS.items():
        lines += [
            "",
            f"## {group}",
            "",
            f"| | {' | '.join(entrances)} |",
            "|---" * (len(entrances) + 1) + "|",
        ]
        for consumer in CONSUMERS:
            row = [cells[entrance, consumer] for entrance in entrances]
            shown = [text if worked else f"[{sentences.index(text) + 1}]" for worked, text in row]
            lines.append(f"| {consumer} | {' | '.join(shown)} |")
    lines += ["", "## What a refusal says", ""]
    lines += [f"{number}. {text}" for number, text in enumerate(sentences, 1)]
    return "\n".join(lines) + "\n"


def on_the_page() -> dict[tuple[str, str], str]:
    """What the page as it stands says of each cell: what came out, or the sentence of a refusal."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    sentences = dict(line.split(". ", 1) for line in lines if line.split(". ")[0].isdecimal())
    found = {}
    entrances: list[str] = []
    for line in lines:
        name, *cells = [text.strip() for text in line.strip("|").split("|")] if line[:1] == "|" else [""]
        if cells and not name:
            entrances = cells
        elif name in CONSUMERS:
            for entrance, text in zip(entrances, cells, strict=True):
                refused = text.startswith("[") and text.endswith("]")
                found[entrance, name] = sentences[text[1:-1]] if refused else text
    return found


def _ordered(cells: Cells) -> dict[tuple[str, str], tuple[bool, str]]:
    """By consumer first, so that one consumer's sentences stand together."""
    return {
        (entrance, consumer): cells[entrance, consumer]
        for consumer in CONSUMERS
        for entrance in ENTRANCES
        if (entrance, consumer) in cells
    }


def main() -> None:
    cells: dict[tuple[str, str], tuple[bool, str]] = {}
    for entrance in ENTRANCES:
        with tempfile.TemporaryDirectory() as folder:
            cells |= read(enter(entrance, Path(folder)), entrance)
    PAGE.write_text(page(cells), encoding="utf-8")


if __name__ == "__main__":
    main()
