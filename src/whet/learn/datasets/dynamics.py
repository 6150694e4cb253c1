"""Training dynamics: what became of each example while something learned from it.

Two kinds of learning leave a history.  Where weights are *fitted* to examples (`whet train sft` and its kin), each
epoch reads off the passes that training makes anyway how much of the probability the answer had, before the update that
it went into: the data map of Swayamdipta et al. (2020), whose confidence and variability are the mean and the deviation
over epochs, and the forgetting events of Toneva et al. (2019).  Of a pair (`whet train dpo|reward-model`) it is the
probability that the chosen answer is the better one, of a judged answer (`kto`, `reward-model --objective outcome`)
that of its judgement, by what the loss says of them.  Where tasks are *tried* again round after round (`whet train
grpo`, `whet improve`, `Experiment.improve`), the runs are in the record, and nothing else is written.  Trees
(`head`, and what is fitted to thumbs) are grown once, from folds that did not hold the row: they have no epochs and
leave no history.

Both keep no text: an example is known by a digest of its input and of the answer that it was learned with, so that an
answer that was corrected since has no history.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, pstdev
from typing import Any

from ...errors import MissingExtra
from ...record.rows import as_text
from ...record.store import Log, Store
from ...types import Json, Outcome, Task, Trajectory, digest
from .near import normalised

ENTRIES = "dynamics"
"""Under it the epochs stand in the log of an `improve`."""
EXAMPLE = "example"
"""Entry of a row's `meta` with the digest by which it is known, where its input and answer do not say it."""
IMPROVED = "/improve/"
"""In the experiment of the runs that an `improve` makes to learn from."""
LEAST_ROUNDS = 3
"""Rounds or epochs below which a history says nothing."""
_LAST = 3
"""The last third of the rounds says what a learner answers in the end."""


@dataclass(frozen=True)
class History:
    """One example, over the epochs or rounds of one learner."""

    values: Sequence[float]
    """Of each epoch the probability of the judgement, or mean of the answer's tokens; of each round the share of its
    right runs."""
    right: Sequence[bool]
    """If each token had more than half of the probability, a judgement three quarters, or any run was right."""
    fitted: bool
    """It was an example to imitate or a judgement; else a task to try."""
    tries: int = 0
    """Runs, where it was tried."""
    instead: str | None = None
    """What most of the last runs answered where that was wrong; None where they differ, or were right."""
    judged: bool = False
    """The probabilities are of one of two judgements, where who knows nothing has one half."""

    @cached_property
    def confidence(self) -> float:
        """Mean over the epochs or rounds."""
        return fmean(self.values)

    @cached_property
    def variability(self) -> float:
        """Deviation over them."""
        return pstdev(self.values)

    @property
    def forgettings(self) -> int:
        """Times that it was right and then no longer."""
        return sum(before and not after for before, after in zip(self.right, self.right[1:], strict=False))


Histories = Mapping[str, History]
"""Digest of an example (`example_of`) → its history."""


def example_of(text: Json, answer: Json = None) -> str:
    """The digest by which an example is known.

    Args:
        answer: that it is learned with; None where a checker decides.
    """
    return digest([_comparable(text), None if answer is None else _comparable(answer)], 12)


def example_of_pair(prompt: Json, chosen: Json, rejected: Json) -> str:
    """The digest of a better and a worse answer to a prompt; the other way round it is another example."""
    return digest(["pair", *map(_comparable, (prompt, chosen, rejected))], 12)


def example_of_judged(prompt: Json, answer: Json, good: bool) -> str:
    """The digest of an answer that was called good or bad."""
    return digest(["judged", _comparable(prompt), _comparable(answer), good], 12)


