"""The few metrics that an answer is compared with the expected one by, and the choice among them.

A Metric is a Reward in [0, 1] whose reason says, for the model that improves a prompt, how the answer differs.
`suited` chooses one from the look of the expected answers, `shown` says what it makes of three of them: both
before anything is spent.
"""

from __future__ import annotations

import difflib
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..errors import InputError
from ..escapes import read_json
from ..models import Model, RecordedModel
from ..record.store import Log, Store
from ..types import Json, Score, Task, Trajectory, canonical, digest
from .card import MARKS, ReliabilityCard, recorded_card
from .judge import Judge, judge_of
from .rubric import ProvenRubric, RubricReward
from .rubric import recorded as recorded_rubric
from .rules import last_number, normal_text

SCORE = "score"
"""Name of the Score that every Metric gives."""
FEW_LABELS = 12
_FEWEST_REPEATS = 3
"""Rows per label, at least, where a column is one of labels."""
_SHORT, _LONG = 4, 12
"""Words: up to the first an answer is compared whole, from the second on a judge reads it."""
_FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_TELLS = 20
"""Rows by which a metric is tried on right and wrong answers."""
RUBRIC = (
    "Judge whether the answer says what the right answer says. Wording and order do not matter. What is missing, "
    "wrong or contradicts the right answer costs; so does what was made up."
)
"""Of the metric `judge`, unless another is given."""

Compare = Callable[[Json, Json], tuple[float, str]]
"""Of the expected answer and the one that was given: a value in [0, 1], and how they differ."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A Reward that compares an answer with the expected one."""

    key: str
    """`exact`, `normalised`, `numeric`, `contains`, `f1`, `json` or `label`."""
    about: str
    compare: Compare
    version: str = "1"
    name: str = SCORE
    right: float = 1.0
    """From this value on an answer counts as right."""

    def __call__(self, trajectory: Trajectory) -> Score | None:
        """The Score of a run; None where its task has no known answer."""
        task = trajectory.task
        if not task.answer_known:
            return None
        value, reason = self.compare(task.answer, trajectory.output)
        return Score(self.name, value, reason, f"{self.key}/{self.version}")

    @property
    def sentence(self) -> str:
        """What it asks of an answer."""
        return f"metric {self.key}: {self.about}"


@dataclass(frozen=True, slots=True)
class KnownJudge:
    """What a record holds of the judge that marks for the metric `judge`: a proof by thumbs, or by labelled answers."""

    proven: ProvenRubric | None = None
    card: ReliabilityCard | None = None

    @classmethod
    def of(cls, store: Store, rubric: str = "") -> KnownJudge:
        """Of a record: its proven rubric, or of a rubric that is given the card that `whet audit` left there."""
        if not rubric:
            return cls(proven=recorded_rubric(store))
        card = recorded_card(store, rubric)
        return cls(card=card if card is not None and card.admitted and card.form == MARKS else None)

    @classmethod
    def at(cls, path: Path | None, rubric: str = "") -> KnownJudge:
        """The same of a record in a file, if there is one."""
        if path is None or not path.exists():
            return cls()
        with Store(path) as store:
            return cls.of(store, rubric)

    @property
    def model(self) -> str | None:
        """Whom it was measured with: another model may read the same words otherwise."""
        if self.proven is not None:
            return self.proven.model
        return self.card.model if self.card is not None else None


@dataclass(frozen=True, slots=True)
class JudgeMetric:
    """A Judge as a Metric: the model compares the answer with the expected one, by a rubric.

    With a rubric that people's thumbs proved it marks the answer as it was proven to: without the expected one.
    """

    judge: Judge
    proven: ProvenRubric | None = None
    key: str = "judge"
    right: float = 0.75
    name: str = SCORE
    is_async: bool = True

    @property
    def version(self) -> str:
        return self.judge.version if self.proven is None else self._marks.version

    @property
    def _marks(self) -> RubricReward:
        assert self.proven is not None
        return RubricReward(self.name, self.proven, self.judge.model)

    @property
    def sentence(self) -> str:
        """What it asks of an answer."""
        if self.proven is not None:
            return f"metric judge, by the rubric in the record, one more call for each answer: {self.proven.sentence}"
        marks = (
            f"metric judge: {self.judge.model.name} marks each answer from 0 to {self.judge.top}, one more call for "
            f"each: {self.judge.rubric}"
        )
        card = self.judge.card
        if self.judge.calibrated and card is not None:
            right = f"right on {card.accuracy:.0%} of {card.items} labelled answers"
            return f"{marks}\n  its card in the record admits it: {right}"
        return (
            f"{marks}\n  nothing has proven this judge, so it steers the search and promotes nothing; whet label "
            "--rubric proves one by people's thumbs, whet audit RUBRIC.md --labels FILE by labelled answers"
        )

    def asking(self, model: Model) -> JudgeMetric:
        """The same, its judge asked through another object of its model: one that keeps the answers."""
        return replace(self, judge=self.judge.asking(model))

    async def __call__(self, trajectory: Trajectory) -> Score:
        """The judge's mark, with its reasons."""
        if self.proven is not None:
            return await self._marks(trajectory)
        return replace(await self.judge(trajectory), name=self.name)


