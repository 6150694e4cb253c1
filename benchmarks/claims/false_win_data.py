"""Wrong labels and repeated rows planted in real questions: what `whet refine` finds, and whether it helps.

Each set is a table of questions and which of a few labels is right: the database that a question is about, the subject
of an examination question.  A fifth of the labels becomes another one and a tenth of the rows comes twice, exactly, in
other letters, or with a word more.  A plain classifier is then fitted to the rows as they are, as they were refined
(what is called wrong is left out, as `whet refine` does unless it is told to repair), and with as many left out by
chance, and asked about rows that were never touched.  Where cleanlab is installed (pip install cleanlab scikit-learn),
what it finds stands beside it, as precision / recall.  Last, answers of GSM8K are exchanged, and recorded answers of
models say which: of six, of four old ones of one family, and of six whose answers belong to other questions.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from data_rows import AbsentData, csv_rows, json_rows, lacks
from linear_texts import accuracy
from newcomers_shell import Noted

from whet.learn.datasets import labels as classifier
from whet.learn.datasets.consensus import Answers
from whet.learn.datasets.refining import Refinement, refine
from whet.record.rows import row
from whet.types import Task

SEEDS = 8
"""Draws of a table: on a sixth of them, which were never touched, a gain of two points is within what chance does."""
COMPARED, AGENTS = 3, 3
"""Draws that cleanlab sees, and draws of exchanged answers."""
WRONG, TWICE, HELD = 0.2, 0.1, 0.2
PRECISION, RECALL = 0.9, 0.8
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t at .975, for 1 degree of freedom and more."""
CEILING_TEMPERATURE = 0.08
SUBJECTS, EACH = 12, 70
"""Subjects of examinations in a table, and questions of each."""
Pairs = Sequence[tuple[str, str]]


def databases(data: Path, seed: int) -> Pairs:
    """Questions, and the database that each is about."""
    try:
        rows = json.loads((data / "intercode_sql" / "ic_spider_dev.json").read_bytes())
    except (OSError, ValueError) as error:
        raise AbsentData(f"the questions about databases: {error}") from error
    asked = [row for row in rows if isinstance(row, dict) and row.get("query") and row.get("db")]
    if len(asked) < len(rows):
        print(
            f"databases: {len(rows) - len(asked)} of {len(rows)} rows left out, which lack query or db",
            flush=True,
        )
    return [(str(row["query"]), str(row["db"])) for row in asked]


def subjects(data: Path, seed: int) -> Pairs:
    """Examination questions without their options, and their subject."""
    files = sorted((data / "routellm" / "mmlu").glob("*.csv"))
    if len(files) < 2:
        raise AbsentData(f"{data / 'routellm' / 'mmlu'} holds {len(files)} subjects, and two are needed")
    chosen = random.Random(seed).sample(files, min(SUBJECTS, len(files)))
    pairs = []
    for path in chosen:
        asked = [line.get("prompt", "").partition("\nA.")[0] for line in csv_rows(path)]
        asked = [question for question in asked if question.strip()]
        pairs += [
            (question, path.stem) for question in random.Random(seed).sample(asked, min(EACH, len(asked)))
        ]
    return pairs


SETS: dict[str, Callable[[Path, int], Pairs]] = {"databases": databases, "subjects": subjects}


@dataclass(frozen=True)
class Planted:
    """A table with known mistakes, and rows that nothing was done to."""

    rows: Sequence[Task]
    wrong: frozenset[int]
    twice: frozenset[int]
    clean: Pairs


def planted(pairs: Pairs, seed: int, *, wrong: float = WRONG) -> Planted:
    """Plant wrong labels and repeated rows."""
    rng = random.Random(f"planted:{seed}")
    shuffled = rng.sample(list(pairs), len(pairs))
    held = int(len(shuffled) * HELD)
    clean, used = shuffled[:held], shuffled[held:]
    labels = sorted({label for _, label in used})
    mistaken = [rng.random() < wrong for _ in used]
    table = [
        (text, rng.choice([other for other in labels if other != label]) if mistake else label)
        for (text, label), mistake in zip(used, mistaken, strict=True)
    ]
    copies = []
    for place in rng.sample(range(len(table)), int(len(table) * TWICE)):
        text, label = table[place]
        copies.append((rng.choice([text, text.upper().rstrip("?.") + " ?", f"{text} Thanks"]), label))
    rows = [row(text, expected=label) for text, label in [*table, *copies]]
    return Planted(
        rows,
        frozenset(place for place, mistake in enumerate(mistaken) if mistake),
        frozenset(range(len(table), len(rows))),
        clean,
    )


def found(refined: Refinement, *kinds: str) -> set[int]:
    """Rows with a finding of these kinds."""
    return {doubt.row for doubt in refined.doubts if doubt.kind in kinds}


