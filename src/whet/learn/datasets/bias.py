"""How synthetic tasks differ from real ones: length, words, answers, subjects, and how well they are told apart.

A generator has a taste: it asks longer, in its own words, about what is easy to ask.  An agent that does well on its
tasks may do so on nothing else.  A classifier that never saw the tasks that it judges says how far the two can be told
apart: an AUC of .5 is not at all, and beside it stands what the same classifier finds between two halves of the real
ones.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ...stats import Interval, auc, cluster_interval
from ...types import Json, Task
from .clusters import clustered, terms
from .near import normalised
from .traffic import text_of

FOLDS = 5
LEAST = 20
"""Tasks of either side below which nothing is compared."""
TOLD_APART = 0.7
"""AUC from which on tasks are called easy to tell apart, if the halves of the real ones are not."""
_TELLING_WORDS = 6


@dataclass(frozen=True, slots=True)
class GeneratorBias:
    """Synthetic tasks beside real ones."""

    real: int
    synthetic: int
    words: tuple[float, float]
    """Median length of a task in words: of real ones, of synthetic ones."""
    length_auc: float
    """Chance that a synthetic one is longer than a real one."""
    unseen: tuple[float, float]
    """Share of the words of real tasks that no synthetic one has, and the other way round."""
    answers: Mapping[str, tuple[float, float]]
    """Kind of answer → its share of real and of synthetic tasks."""
    subjects: float
    """Part of the tasks that would have to be about something else for the clusters to have the same shares."""
    lacking: Sequence[str]
    """Clusters of real tasks that have less than half of their share among the synthetic ones."""
    auc: float
    """Of a classifier of words that tells synthetic tasks from real ones."""
    chance: float
    """The same between two halves of the real ones."""
    telling: Sequence[str]
    """Words by which it tells, `+` for those of synthetic tasks."""
    success: tuple[float, float, Interval] | None = None
    """Success rate on real and on synthetic tasks, and the 95 % interval of the difference; None without both."""

    @property
    def told_apart(self) -> bool:
        """True if the synthetic tasks are easy to tell from real ones."""
        return self.auc >= TOLD_APART and self.auc > self.chance + 0.1

    @property
    def sentences(self) -> list[str]:
        """What differs, in words."""
        by = (
            f", by {', '.join(self.telling)}" if self.told_apart else ": no further than chance would have it"
        )
        lines = [
            f"synthetic tasks are told from real ones with an AUC of {self.auc:.2f} ({self.chance:.2f} between halves "
            f"of the real ones){by}",
            f"length {self.words[1]:g} words against {self.words[0]:g}; {self.unseen[1]:.0%} of their words stand in "
            f"no real task, and {self.unseen[0]:.0%} the other way round",
            f"subjects: {self.subjects:.0%} of them would have to be about something else"
            + (f"; too few about {'; '.join(self.lacking[:3])}" if self.lacking else ""),
            "answers, real and synthetic: "
            + ", ".join(f"{kind} {real:.0%} and {own:.0%}" for kind, (real, own) in self.answers.items()),
        ]
        if self.success is not None:
            real, own, (low, high) = self.success
            lines.append(
                f"the agent succeeds on {own:.0%} of the synthetic ones and {real:.0%} of the real ones: "
                f"{own - real:+.0%} [{low:+.0%}, {high:+.0%}]"
            )
        return lines


def generator_bias(
    real: Sequence[Task],
    synthetic: Sequence[Task],
    *,
    successes: Mapping[str, Sequence[bool]] | None = None,
    seed: int = 0,
) -> GeneratorBias | None:
    """Compare synthetic tasks with real ones; None where either are too few.

    Args:
        successes: id of a task → whether each of its judged runs succeeded.
    """
    if min(len(real), len(synthetic)) < LEAST:
        return None
    texts = [text_of(task) for task in (*real, *synthetic)]
    own = [False] * len(real) + [True] * len(synthetic)
    groups = [_group(task) for task in (*real, *synthetic)]
    lengths = [float(len(normalised(text).split())) for text in texts]
    halves = _halves([_group(task) for task in real], seed)
    separation, weights = _told(texts, own, groups, seed)
    among_real, _ = _told(texts[: len(real)], halves, groups[: len(real)], seed)
    words = [Counter(word for _, word in terms(text)) for text in texts]
    before, after = _sum(words[: len(real)]), _sum(words[len(real) :])
    subjects, lacking = _subjects(texts, own, seed)
    return GeneratorBias(
        real=len(real),
        synthetic=len(synthetic),
        words=(median(lengths[: len(real)]), median(lengths[len(real) :])),
        length_auc=auc(lengths, own),
        unseen=(_unseen(before, after), _unseen(after, before)),
        answers=_answers(real, synthetic),
        subjects=subjects,
        lacking=lacking,
        auc=separation,
        # Whichever half is called the first.
        chance=max(among_real, 1 - among_real),
        telling=weights,
        success=_success(real, synthetic, successes or {}),
    )


def _group(task: Task) -> str:
    """What must lie in one fold: a task with what was made of it."""
    provenance = task.meta.get("provenance")
    parent = provenance.get("of") if isinstance(provenance, Mapping) else None
    return str(task.group or parent or task.id)


def _halves(groups: Sequence[str], seed: int) -> list[bool]:
    rng = random.Random(f"halves:{seed}")
    side = {group: rng.random() < 0.5 for group in sorted(set(groups))}
    return [side[group] for group in groups]


def _features(text: str) -> set[str]:
    plain = normalised(text).split()
    return {*plain, *(" ".join(pair) for pair in pairwise(plain)), f"~{min(40, len(plain)) // 4}"}


def _told(
    texts: Sequence[str], own: Sequence[bool], groups: Sequence[str], seed: int
) -> tuple[float, list[str]]:
    """AUC of naive Bayes over words, pairs of words and length, out of fold; and the words that tell most."""
    features = [_features(text) for text in texts]
    rng = random.Random(f"told:{seed}")
    fold_of = {group: rng.randrange(FOLDS) for group in sorted(set(groups))}
    scores = [0.0] * len(texts)
    for fold in range(FOLDS):
        inside = [item for item, group in enumerate(groups) if fold_of[group] != fold]
        odds = _odds([features[item] for item in inside], [own[item] for item in inside])
        for item, group in enumerate(groups):
            if fold_of[group] == fold:
                # The mean, not the sum: a long text is not more surely anything.
                word_odds = [odds[word] for word in features[item] if word in odds]
                scores[item] = sum(word_odds) / len(word_odds) if word_odds else 0.0
    value = auc(scores, own)
    odds = _odds(features, own)
    counts = Counter(word for held in features for word in held)
    strength: Callable[[str], float] = lambda word: abs(odds[word]) * math.sqrt(counts[word])  # noqa: E731
    tops = sorted(
        (word for word in odds if word[0] != "~"), key=lambda word: (-strength(word), " " in word, word)
    )
    return 0.5 if math.isnan(value) else value, [
        f"{'+' if odds[word] > 0 else '-'}{word}" for word in tops[:_TELLING_WORDS]
    ]


def _odds(features: Sequence[set[str]], own: Sequence[bool]) -> dict[str, float]:
    """Word → log-odds that a task that holds it is synthetic, of words of more than one task."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    totals = [0, 0]
    for held, mine in zip(features, own, strict=True):
        totals[mine] += 1
        for word in held:
            counts[word][mine] += 1
    return {
        word: math.log((mine + 0.5) / (totals[1] + 1)) - math.log((others + 0.5) / (totals[0] + 1))
        for word, (others, mine) in counts.items()
        if others + mine > 1
    }