def _text(value: Json) -> str:
    return "" if value is None else value if isinstance(value, str) else canonical(value).decode()


def _differs(expected: Json, answer: Json) -> str:
    if answer is None or _text(answer).strip() == "":
        return "nothing was answered"
    return f"answered {_text(answer)!r:.200}, expected {_text(expected)!r:.200}"


def _exact(expected: Json, answer: Json) -> tuple[float, str]:
    same = canonical(expected) == canonical(answer) or (
        isinstance(answer, str) and expected is not None and _text(expected).strip() == answer.strip()
    )
    return (1.0, "") if same else (0.0, _hint(expected, answer))


def _normalised(expected: Json, answer: Json) -> tuple[float, str]:
    same = normal_text(_text(expected)) == normal_text(_text(answer))
    return (1.0, "") if same else (0.0, _hint(expected, answer))


def _hint(expected: Json, answer: Json) -> str:
    """How two texts differ, with the nearest kind of difference named."""
    right, given = normal_text(_text(expected)), normal_text(_text(answer))
    if right == given:
        return f"only spelling, case or spacing differs: {_differs(expected, answer)}"
    if right and right in given:
        return f"the expected answer is in it, with more around it: {_differs(expected, answer)}"
    return _differs(expected, answer)


def _numeric(expected: Json, answer: Json) -> tuple[float, str]:
    right, given = last_number(expected), last_number(answer)
    if right is None:
        # A column of numbers with an empty cell: no number is right there.
        return (1.0, "") if given is None else (0.0, f"no number was expected: {_differs(expected, answer)}")
    if given is None:
        return 0.0, f"there is no number in it: {_differs(expected, answer)}"
    if math.isclose(right, given, rel_tol=1e-6, abs_tol=1e-9):
        return 1.0, ""
    return 0.0, _differs(expected, answer)


def _contains(expected: Json, answer: Json) -> tuple[float, str]:
    right = normal_text(_text(expected))
    if right and right in normal_text(_text(answer)):
        return 1.0, ""
    return (1.0, "") if not right and not _text(answer).strip() else (0.0, _differs(expected, answer))


def _words(value: Json) -> list[str]:
    return re.findall(r"\w+", normal_text(_text(value)))


def _f1(expected: Json, answer: Json) -> tuple[float, str]:
    """F1 over words, as SQuAD's."""
    right, given = Counter(_words(expected)), Counter(_words(answer))
    if not right or not given:
        return (1.0, "") if right == given else (0.0, _differs(expected, answer))
    common = sum((right & given).values())
    score = 2 * common / (sum(right.values()) + sum(given.values()))
    if score == 1.0:
        return 1.0, ""
    missing, surplus = " ".join(right - given), " ".join(given - right)
    return score, f"missing: {missing!r:.120}; too much: {surplus!r:.120}; expected {_text(expected)!r:.200}"


def _json(expected: Json, answer: Json) -> tuple[float, str]:
    try:
        right, given = parsed(expected), parsed(answer)
    except msgspec.DecodeError as error:
        return 0.0, f"not JSON ({error}): {_differs(expected, answer)}"
    if _alike(right, given):
        return 1.0, ""
    if isinstance(right, dict) and isinstance(given, dict):
        wrong = [name for name in {**right, **given} if not _alike(right.get(name), given.get(name))]
        return 0.0, f"these members differ: {', '.join(map(str, wrong))}; {_differs(expected, answer)}"
    return 0.0, _differs(expected, answer)