def shares(flagged: set[int], true: frozenset[int]) -> tuple[float, float]:
    """Precision and recall."""
    hits = len(flagged & true)
    return hits / len(flagged) if flagged else 0.0, hits / len(true) if true else 0.0


def learned(rows: Sequence[Task], clean: Pairs) -> float:
    """Accuracy on rows that were never touched, of a classifier fitted to these."""
    return accuracy([(str(task.initial_state["input"]), str(task.answer)) for task in rows], clean)


def ceiling(table: Planted, pairs: Pairs) -> float:
    """The highest recall at `PRECISION` of a model that was fitted to the right labels, at the best of all thresholds.

    What it misses nothing finds that learned from these words and from labels of which a fifth is wrong.
    """
    right = dict(pairs)
    kept = [task for place, task in enumerate(table.rows) if place not in table.twice]
    texts = [str(task.initial_state["input"]) for task in kept]
    names = sorted({label for _, label in pairs})
    given = np.asarray([names.index(str(task.answer)) for task in kept])
    true = np.asarray([names.index(right[text]) for text in texts])
    told = classifier.left_out(classifier.likeness(texts), true, np.ones(len(texts)), len(names))
    order = np.argsort(classifier.softmax(told / CEILING_TEMPERATURE)[np.arange(len(texts)), given])
    hits = np.cumsum((true != given)[order])
    precise = hits / (np.arange(len(order)) + 1) >= PRECISION
    return float(hits[precise].max() / (true != given).sum()) if precise.any() else 0.0


def cleanlab(table: Planted, seed: int) -> tuple[float, float] | None:
    """Precision and recall of cleanlab's confident learning over scikit-learn's logistic regression, if installed."""
    try:
        from cleanlab.filter import find_label_issues
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
    except ImportError:
        return None
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform(
        [str(task.initial_state["input"]) for task in table.rows]
    )
    names = sorted({str(task.answer) for task in table.rows})
    labels = [names.index(str(task.answer)) for task in table.rows]
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    chances = cross_val_predict(
        LogisticRegression(C=10, max_iter=300), features, labels, cv=folds, method="predict_proba"
    )
    flagged = {
        int(place) for place in find_label_issues(labels, chances, n_jobs=1).nonzero()[0]
    } - table.twice
    return shares(flagged, table.wrong)


def beyond(differences: Sequence[float]) -> tuple[float, float]:
    """95 % of the mean of independent draws (Student's t)."""
    mean = fmean(differences)
    half = T_95[len(differences) - 2] * stdev(differences) / math.sqrt(len(differences))
    return mean - half, mean + half


def absent(name: str, data: Path) -> Noted | None:
    """What is noted of a set whose data are not there; None where they are."""
    try:
        SETS[name](data, 0)
    except AbsentData as error:
        return Noted(name, lines={"its data are there": False}, said=str(error))
    return None


def measure(data: Path, folder: Path) -> list[Noted]:
    """Every set, over the seeds; and the tables without a wrong label, of which none may be found."""
    noted = []
    for name, read in SETS.items():
        if gone := absent(name, data):
            noted.append(gone)
            continue
        labels, repeats, gains, by_chance, false, most = [], [], [], [], [], []
        others: list[tuple[float, float]] = []
        for seed in range(SEEDS):
            pairs = read(data, seed)
            table = planted(pairs, seed)
            most.append(ceiling(table, pairs))
            refined = refine(table.rows, seed=seed)
            # Copies of a row with a wrong label are wrong, too; they are found as copies.
            labels.append(shares(found(refined, "mislabelled", "contradiction") - table.twice, table.wrong))
            repeats.append(shares(found(refined, "duplicate"), table.twice))
            raw = learned(table.rows, table.clean)
            gains.append(learned(refined.rows, table.clean) - raw)
            fewer = len(found(refined, "mislabelled", "contradiction", "duplicate"))
            kept = random.Random(seed).sample(list(table.rows), len(table.rows) - fewer)
            by_chance.append(learned(kept, table.clean) - raw)
            if seed < COMPARED and (other := cleanlab(table, seed)) is not None:
                others.append(other)
            untouched = planted(read(data, seed), seed, wrong=0.0)
            false.append(len(found(refine(untouched.rows, seed=seed), "mislabelled")) / len(untouched.rows))
        precision, recall = (fmean(column) for column in zip(*labels, strict=True))
        least, greatest = beyond(gains)
        beside = (
            "{:.2f} / {:.2f}".format(*map(fmean, zip(*others, strict=True))) if others else "not installed"
        )
        noted.append(
            Noted(
                name,
                figures={
                    "wrong labels: precision": f"{precision:.2f}",
                    "recall": f"{recall:.2f}",
                    "recall of a model of the right labels": f"{fmean(most):.2f}",
                    "cleanlab": beside,
                    "found where none is wrong": f"{fmean(false):.3f}",
                    "repeated rows": "{:.2f} / {:.2f}".format(
                        *(fmean(c) for c in zip(*repeats, strict=True))
                    ),
                    "accuracy, refined − raw": f"{fmean(gains):+.3f} [{least:+.3f}, {greatest:+.3f}]",
                    "as many left out by chance − raw": f"{fmean(by_chance):+.3f}",
                },
                lines={
                    f"precision of wrong labels at least {PRECISION:g}": precision >= PRECISION,
                    f"recall of wrong labels at least {RECALL:g}": recall >= RECALL,
                    "refined rows teach more than raw ones, beyond chance": least > 0,
                    "rows left out by chance do not": fmean(by_chance) <= 0.005,
                    "refining beats leaving out by chance": fmean(gains) > fmean(by_chance) + 0.01,
                    "nothing is found where nothing is wrong": fmean(false) <= 0.01,
                },
                said=f"A model that was fitted to the right labels finds {fmean(most):.2f} of the wrong ones at a "
                f"precision of {PRECISION:g}, with the threshold set by the truth (docs/decisions/049-refining.md).",
            )
        )
    try:
        return [*noted, *by_agents(data)]
    except AbsentData as error:
        return [*noted, Noted("answers, by six models", lines={"its data are there": False}, said=str(error))]