def _sum(counters: Sequence[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _unseen(words: Counter[str], reference: Counter[str]) -> float:
    return sum(count for word, count in words.items() if word not in reference) / max(1, words.total())


def answer_kind(task: Task) -> str:
    """`unknown`, `none`, `yes or no`, `number`, `short text`, `long text`, `list` or `object`."""
    answer: Json = task.answer
    if answer is None:
        return "none" if task.answer_known else "checker" if task.success_checker else "unknown"
    if isinstance(answer, bool) or (isinstance(answer, str) and answer.strip().casefold() in ("yes", "no")):
        return "yes or no"
    if isinstance(answer, list | tuple | Mapping):
        return "object" if isinstance(answer, Mapping) else "list"
    text = str(answer).strip()
    if any(letter.isdigit() for letter in text) and not any(letter.isalpha() for letter in text):
        return "number"
    return "short text" if len(text.split()) <= 5 else "long text"


def _answers(real: Sequence[Task], synthetic: Sequence[Task]) -> dict[str, tuple[float, float]]:
    before, after = (Counter(map(answer_kind, tasks)) for tasks in (real, synthetic))
    return {
        kind: (before[kind] / len(real), after[kind] / len(synthetic)) for kind in sorted({*before, *after})
    }


def _subjects(texts: Sequence[str], own: Sequence[bool], seed: int) -> tuple[float, list[str]]:
    """The total variation distance of the clusters' shares, and which clusters of real ones are too few."""
    sizes = own.count(False), own.count(True)
    distance, lacking = 0.0, []
    for cluster in clustered(texts, seed=seed).clusters:
        mine = sum(own[member] for member in cluster.members)
        before, after = (len(cluster.members) - mine) / sizes[0], mine / sizes[1]
        distance += abs(before - after) / 2
        if before > 0.02 and after < before / 2:
            lacking.append(cluster.name)
    return distance, lacking


def _success(
    real: Sequence[Task], synthetic: Sequence[Task], successes: Mapping[str, Sequence[bool]]
) -> tuple[float, float, Interval] | None:
    rows = [
        (mine, _group(task), sum(runs) / len(runs))
        for mine, tasks in ((False, real), (True, synthetic))
        for task in tasks
        if (runs := successes.get(task.id))
    ]
    before = [rate for mine, _, rate in rows if not mine]
    after = [rate for mine, _, rate in rows if mine]
    if min(len(before), len(after)) < LEAST:
        return None
    means = sum(before) / len(before), sum(after) / len(after)
    # Two means of different tasks: each has its own spread, and the variances add.
    spreads = [
        cluster_interval(
            [rate for mine, _, rate in rows if mine is side], [g for mine, g, _ in rows if mine is side]
        )
        for side in (False, True)
    ]
    half = math.hypot(*((high - low) / 2 for low, high in spreads))
    gain = means[1] - means[0]
    return (*means, (max(-1.0, gain - half), min(1.0, gain + half)))