def _alike(right: Json, given: Json) -> bool:
    """Equal as JSON, whatever the order of members; 1 is 1.0, and True is not 1."""
    if isinstance(right, dict) and isinstance(given, dict):
        return right.keys() == given.keys() and all(_alike(right[name], given[name]) for name in right)
    if isinstance(right, list) and isinstance(given, list):
        return len(right) == len(given) and all(map(_alike, right, given))
    if isinstance(right, bool) or isinstance(given, bool):
        return right is given
    return bool(right == given)


def parsed(value: Json) -> Json:
    """A value, or that of its text: within a ``` fence, or from the first brace to the last."""
    if not isinstance(value, str):
        return value
    fenced = _FENCED.search(value)
    text = (fenced[1] if fenced else value).strip()
    try:
        return read_json(msgspec.json.decode, text)
    except msgspec.DecodeError:
        begin, end = re.search(r"[{\[]", text), max(text.rfind("}"), text.rfind("]"))
        if begin is None or end < begin.start():
            raise
        return read_json(msgspec.json.decode, text[begin.start() : end + 1])


def label_of(answer: Json, labels: Collection[str]) -> str | None:
    """The label that an answer is, or the only one that it names; None if it names none or several."""
    text = normal_text(_text(answer))
    by_text = {normal_text(label): label for label in labels}
    if text in by_text:
        return by_text[text]
    named = {
        label for plain, label in by_text.items() if re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", text)
    }
    # `not urgent` names `urgent` as well: the longer one is meant.
    named = {label for label in named if not any(label != other and label in other for other in named)}
    return named.pop() if len(named) == 1 else None


def _label(labels: Collection[str]) -> Compare:
    def compare(expected: Json, answer: Json) -> tuple[float, str]:
        given, right = label_of(answer, labels), _text(expected)
        if given is not None and normal_text(given) == normal_text(right):
            return 1.0, ""
        why = (
            "it names none of the labels, or several"
            if given is None
            else f"taken for {given} instead of {right}"
        )
        return 0.0, f"{why}: {_differs(expected, answer)}"

    return compare


PLAIN: Mapping[str, tuple[str, Compare]] = {
    "exact": ("the answer is the expected one, letter by letter", _exact),
    "normalised": ("the answer is the expected one but for case, spacing and a final point", _normalised),
    "numeric": ("the last number in the answer is the expected one", _numeric),
    "contains": (
        "the expected answer occurs in the answer (which may then say anything beside it)",
        _contains,
    ),
    "f1": ("the share of words that the answer and the expected one have in common (F1)", _f1),
    "json": ("the answer is the expected JSON, whatever the order of its members", _json),
}
METRICS = (*PLAIN, "label", "judge")


def metric_named(
    name: str,
    tasks: Sequence[Task],
    *,
    model: Model | None = None,
    rubric: str = "",
    known: KnownJudge | None = None,
) -> Metric | JudgeMetric:
    """The metric of that name for these rows.

    Args:
        model: of `judge`.
        rubric: of `judge`, in place of RUBRIC.
        known: what the record holds of that judge; it counts if `model` is the one that it was measured with.

    Raises:
        InputError: there is no such metric, or `judge` without a model.
    """
    if name in PLAIN:
        about, compare = PLAIN[name]
        return Metric(name, about, compare)
    if name == "label":
        labels = _labels(tasks)
        shown = ", ".join(labels[:FEW_LABELS]) + (", …" if len(labels) > FEW_LABELS else "")
        return Metric(
            "label",
            f"the answer names the expected label and no other of {shown}",
            _label(labels),
            digest(labels, 12),
        )
    if name == "judge":
        if model is None:
            raise InputError("the metric judge asks a model: give --model (or --judge-model) and --base-url")
        if known is not None and known.model == model.name:
            if known.proven is not None and not rubric:
                # An answer is liked from 0.5 on: there people's thumbs set the mark.
                judge = Judge(model, known.proven.text, name=SCORE, show_answer=False)
                return JudgeMetric(judge, known.proven, right=0.5)
            if known.card is not None and rubric:
                return JudgeMetric(judge_of(rubric, model, known.card.settings, name=SCORE, card=known.card))
        return JudgeMetric(Judge(model, rubric or RUBRIC, name=SCORE))
    near = difflib.get_close_matches(name, METRICS, 1)
    raise InputError(
        f"there is no metric {name!r}{f' (is {near[0]} meant?)' if near else ''}; there are {', '.join(METRICS)}"
    )


def kept_marks(metric: Metric | JudgeMetric, store: Store) -> Metric | JudgeMetric:
    """The metric, whose judge's marks the record keeps: the same answer is not paid for twice."""
    if isinstance(metric, Metric):
        return metric
    model = metric.judge.model
    return metric.asking(RecordedModel(model, Log(store, f"judge/{model.name}")))