def number(text: str) -> str:
    """The last number of a solution."""
    numbers = re.findall(r"-?\d[\d,]*\.?\d*", text)
    plain = numbers[-1].replace(",", "").rstrip(".") if numbers else ""
    return plain.removesuffix(".00").removesuffix(".0")


def by_agents(data: Path) -> list[Noted]:
    """Answers of GSM8K, a fifth of them exchanged, beside what models answered."""
    path = data / "gsm8k" / "example_model_solutions.jsonl"
    solved = [
        row
        for row in json_rows(path, lacks("question", "ground_truth"))
        if row is not None and isinstance(row["question"], str) and isinstance(row["ground_truth"], str)
    ]
    right = {one["question"]: number(one["ground_truth"]) for one in solved}
    old = {
        one["question"]: [
            (name, number(of["solution"]))
            for name, of in one.items()
            if isinstance(of, dict) and isinstance(of.get("solution"), str)
        ]
        for one in solved
    }
    responses = data / "routellm" / "gsm8k_responses.csv"
    recorded = {line["prompt"]: line for line in csv_rows(responses) if line.get("prompt")}
    ends = "_response"
    six = {
        question: [
            *answers,
            *(
                (name, number(text or ""))
                for name, text in recorded.get(question, {}).items()
                if name.endswith(ends)
            ),
        ]
        for question, answers in old.items()
    }
    questions = sorted(right)
    noted = []
    for name, answers in (
        ("answers, by six models", six),
        ("by four old ones of a family", old),
        ("control", six),
    ):
        found_of: list[tuple[float, float]] = []
        called = 0
        for seed in range(AGENTS):
            rng = random.Random(f"answers:{seed}")
            wrong = {question for question in questions if rng.random() < WRONG}
            rows = [
                Task(
                    id=question,
                    initial_state={"input": question},
                    answer=right[rng.choice(questions)] if question in wrong else right[question],
                )
                for question in questions
            ]
            # An exchanged answer may be the same by chance.
            wrong = {row.id for row in rows if row.answer != right[row.id]}
            told = _moved(answers, rng) if name == "control" else answers
            doubted = {
                rows[place].id for place in found(refine(rows, answers=told, seed=seed), "mislabelled")
            }
            called += len(doubted)
            found_of.append((len(doubted & wrong) / max(1, len(doubted)), len(doubted & wrong) / len(wrong)))
        precision, recall = (fmean(column) for column in zip(*found_of, strict=True))
        figures = {"wrong labels: precision": f"{precision:.2f}", "recall": f"{recall:.2f}"}
        lines = {}
        if name == "control":
            figures = {"found where none is wrong": f"{called / AGENTS / len(questions):.3f}"}
            lines = {"answers to other questions accuse nobody": called <= 0.02 * AGENTS * len(questions)}
        elif answers is six:
            lines = {f"precision by six models at least {PRECISION:g}": precision >= PRECISION}
        noted.append(Noted(name, figures=figures, lines=lines))
    return noted


def _moved(answers: Answers, rng: random.Random) -> Answers:
    """Each model's answers, given to other questions."""
    by_source: dict[str, list[str]] = {}
    for given in answers.values():
        for source, answer in given:
            by_source.setdefault(source, []).append(answer)
    for column in by_source.values():
        rng.shuffle(column)
    return {
        question: [(source, by_source[source].pop()) for source, _ in given]
        for question, given in answers.items()
    }
