"""How much of what is secret is found, how much of what is not is taken, and how fast: `whet.record.store.redaction`.

    python benchmarks/redaction.py [FOLDER] [--each 3] [--show]
    scripts/claims record redaction

The labelled set (`tests/secrets_corpus.py`) has two halves: the shapes that the rules were tuned on, and the others,
which were only counted at first; precision is that of all that was taken out.  The `fresh` sets were written to be
asked once (`tests/secrets_fresh.py`, `tests/secrets_families.py`, `tests/secrets_surroundings.py`,
`tests/secrets_tools.py`, `tests/secrets_vendors.py`, `tests/secrets_settings.py`, `tests/secrets_sessions.py`,
`tests/secrets_incidents.py`).  FOLDER holds
real text: what is taken out of it is counted by rule; `--show` prints that, what was missed and what was taken
wrongly.  Speed is CPU time, of texts that look like they held a secret, and of such with one in each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from secrets_corpus import Labelled, harmless, labelled, tuned
from secrets_families import FAMILY_SETS
from secrets_fresh import FRESH_SETS
from secrets_incidents import INCIDENT_SETS
from secrets_sessions import SESSION_SETS
from secrets_settings import SETTING_SETS
from secrets_surroundings import SURROUNDING_SETS
from secrets_tools import TOOL_SETS
from secrets_vendors import VENDOR_SETS

from whet.record.store.redaction.redact import Redactor

TEXTS = (".json", ".jsonl", ".txt", ".md", ".csv", ".eml", ".sql", "")
"""Suffixes of files that are read as text; mails have none."""
REPEATS = 5


class Found(NamedTuple):
    """What became of a set."""

    recall: float
    precision: float
    """Of all that was taken out."""
    missed: list[str]
    wrong: list[str]


def recall(rows: Sequence[Labelled], lookalikes: Sequence[Labelled]) -> Found:
    """Figures on labelled texts."""
    redactor = Redactor()
    missed = [row.text for row in rows if row.secret in redactor.text(row.text)]
    wrong = [row.text for row in lookalikes if redactor.text(row.text) != row.text]
    taken = len(rows) - len(missed)
    return Found(taken / len(rows), taken / (taken + len(wrong)), missed, wrong)


def real(folder: Path, show: bool) -> str:
    """What is taken out of real text, which holds few secrets if any."""
    redactor, letters = Redactor(), 0
    began = time.process_time()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in TEXTS:
            continue
        text = path.read_bytes().decode(errors="replace")
        letters += len(text)
        for line in text.splitlines():
            clean = redactor.text(line)
            if clean != line and show:
                at = clean.index("[redacted:")
                print(f"  {path.name}: …{clean[max(0, at - 60) : at + 40]!r}")
    rate = letters / 1e6 / (time.process_time() - began)
    taken = ", ".join(f"{rule} {count}" for rule, count in redactor.counts.items()) or "nothing"
    return f"real text, {letters / 1e6:.1f} MB by its lines, {rate:.1f} MB per CPU second: taken out {taken}"


def speed(texts: Sequence[str]) -> float:
    """MB per CPU second, the median of five rounds, of texts of some KB each."""
    redactor, size = Redactor(), sum(len(text) for text in texts) / 1e6
    rates = []
    for _ in range(REPEATS):
        began = time.process_time()
        for text in texts:
            redactor.text(text)
        rates.append(size / (time.process_time() - began))
    return statistics.median(rates)


def of_size(rows: Sequence[str], letters: int) -> list[str]:
    """Texts of so many letters, made of the rows one after the other."""
    whole = "\n".join(rows)
    return [whole[start : start + letters] for start in range(0, len(whole), letters)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="real text")
    parser.add_argument("--each", type=int, default=3, help="texts of each shape")
    parser.add_argument(
        "--show", action="store_true", help="print what was missed, and taken wrongly or of real text"
    )
    options = parser.parse_args()
    rows, lookalikes = labelled(options.each), harmless()
    sets = {
        "labelled, tuned on": (
            [r for r in rows if tuned(r.shape)],
            [r for r in lookalikes if tuned(r.shape)],
        ),
        "labelled, the others": (
            [r for r in rows if not tuned(r.shape)],
            [r for r in lookalikes if not tuned(r.shape)],
        ),
        **{
            f"fresh: {name}": each
            for name, each in (
                FRESH_SETS
                | FAMILY_SETS
                | SURROUNDING_SETS
                | TOOL_SETS
                | VENDOR_SETS
                | SETTING_SETS
                | SESSION_SETS
                | INCIDENT_SETS
            ).items()
        },
    }
    print(f"{'':24}{'secrets':>8}{'look-alikes':>13}{'recall':>8}{'precision':>11}")
    for name, (secrets, others) in sets.items():
        found = recall(secrets, others)
        print(f"{name:24}{len(secrets):8}{len(others):13}{found.recall:8.3f}{found.precision:11.3f}")
        if options.show:
            print(*[f"  missed: {text!r}" for text in found.missed], sep="\n")
            print(*[f"  taken wrongly: {text!r}" for text in found.wrong], sep="\n")
    clean = [row.text for row in lookalikes if Redactor().text(row.text) == row.text] * 40
    prose = of_size(clean, 4_096)
    with_one = [f"{text}\n{row.text}" for text, row in zip(prose, rows, strict=False)]
    print(f"MB per CPU second: look-alikes {speed(prose):.1f}, with a secret each {speed(with_one):.1f}")
    if options.folder is not None:
        print(real(options.folder, options.show))


if __name__ == "__main__":
    main()