def _comparable(value: Json) -> str:
    """A text without its spelling; of messages that of the first one of a user, or else of the last."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, Mapping) and "content" in one for one in value)
    ):
        asked = [one for one in value if one.get("role") == "user"]
        value = (asked[0] if asked else value[-1])["content"]
    return normalised(as_text(value))


def example_of_task(task: Task) -> str:
    """The same of a task, with its answer where that is known."""
    return example_of(
        task.initial_state.get("input", task.instruction), task.answer if task.answer_known else None
    )


def example_of_run(run: Trajectory) -> str:
    """The same of a run that is imitated: its own answer is what is learned."""
    return example_of(asked_of(run), run.output)


def asked_of(run: Trajectory) -> Json:
    """What a run was asked."""
    return run.task.initial_state.get("input", run.task.instruction)


def note_epoch(
    log: Log,
    key: str,
    examples: Sequence[str],
    confidence: Sequence[float],
    right: Sequence[bool],
    *,
    judged: bool = False,
) -> None:
    """Enter an epoch in the log of the `improve` that it is of; one that is made again stays as it was."""
    log.put(
        f"{ENTRIES}/{key}",
        {
            "examples": list(examples),
            "confidence": [round(value, 4) for value in confidence],
            "right": [int(value) for value in right],
            "judged": judged,
        },
    )


def recorded(store: Store) -> dict[str, History]:
    """The histories of a record; of an example that was learned from several times the last one."""
    return {**_fitted(store), **_tried(store)}


def _fitted(store: Store) -> dict[str, History]:
    works: dict[tuple[str, bool], dict[str, list[tuple[float, bool]]]] = {}
    for work, epoch in Log.entries(store, ENTRIES):
        seen = works.setdefault((work, bool(epoch.get("judged"))), defaultdict(list))
        for example, confidence, right in zip(
            epoch["examples"], epoch["confidence"], epoch["right"], strict=True
        ):
            seen[example].append((float(confidence), bool(right)))
    histories = {}
    for (_, judged), seen in works.items():
        for example, epochs in seen.items():
            histories[example] = History(
                [confidence for confidence, _ in epochs],
                [right for _, right in epochs],
                fitted=True,
                judged=judged,
            )
    return histories


def _tried(store: Store) -> dict[str, History]:
    histories = {}
    for name in improvements(store):
        runs: dict[str, list[tuple[str, bool, str]]] = defaultdict(list)
        for run in store.trajectories(experiment=name):
            value = _worth(run)
            if value is not None:
                # One round is one state of what learns: its Versions.
                state = " ".join(sorted(run.versions.values()))
                runs[example_of_task(run.task)].append((state, value, answer_of(run)))
        for example, tries in runs.items():
            rounds: dict[str, list[bool]] = defaultdict(list)
            for state, right, _ in tries:
                rounds[state].append(right)
            last = tries[-max(1, len(tries) // _LAST) :]
            histories[example] = History(
                [fmean(own) for own in rounds.values()],
                [any(own) for own in rounds.values()],
                fitted=False,
                tries=len(tries),
                instead=_mostly(last),
            )
    return histories


def improvements(store: Store) -> Iterator[str]:
    """Names under which the runs stand that learners made to learn from."""
    return (name for name in store.experiments() if IMPROVED in name)


def answer_of(run: Trajectory) -> str:
    """What a run answered: its output, or what its last step did."""
    if run.output is not None:
        return run.output_text
    return as_text(run.steps[-1].action) if run.steps else ""


def _worth(run: Trajectory) -> bool | None:
    """If a run was right by its outcome, else by its only score; None where nothing says so."""
    if run.outcome.counts:
        return run.outcome is Outcome.SUCCESS
    if run.outcome is Outcome.INFRASTRUCTURE_ERROR or len(run.scores) != 1:
        return None
    (score,) = run.scores.values()
    # An answer that broke its judge is a wrong one.
    return False if score.broke else None if score.value is None else score.value >= 0.5


def _mostly(tries: Sequence[tuple[str, bool, str]], share: float = 0.7) -> str | None:
    """The answer of most of these runs, if it was wrong."""
    counts = Counter(normalised(answer) for _, _, answer in tries)
    (top, count), *_ = counts.most_common(1)
    if not top or count < share * len(tries):
        return None
    said = [(right, answer) for _, right, answer in tries if normalised(answer) == top]
    return None if any(right for right, _ in said) else said[0][1]


LOW, LOW_JUDGED = 0.25, 0.5
"""Confidence below which the less likely group of fitted examples has to lie on average for any to be doubted.  Of
judgements each has to lie below one half by itself, where the other one is the likelier: how far a loss takes them from
there depends on its own scale, such as DPO's beta."""
LEARNED, LEARNED_JUDGED = 0.6, 0.8
"""Mean confidence of all examples from which on epochs are passed over: what is late has been learned by heart then."""
SURE = 0.9
_LEAST_FITTED = 50
_ROUNDS = 100