def suited(tasks: Sequence[Task]) -> tuple[str, str]:
    """The name of the metric that suits the expected answers, and the reason, from their look."""
    answers = [task.answer for task in tasks if task.answer_known and task.answer is not None]
    if not answers:
        return "exact", "no row has an expected answer that is not empty"
    if any(isinstance(answer, dict | list) for answer in answers) or all(map(_is_json_text, answers)):
        return "json", "the expected answers are JSON"
    if all(_is_number(answer) for answer in answers):
        return "numeric", "the expected answers are numbers"
    labels = {normal_text(_text(answer)) for answer in answers}
    words = statistics.median(len(_text(answer).split()) for answer in answers)
    if 2 <= len(labels) <= FEW_LABELS and len(answers) >= _FEWEST_REPEATS * len(labels) and words <= _SHORT:
        return "label", f"the expected answers are {len(labels)} labels that come again and again"
    if words <= _SHORT:
        return "normalised", "the expected answers are short texts"
    if words < _LONG:
        return "f1", "the expected answers are phrases"
    return "judge", "the expected answers are long texts, which say the same in many ways"


def _is_json_text(value: Json) -> bool:
    if not isinstance(value, str) or value.strip()[:1] not in ("{", "["):
        return False
    try:
        read_json(msgspec.json.decode, value)
    except msgspec.DecodeError:
        return False
    return True


def _is_number(value: Json) -> bool:
    if isinstance(value, int | float):
        return not isinstance(value, bool)
    return (
        isinstance(value, str)
        and re.fullmatch(r"\W{0,2}-?\d[\d,]*(\.\d+)?\W{0,2}", value.strip()) is not None
    )


def _labels(tasks: Sequence[Task]) -> list[str]:
    counts = Counter(_text(task.answer) for task in tasks if task.answer_known and task.answer is not None)
    return [label for label, _ in counts.most_common()]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a metric makes of a few expected answers."""

    lines: Sequence[str] = ()
    right: float = 1.0
    """Mean value of right answers."""
    wrong: float = 0.0
    """Mean value of another row's right answer."""


def shown(metric: Metric | JudgeMetric, tasks: Sequence[Task], examples: int = 3) -> Shown:
    """What the metric makes of right and of wrong answers, in words for the first few rows.

    A judge is not asked: that costs.

    Raises:
        InputError: it cannot tell right answers from other rows' answers.
    """
    if isinstance(metric, JudgeMetric):
        return Shown([f"expected {_text(task.answer)!r:.70}: read by the judge" for task in tasks[:examples]])
    known = [task for task in tasks if task.answer_known]
    different = _pairs_of_different(known)
    if not different:
        raise InputError(
            "all rows have the same expected answer, so nothing can be told apart: give rows with others"
        )
    rights = [metric.compare(task.answer, _text(task.answer))[0] for task, _ in different[:_TELLS]]
    wrongs = [metric.compare(task.answer, _text(other.answer))[0] for task, other in different[:_TELLS]]
    right, wrong = statistics.fmean(rights), statistics.fmean(wrongs)
    if right - wrong < 0.05:
        raise InputError(
            f"the metric {metric.key} cannot tell right answers ({right:.2f}) from wrong ones ({wrong:.2f}); "
            f"choose another with --metric: {', '.join(METRICS)}"
        )
    lines = []
    for task, other in different[:examples]:
        expected = _text(task.answer)
        trials = {expected: 1, f"The answer is {expected}.": 1, _text(other.answer): 1}
        values = "; ".join(
            f"{answer!r:.60} → {metric.compare(task.answer, answer)[0]:.2g}" for answer in trials
        )
        lines.append(f"expected {expected!r:.60}: {values}")
    return Shown(lines, right, wrong)


def _pairs_of_different(tasks: Sequence[Task]) -> list[tuple[Task, Task]]:
    """Each task with another one whose answer differs, tasks of different answers first."""
    firsts: dict[bytes, Task] = {}
    for task in tasks:
        firsts.setdefault(canonical(task.answer), task)
    if len(firsts) < 2:
        return []
    ordered = [*firsts.values(), *(task for task in tasks if firsts[canonical(task.answer)] is not task)]
    first, second, *_ = firsts.values()
    return [
        (task, second if canonical(task.answer) == canonical(first.answer) else first) for task in ordered
    ]
