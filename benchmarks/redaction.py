"""How much of what is secret is found, how much of what is not is taken, and how fast: `whet.record.store.redaction`.

    python benchmarks/redaction.py [FOLDER] [--each 3] [--show]

The labelled set (`tests/secrets_corpus.py`) has two halves: the shapes that the rules were tuned on, and the others,
which were only counted at first; precision is that of all that was taken out.  The `fresh` sets were written to be
asked once (`tests/secrets_fresh.py`, `tests/secrets_families.py`, `tests/secrets_surroundings.py`).  FOLDER holds
real text: what is taken out of it is counted by rule, and printed with `--show`.  Speed is CPU time, of texts without
a secret (which stop at the automaton) and of texts with one in each (which meet the exact rules).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from secrets_corpus import Labelled, harmless, labelled, tuned
from secrets_families import FAMILY_SETS
from secrets_fresh import FRESH_SETS
from secrets_surroundings import SURROUNDING_SETS

from whet.record.store.redaction.redact import Redactor

TEXTS = (".json", ".jsonl", ".txt", ".md", ".csv", ".eml", ".sql", "")
"""Suffixes of files that are read as text; mails have none."""
REPEATS = 5


def recall(rows: Sequence[Labelled], lookalikes: Sequence[Labelled]) -> dict[str, float | int | list[str]]:
    """Figures on labelled texts: of all occurrences, of shapes that are never missed, and of what is taken wrongly."""
    redactor = Redactor()
    missed = Counter(row.shape for row in rows if row.secret in redactor.text(row.text))
    wrong = [row.text for row in lookalikes if redactor.text(row.text) != row.text]
    found = len(rows) - missed.total()
    shapes = {row.shape for row in rows}
    return {
        "shapes": len(shapes),
        "texts": len(rows),
        "recall": found / len(rows),
        "shapes_never_missed": (len(shapes) - len(missed)) / len(shapes),
        "lookalikes": len(lookalikes),
        "precision": found / (found + len(wrong)),
        "missed": sorted(missed),
        "taken_wrongly": wrong[:20],
    }


def real(folder: Path, show: bool) -> dict[str, object]:
    """What is taken out of real text, which holds few secrets if any."""
    redactor, letters, files = Redactor(), 0, 0
    began = time.process_time()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in TEXTS:
            continue
        text = path.read_bytes().decode(errors="replace")
        letters, files = letters + len(text), files + 1
        for line in text.splitlines():
            clean = redactor.text(line)
            if clean != line and show:
                at = clean.index("[redacted:")
                print(f"{path.name}: …{clean[max(0, at - 60) : at + 40]!r}", file=sys.stderr)
    seconds = time.process_time() - began
    taken = redactor.counts
    return {
        "files": files,
        "MB": letters / 1e6,
        "taken": taken,
        "MB_per_CPU_second_by_line": letters / 1e6 / seconds,
    }


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
        "--show", action="store_true", help="print where something was taken out of real text"
    )
    options = parser.parse_args()
    rows, lookalikes = labelled(options.each), harmless()
    figures: dict[str, object] = {"all": recall(rows, lookalikes)}
    for name, half in (("tuned_on", True), ("unseen", False)):
        chosen = [row for row in rows if tuned(row.shape) == half]
        figures[name] = recall(chosen, [row for row in lookalikes if tuned(row.shape) == half])
    for name, (secrets, others) in (FRESH_SETS | FAMILY_SETS | SURROUNDING_SETS).items():
        figures[f"fresh_{name}"] = recall(secrets, others)
    clean = [row.text for row in lookalikes if Redactor().text(row.text) == row.text] * 40
    prose = of_size(clean, 4_096)
    figures["speed"] = {
        "MB_per_CPU_second_of_lookalikes": speed(prose),
        "MB_per_CPU_second_with_a_secret_each": speed(
            [f"{text}\n{row.text}" for text, row in zip(prose, rows, strict=False)]
        ),
    }
    if options.folder is not None:
        figures["real"] = real(options.folder, options.show)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