def doubtful(histories: Sequence[History]) -> dict[int, float]:
    """Places of fitted examples that were learned late or never while the others were → the chance of it.

    The mean log odds of an example over the epochs, each of which weighs the more the nearer the examples together are
    to being half learned, are taken for a mixture of two normal distributions.  Those are called that belong to the
    lower one by SURE; none where its mean is no worse than LOW, for then the worst examples are hard at most.  Which of
    those that are called are wrong and which are merely hard nothing in the histories says.

    Raises:
        MissingExtra: numpy is not installed.
    """
    chances: dict[int, float] = {}
    for judged in (False, True):
        fitted = [
            (place, history)
            for place, history in enumerate(histories)
            if history.fitted and history.judged is judged and len(history.values) >= LEAST_ROUNDS
        ]
        if len(fitted) >= _LEAST_FITTED:
            chances |= _late(fitted, judged)
    return chances


def _late(fitted: Sequence[tuple[int, History]], judged: bool) -> dict[int, float]:
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtra("numpy", "head") from error
    length = min(len(history.values) for _, history in fitted)
    confidence = np.asarray([history.values[:length] for _, history in fitted])
    of_all = confidence.mean(axis=0)
    low, enough, guess = (LOW_JUDGED, LEARNED_JUDGED, 0.5) if judged else (LOW, LEARNED, 0.0)
    learned = int((of_all >= enough).argmax()) if (of_all >= enough).any() else length - 1
    # Before anything is learned an epoch tells no example from another.
    weights = ((of_all - guess).clip(0) * (1 - of_all))[: learned + 1] + 1e-6
    inside = confidence[:, : learned + 1].clip(1e-4, 1 - 1e-4)
    odds = np.log(inside / (1 - inside)) @ weights / weights.sum()
    means = np.quantile(odds, [0.1, 0.7])
    deviations = np.full(2, max(float(odds.std()) / 2, 0.05))
    shares: Any = np.asarray([0.3, 0.7])
    belongs = np.zeros((len(odds), 2))
    for _ in range(_ROUNDS):
        logs = np.log(shares) - np.log(deviations) - 0.5 * ((odds[:, None] - means) / deviations) ** 2
        belongs = np.exp(logs - logs.max(axis=1, keepdims=True))
        belongs /= belongs.sum(axis=1, keepdims=True)
        counts = belongs.sum(axis=0) + 1e-9
        shares, means = counts / counts.sum(), (belongs * odds[:, None]).sum(axis=0) / counts
        spread = (belongs * (odds[:, None] - means) ** 2).sum(axis=0) / counts
        deviations = np.sqrt(spread).clip(0.05)
    lower = int(means.argmin())
    bound, highest = math.log(low / (1 - low)), means[1 - lower]
    if not judged and means[lower] > bound:
        return {}
    # A wide lower component claims the far end of the upper one, too.
    chances = np.where(odds < (min(bound, highest) if judged else highest), belongs[:, lower], 0.0)
    return {fitted[int(number)][0]: float(chances[number]) for number in np.flatnonzero(chances >= SURE)}
