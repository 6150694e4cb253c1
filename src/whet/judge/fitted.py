"""A reward fitted to people's thumbs: how likely it is that a person likes an answer to an input.

Gaussian process regression (Rasmussen and Williams 2006, chapter 2) over pairs of an input and an answer.  The kernel
is a product: an answer speaks for another as far as both answers and both inputs are alike, so praise for "I do not
know" where nothing is known says little of it elsewhere.  An answer like none that was rated has the prior's wide
spread, and the score is a lower bound, so strangeness never pays.

Thumbs are wrong now and then.  Where several people rated the same answer their disagreement says how often
(`Noise`); each rated answer then counts as likely right or wrong as its thumbs together make it (forward correction,
Patrini et al. 2017, arXiv 1609.03683), by people who err differently.

Nothing that it was fitted to shows that it can be trusted: `agreement` asks it about inputs that it was not fitted to,
and compares it with rules that look at nothing but the length, the input, or at nothing.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from operator import mul

from ..stats import ClusterMean, Interval
from ..types import digest
from .numbers import LARGE, MADE, WRITTEN, Named, number_marks, spaced, values
from .vectors import Neighbours, Vector, cosine, rarity, unit_vector

MOST = 500
"""Rated answers that it is fitted to: the time it takes grows with their third power."""
_PESSIMISM = 0.5
"""Standard deviations below the mean that a score lies."""
_JITTER = 0.05
"""Variance of a rated answer beside that of its thumbs: two like ones are not judged alike."""
_NOISE = 0.1
"""Share of wrong thumbs where nobody rated what another rated, and its weight in cells elsewhere."""
_NOISE_WEIGHT = 10.0
_PERSON_WEIGHT = 8.0
"""Thumbs that a person's own error rate needs to weigh as much as everybody's."""
_LEAST_NOISE, _MOST_NOISE = 0.02, 0.45
_READINGS = ((), (WRITTEN,), (MADE,), (LARGE,), (WRITTEN, MADE, LARGE))
"""What of an answer's numbers a kernel reads."""
_SHOWN, _WHICH = 0.7, 0.1
"""Shares of the covariance, where numbers are read: of what they show, and of which they are."""
_TELLING = 2.0
"""Natural logarithms by which thumbs have to be likelier before numbers are read in a prediction."""
_RULED_OUT = 5.0
"""Natural logarithms by which thumbs have to be less likely before a kernel bounds nothing."""
_ONE_RIGHT, _OFTEN = 4.0, 1.0
"""Beta prior of how often at most one of two answers that differ in their numbers is right: yes, no."""
_LIKED = 0.75
"""Probability of being right from which on an answer's numbers are liked ones."""
_FRAGMENT_LIKED = 0.1
"""Share of the fragments of disliked answers that people would like."""
_COMPARED = 8
"""Answers to one input that are compared with each other for it."""
_WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+|[^\w\s]")
_ITEM = re.compile(r"(?:^|\s)(?:\d+[.)]|[-*•])\s")


@dataclass(frozen=True, slots=True)
class Rated:
    """One thumb: what was asked, what was answered, and who liked it or not."""

    input: str
    answer: str
    up: bool
    person: str = ""
    """Of whom; "" for somebody of whom nothing else is known."""
    error: float | None = None
    """Of a sign that the person gave without being asked: how often such signs are wrong. None for a thumb."""
    looked_up: Named = ()
    """The numbers that the agent's tools gave for it."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How often thumbs are wrong: everybody's, and each person's as far as it is known."""

    rate: float
    by_person: Mapping[str, float] = field(default_factory=dict)
    compared: int = 0
    """Thumbs beside another one on the same answer, which it was estimated from."""

    def of(self, thumb: Rated) -> float:
        return self.by_person.get(thumb.person, self.rate) if thumb.error is None else thumb.error

    @classmethod
    def estimated(cls, thumbs: Sequence[Rated]) -> Noise:
        """From people who rated the same answer to the same input.

        Two thumbs of error rate r differ with the probability 2r(1 − r).  Signs are left out: theirs is known.
        """
        cells: dict[tuple[str, str], list[Rated]] = defaultdict(list)
        for thumb in _given(thumbs):
            cells[thumb.input, thumb.answer].append(thumb)
        pairs = differing = 0.0
        against: dict[str, list[float]] = defaultdict(list)
        compared = 0
        for cell in cells.values():
            if len(cell) < 2:
                continue
            ups = sum(thumb.up for thumb in cell)
            compared += len(cell)
            pairs += len(cell) / 2
            differing += ups * (len(cell) - ups) / (len(cell) - 1)
            for thumb in cell:
                others = (ups - thumb.up) / (len(cell) - 1)
                against[thumb.person].append(1 - others if thumb.up else others)
        prior = 2 * _NOISE * (1 - _NOISE)
        share = (differing + prior * _NOISE_WEIGHT) / (pairs + _NOISE_WEIGHT)
        rate = _between((1 - math.sqrt(max(0.0, 1 - 2 * share))) / 2)
        by_person = {person: _between(_own(shares, rate)) for person, shares in against.items() if person}
        return cls(rate, by_person, compared)


def _given(thumbs: Iterable[Rated]) -> list[Rated]:
    """The thumbs among them, without the signs."""
    return [thumb for thumb in thumbs if thumb.error is None]


def _own(shares: Sequence[float], rate: float) -> float:
    """A person's error rate: what they differ from others by, less the others' part, drawn towards everybody's."""
    differs = sum(shares) / len(shares)
    own = (differs - rate) / (1 - 2 * rate)
    weight = len(shares) / (len(shares) + _PERSON_WEIGHT)
    return weight * own + (1 - weight) * rate


def _between(rate: float) -> float:
    return min(_MOST_NOISE, max(_LEAST_NOISE, rate))


@dataclass(frozen=True, slots=True)
class _Cell:
    """One answer to one input, and what its thumbs together say."""

    input: str
    answer: str
    mean: float
    """In [−1, 1]: 1 if it is surely right."""
    variance: float
    thumbs: int


def _cells(thumbs: Sequence[Rated], noise: Noise) -> tuple[list[_Cell], float]:
    """The rated answers, and the share of right ones among them."""
    # People give signs of one kind where they like an answer and none where they do not: their share says nothing.
    given = _given(thumbs) or thumbs
    ups = sum(thumb.up for thumb in given) / len(given)
    base = min(0.95, max(0.05, (ups - noise.rate) / (1 - 2 * noise.rate)))
    odds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for thumb in thumbs:
        rate = noise.of(thumb)
        odds[thumb.input, thumb.answer].append(math.log((1 - rate) / rate) * (1 if thumb.up else -1))
    cells = []
    for (input, answer), told in odds.items():
        # Without the prior: that is the process's own mean, and would count twice.
        right = 1 / (1 + math.exp(-max(-30.0, min(30.0, sum(told)))))
        cells.append(_Cell(input, answer, 2 * right - 1, 4 * right * (1 - right) + _JITTER, len(told)))
    if len(cells) > MOST:
        cells.sort(key=lambda cell: (-cell.thumbs, digest([cell.input, cell.answer])))
        cells = cells[:MOST]
    return cells, base


def looked_up_for(thumbs: Iterable[Rated]) -> dict[str, Named]:
    """Input → the numbers that tools gave for it, in all runs that were rated."""
    named: dict[str, dict[tuple[str, float], None]] = defaultdict(dict)
    for thumb in thumbs:
        named[thumb.input].update(dict.fromkeys(thumb.looked_up))
    return {input: list(each) for input, each in named.items() if each}


class FittedReward:
    """The probability that people like an answer, fitted to thumbs; a lower bound of it.

    Args:
        thumbs: at least one.
        looked_up: input → numbers that tools gave for it; those of the thumbs if None.
    """

    def __init__(self, thumbs: Sequence[Rated], looked_up: Mapping[str, Named] | None = None) -> None:
        self.noise = Noise.estimated(thumbs)
        self._cells, self.base = _cells(thumbs, self.noise)
        """`base`: the share of right answers among those that were rated."""
        self._features = _Features(self._cells, looked_up_for(thumbs) if looked_up is None else looked_up)
        self._judged = _Judged([self._features.of(cell.input, cell.answer) for cell in self._cells])
        self._prior = 2 * self.base - 1
        residuals = [cell.mean - self._prior for cell in self._cells]
        self._readings = self._read(residuals)
        self._rivals = _Rivals(self._cells, self.base)
        self._rated: dict[str, list[int]] = defaultdict(list)
        """Question → places of the answers to it that people rated."""
        for place, cell in enumerate(self._cells):
            self._rated[_asked(cell.input)].append(place)
        self.version = digest([[cell.input, cell.answer, cell.mean] for cell in self._cells], 12)

    @property
    def reads_numbers(self) -> bool:
        """True if the thumbs show that it matters what the numbers of an answer are."""
        return bool(self._readings[0].reads)

    def _read(self, residuals: Sequence[float]) -> list[_Reading]:
        """The kernels that the thumbs do not rule out, the one that predicts first."""
        points = self._judged.points
        near = [self._judged.near(point) for point in points]
        noise = [cell.variance for cell in self._cells]
        told = {}
        for reads in _READINGS if any(point.values for point in points) else _READINGS[:1]:
            rows = [each.mixed(reads)[: i + 1] for i, each in enumerate(near)]
            factor = _cholesky(rows, noise)
            told[reads] = _evidence(factor, residuals) - _TELLING * bool(reads), factor
        order = sorted(told, key=lambda reads: -told[reads][0])
        likeliest = told[order[0]][0]
        left = [reads for reads in order if told[reads][0] > likeliest - _RULED_OUT]
        return [_Reading.of(reads, told[reads][1], residuals) for reads in left]

    def _predicted(self, without: _Without, near: _Near) -> tuple[float, float]:
        """Mean and standard deviation."""
        mixed = list(near.mixed(without.reading.reads))
        for place in without.places:
            mixed[place] = 0.0
        told = [_dot(row, mixed) for row in without.reading.inverse]
        spent = _dot(mixed, told) - without.spent([told[place] for place in without.places])
        (own,) = _Judged([near.point]).near(near.point).mixed(without.reading.reads)
        return self._prior + _dot(mixed, without.weights), math.sqrt(max(0.0, own - spent))

    def predict(self, input: str, answer: str) -> tuple[float, float]:
        """Mean and standard deviation of "right" on the scale from −1 to 1."""
        point = self._features.of(input, answer)
        return self._predicted(_Without.of(self._readings[0], []), self._judged.near(point))

    def __call__(self, input: str, answer: str) -> float:
        """The probability that the answer is right, as a lower bound, in [0, 1]."""
        return self._bound(input, answer, [_Without.of(reading, []) for reading in self._readings])

    def unrated(self, input: str) -> Callable[[str], float]:
        """Answer → its score for this input, as if nobody had rated any answer to it.

        What was recorded has thumbs of its own and is known, what a change makes of it is new: only so are both judged
        alike.  Numbers that people liked here still rule out others.
        """
        places = self._rated.get(_asked(input), [])
        left = [_Without.of(reading, places) for reading in self._readings]
        return lambda answer: self._bound(input, answer, left)

    def _bound(self, input: str, answer: str, readings: Sequence[_Without]) -> float:
        near = self._judged.near(self._features.of(input, answer))
        bound = self._rivals.most(input, answer)
        for reading in readings:
            mean, spread = self._predicted(reading, near)
            bound = min(bound, (1 + mean - _PESSIMISM * spread) / 2)
        return min(1.0, max(0.0, bound))

    def liked(self, mean: float) -> float:
        """The probability of a thumb up, whose giver may err, for a mean as `predict` gives it."""
        right = min(1.0, max(0.0, (1 + mean) / 2))
        return right * (1 - self.noise.rate) + (1 - right) * self.noise.rate

    def keeps(self, input: str, answer: str) -> bool | None:
        """False if it says what people liked here with other numbers; None where they liked no number."""
        return self._rivals.keeps(input, answer)

    def without(self, input: str) -> Callable[[str], float]:
        """Answer → mean for this input, as if nobody had rated any answer to it."""
        places = [i for i, cell in enumerate(self._cells) if cell.input == input]
        reading = self._readings[0]
        weights = _Without.of(reading, places).weights

        def mean(answer: str) -> float:
            near = self._judged.near(self._features.of(input, answer))
            return self._prior + _dot(near.mixed(reading.reads), weights)

        return mean


@dataclass(frozen=True, slots=True)
class _Reading:
    """A kernel, by what it reads of numbers, fitted."""

    reads: tuple[str, ...]
    inverse: Sequence[Sequence[float]]
    weights: Sequence[float]

    @classmethod
    def of(cls, reads: tuple[str, ...], factor: _Triangle, residuals: Sequence[float]) -> _Reading:
        inverse = _inverse(factor)
        return cls(reads, inverse, [_dot(row, residuals) for row in inverse])


@dataclass(frozen=True, slots=True)
class _Without:
    """A kernel as if some rated answers had not been among those that it was fitted to."""

    reading: _Reading
    places: Sequence[int]
    """Of what is left out."""
    weights: Sequence[float]
    block: Sequence[Sequence[float]]
    """Inverse of what the inverse has at these places."""

    @classmethod
    def of(cls, reading: _Reading, places: Sequence[int]) -> _Without:
        """By blocks the inverse without them is A_rr − A_rf A_ff⁻¹ A_fr; the weights are that times the residuals."""
        if not places:
            return cls(reading, [], reading.weights, [])
        inverse, weights = reading.inverse, reading.weights
        rows = [[inverse[i][j] for j in places[: n + 1]] for n, i in enumerate(places)]
        block = _inverse(_cholesky(rows, [0.0] * len(rows)))
        moved = [_dot(row, [weights[i] for i in places]) for row in block]
        left = [
            weight - sum(row[i] * move for i, move in zip(places, moved, strict=True))
            for weight, row in zip(weights, inverse, strict=True)
        ]
        return cls(reading, places, left, block)

    def spent(self, told: Sequence[float]) -> float:
        """What these places explain of an answer's variance, by the inverse times its covariances there."""
        return _dot(told, [_dot(row, told) for row in self.block])


class _Rivals:
    """Of two answers in the same words with other numbers at most one is right, if the record does not show else."""

    def __init__(self, cells: Sequence[_Cell], base: float) -> None:
        self._right: dict[tuple[str, ...], dict[tuple[float, ...], float]] = defaultdict(dict)
        """Input and words → numbers → probability that an answer with them is right."""
        for cell in cells:
            odds = base / (1 - base) * (1 + cell.mean) / max(1e-9, 1 - cell.mean)
            if numbers := values(cell.answer):
                own = self._right[_worded(cell.input, cell.answer)]
                own[numbers] = max(own.get(numbers, 0.0), odds / (1 + odds))
        self._liked = {key[0] for key, own in self._right.items() if max(own.values()) >= _LIKED}
        pairs = [
            (one > 0.5) + (other > 0.5)
            for own in self._right.values()
            for one, other in combinations(list(own.values())[:_COMPARED], 2)
        ]
        self._one = (_ONE_RIGHT + pairs.count(1)) / (_ONE_RIGHT + _OFTEN + pairs.count(1) + pairs.count(2))
        """How often at most one of two is right, where one is."""

    def most(self, input: str, answer: str) -> float:
        """The highest probability that an answer may have beside what is known of others to this input."""
        own = self._right.get(_worded(input, answer), {})
        numbers = values(answer)
        rival = max((right for other, right in own.items() if other != numbers), default=0.0)
        # Liked itself, it is as right as people say.
        return max(own.get(numbers, 0.0), 1 - self._one * rival)

    def keeps(self, input: str, answer: str) -> bool | None:
        """False if it is worded like liked answers and has other numbers; None where none with numbers is liked."""
        if _asked(input) not in self._liked:
            return None
        own = self._right.get(_worded(input, answer), {})
        liked = [numbers for numbers, right in own.items() if right >= _LIKED]
        return not liked or values(answer) in liked


def _worded(input: str, answer: str) -> tuple[str, ...]:
    """What is asked and the words of the answer, whatever the case; without its numbers."""
    words = {word for word in _words(answer) if word[0].isalpha()}
    return (_asked(input), *sorted(words))


def _asked(input: str) -> str:
    """The same for the same question, whatever its case and spacing."""
    return " ".join(_words(input))


_INPUTS, _ANSWERS = 0, 1


@dataclass(frozen=True, slots=True)
class _Point:
    """An input and an answer, as vectors of length 1."""

    input: Vector
    answer: Vector
    shows: Mapping[str, Vector]
    """What the answer's numbers show, by what it is about."""
    question: str
    values: tuple[float, ...]


class _Features:
    """Input, answer, and what its numbers show, as sparse vectors of length 1.

    A word that only one input or the answers to it hold is like any other such word: it says nothing of the rest,
    and a new answer is full of them.  So numbered steps are like numbered steps, whatever they are about.
    """

    def __init__(self, cells: Sequence[_Cell], looked_up: Mapping[str, Named]) -> None:
        self._looked_up = looked_up
        inputs = {cell.input: set(_input_words(cell.input)) for cell in cells}
        answers: dict[str, set[str]] = defaultdict(set)
        for cell in cells:
            answers[cell.input].update(_answer_words(cell.input, cell.answer))
        self._common = [_shared(each.values()) for each in (inputs, answers)]
        self._rarity: list[dict[str, float]] = [{}, {}]
        self._rarity = [
            rarity([set(self._counted(_INPUTS, _input_words(input))) for input in inputs]),
            rarity([set(self._answer(cell.input, cell.answer)) for cell in cells]),
        ]
        self._known: dict[str, Vector] = {}
        shown = [self._marks(cell.input, cell.answer) for cell in cells]
        self._telling = {about: rarity([set(marks[about]) for marks in shown]) for about in _READINGS[-1]}

    def of(self, input: str, answer: str) -> _Point:
        if input not in self._known:
            self._known[input] = unit_vector(
                self._counted(_INPUTS, _input_words(input)), self._rarity[_INPUTS]
            )
        return _Point(
            self._known[input],
            unit_vector(self._answer(input, answer), self._rarity[_ANSWERS]),
            {
                about: unit_vector(marks, self._telling[about])
                for about, marks in self._marks(input, answer).items()
            },
            _asked(input),
            values(answer),
        )

    def _marks(self, input: str, answer: str) -> dict[str, Counter[str]]:
        marks = number_marks(input, answer, self._looked_up.get(input, ()))
        return {about: Counter(shown or ["none"]) for about, shown in marks.items()}

    def _answer(self, input: str, answer: str) -> Counter[str]:
        """Words and pairs of words with the answer's form: its length, a list, what it repeats of the input."""
        words = _answer_words(input, answer)
        counts = self._counted(_ANSWERS, ["^", *words, "$"])
        length = round(2 * math.log2(1 + len(words)))
        form = [f"length {length}", f"length {length + 1}", f"items {min(4, len(_ITEM.findall(answer)))}"]
        form += [f"repeats {name}" for name in ("#=", "=", "#") if name in words]
        return counts + Counter(form * 2)

    def _counted(self, which: int, words: Sequence[str]) -> Counter[str]:
        common = self._common[which]
        known = [word if word in common or not word[0].isalnum() else "~" for word in words]
        # Of an input without its pairs of words: the same question in another order is the same question.
        return Counter([*known, *(f"{one} {two}" for one, two in pairwise(known) if which == _ANSWERS)])


def _shared(documents: Iterable[set[str]]) -> set[str]:
    counts = Counter(word for words in documents for word in words)
    return {word for word, count in counts.items() if count > 1}


def _words(text: str) -> list[str]:
    return _WORD.findall(spaced(text).casefold())


def _input_words(text: str) -> list[str]:
    """Words and marks; every number is the same one."""
    return ["#" if word[0].isdigit() else word for word in _words(text)]


def _answer_words(input: str, text: str) -> list[str]:
    """Words and marks; numbers are alike, and so is what the answer repeats of the input."""
    asked = set(_words(input))
    words = []
    for word in _words(text):
        if word[0].isdigit():
            words.append("#=" if word in asked else "#")
        else:
            words.append("=" if word in asked and len(word) > 3 else word)
    return words


class _Judged:
    """Answers that were judged, each with its input."""

    def __init__(self, points: Sequence[_Point]) -> None:
        self.points = points
        self.inputs = Neighbours([point.input for point in points])
        self.answers = Neighbours([point.answer for point in points])
        self.shows = {
            about: Neighbours([point.shows[about] for point in points]) for about in _READINGS[-1] if points
        }

    def near(self, point: _Point) -> _Near:
        """How alike an answer is to each of them."""
        words = self.answers.of(point.answer)
        asked = self.inputs.of(point.input)
        whole = [
            alike * (0.1 + 0.9 * question) if alike else 0.0
            for alike, question in zip(words, asked, strict=True)
        ]
        return _Near(self, point, words, whole)


@dataclass(frozen=True, slots=True)
class _Near:
    """How alike an answer is to each that was judged."""

    judged: _Judged
    point: _Point
    words: Sequence[float]
    whole: Sequence[float]
    """Mostly like answers to like inputs, a little like answers to any."""

    def mixed(self, reads: Sequence[str]) -> Sequence[float]:
        """Covariances of the judgements, by what the numbers of the answers show."""
        if not reads:
            return self.whole
        point = self.point
        shown = [self.judged.shows[about].of(point.shows[about]) for about in reads]
        return [
            (1 - _SHOWN - _WHICH + _SHOWN * sum(each) / len(reads)) * whole
            # The same numbers to the same input.
            + _WHICH * words * (point.question == other.question and point.values == other.values)
            if whole
            else whole
            for whole, words, other, each in zip(
                self.whole, self.words, self.judged.points, zip(*shown, strict=True), strict=True
            )
        ]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total


_Triangle = list[list[float]]
"""A lower triangular matrix: row i has i + 1 values."""


def _cholesky(rows: Sequence[Sequence[float]], noise: Sequence[float]) -> _Triangle:
    """The factor of a positive definite matrix, given by its lower triangle and more for its diagonal."""
    factor: _Triangle = []
    for i, row in enumerate(rows):
        own: list[float] = []
        for j in range(i):
            above = factor[j]
            own.append((row[j] - _dot(own, above)) / above[j])
        own.append(math.sqrt(max(1e-12, row[i] + noise[i] - _dot(own, own))))
        factor.append(own)
    return factor


def _evidence(factor: _Triangle, residuals: Sequence[float]) -> float:
    """Logarithm of how likely the residuals are under a kernel, but for what is the same under all of them."""
    solved: list[float] = []
    for row, value in zip(factor, residuals, strict=True):
        solved.append((value - _dot(row, solved)) / row[-1])
    return -_dot(solved, solved) / 2 - sum(math.log(row[-1]) for row in factor)


def _inverse(factor: _Triangle) -> list[list[float]]:
    """The inverse of the matrix whose Cholesky factor this is: sums of products of whole rows, as there is no numpy."""
    size = len(factor)
    # Columns of the factor's inverse, from the diagonal down.
    columns: list[list[float]] = []
    for j in range(size):
        column = [1 / factor[j][j]]
        for i in range(j + 1, size):
            row = factor[i]
            column.append(-_dot(row[j:i], column) / row[i])
        columns.append(column)
    whole = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            whole[i][j] = whole[j][i] = _dot(columns[i], columns[j][i - j :])
    return whole


FEWEST = 40
"""Thumbs below which nothing is admitted."""
USUAL = 150
"""Thumbs that were enough in most trials with 15 of 100 wrong; fewer that tell nothing may yet tell something."""
_FOLDS = 5
RULES = {
    "constant": "a rule that likes all answers or none",
    "length": "a rule that looks at the length of the answer alone",
    "input": "a rule that looks at the input alone and at no answer",
}


@dataclass(frozen=True, slots=True)
class ThumbAgreement:
    """How often a fitted reward agrees with thumbs of people, on inputs, of which it was fitted to none."""

    thumbs: int
    people: int
    inputs: int
    share: float
    """Of the thumbs that it agrees with."""
    rules: Mapping[str, float]
    """Rule of RULES → the same share for it."""
    margins: Mapping[str, Interval]
    """Rule → 95 % interval of the rule's squared error less its own, by people or by inputs, whichever is lower; for
    length less that of the mean of both."""
    noise: float
    """Share of thumbs that are taken to be wrong: nothing agrees with more than the others."""
    cut: int = 0
    """Words to which all answers were cut for the margin over length; 0 where whole ones show it, or nothing does."""
    short: bool = False
    """Liked answers are the shorter ones, and the margin over length is that over answers as short to other inputs."""

    @property
    def admitted(self) -> bool:
        """True if it knows more than every rule, beyond chance, and agrees with no fewer thumbs than any."""
        return (
            self.thumbs >= FEWEST
            and self.share >= max(self.rules.values())
            and all(low > 0 for low, _ in self.margins.values())
        )

    def fit(self, thumbs: Sequence[Rated]) -> FittedReward:
        """A reward fitted to some of them, to which shortness alone is worth nothing."""
        return FittedReward(with_fragments(thumbs) if self.short else thumbs)

    @property
    def best_rule(self) -> str:
        """The rule that is hardest to beat."""
        return min(self.margins, key=lambda name: self.margins[name][0])

    @property
    def missing(self) -> int | None:
        """About how many more thumbs it takes, if further ones are like these; None if no number of them would do."""
        low, high = self.margins[self.best_rule]
        gain, ahead = (low + high) / 2, self.share >= max(self.rules.values())
        if self.admitted:
            return 0
        if gain < 0.002 or not ahead:
            # Of a few thumbs nothing is learned either way; of many, that there is nothing to learn.
            return USUAL - self.thumbs if self.thumbs < USUAL else None
        # The half width shrinks with the square root of the number.
        estimate = math.ceil(self.thumbs * (((high - low) / 2 / gain) ** 2 * 1.2 - 1))
        return max(estimate, USUAL - self.thumbs, 1)

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        told = ", ".join(f"{RULES[name]}: {share:.0%}" for name, share in self.rules.items())
        cut = (
            f"; cut to {self.cut} words, answers that are liked are told from others all the same"
            if self.cut
            else ""
        )
        if self.short:
            cut = "; liked answers are the shorter ones, and are told from others as short that do not fit the question"
        return (
            f"a reward fitted to the thumbs agrees with {self.share:.0%} of {self.thumbs} thumbs of other people on "
            f"other inputs ({told}{cut}); about {self.noise:.0%} of the thumbs are taken to be wrong"
        )


def agreement(rated: Sequence[Rated]) -> ThumbAgreement:
    """Fit to some people's thumbs and signs, and ask about the others' thumbs, on inputs that nothing was fitted to.

    The reward and the rules give each thumb up a probability, and are compared by its squared error (Brier 1950):
    that tells more than the share of thumbs on the right side, which is what `share` reports.

    Raises:
        ValueError: no thumbs.
    """
    thumbs = _given(rated)
    expected = _expected(rated, _judges)
    up = [float(thumb.up) for thumb in thumbs]
    errors = {name: _squares(expected[name], up) for name in ("fitted", *RULES)}
    # Length is evidence too; what has to be shown is that the reward knows something that length does not tell.
    both = [(one + other) / 2 for one, other in zip(expected["fitted"], expected["length"], strict=True)]
    beside = {**dict.fromkeys(RULES, errors["fitted"]), "length": _squares(both, up)}
    margins = {name: _margin(thumbs, beside[name], errors[name]) for name in RULES}
    shares = {name: sum(error < 0.25 for error in each) / len(thumbs) for name, each in errors.items()}
    cut, shorter = 0, False
    others = min(margins["constant"][0], margins["input"][0])
    if margins["length"][0] <= 0 < others and _shorter_liked(thumbs):
        # Nobody pads an answer into being short: what length alone would also praise is a short answer of another kind.
        margin = _beside_counterfeits(thumbs, rated)
        if margin[0] > 0:
            shorter, margins["length"] = True, margin
    if margins["length"][0] <= 0 < others:
        # Where all liked answers are longer, or shorter, than the others, no whole ones tell length from the rest.
        words = _quarter(len(_words(thumb.answer)) for thumb in thumbs)
        short = [replace(thumb, answer=" ".join(_words(thumb.answer)[:words])) for thumb in rated]
        told = _squares(_expected(short, _whether_liked)["fitted"], up)
        margin = min(_margin(thumbs, told, errors[name]) for name in ("constant", "input"))
        if margin[0] > 0:
            cut, margins["length"] = words, margin
    if cut or shorter:
        shares["length"] = min(shares["length"], shares["fitted"])
    return ThumbAgreement(
        thumbs=len(thumbs),
        people=len({_person(n, thumb) for n, thumb in enumerate(thumbs)}),
        inputs=len({thumb.input for thumb in thumbs}),
        share=shares.pop("fitted"),
        rules=shares,
        margins=margins,
        noise=Noise.estimated(thumbs).rate,
        cut=cut,
        short=shorter,
    )


def with_fragments(thumbs: Sequence[Rated]) -> list[Rated]:
    """The thumbs, and beside each disliked answer some words of it, disliked as well, as many as a liked one has.

    Where liked answers are the shorter ones, shortness alone must not pay: nobody rated a short answer that says
    nothing, so a reward that was fitted to thumbs alone takes it for one that nobody knows.
    """
    lengths = sorted(len(thumb.answer.split()) for thumb in thumbs if thumb.up) or [0]
    fragments = []
    for number, thumb in enumerate(thumbs):
        draw = random.Random(digest([number, thumb.input, thumb.answer]))
        words, wanted = thumb.answer.split(), draw.choice(lengths)
        if not thumb.up and 0 < wanted < len(words) / 2:
            kept = sorted(draw.sample(range(len(words)), wanted))
            fragment = " ".join(words[place] for place in kept)
            fragments.append(replace(thumb, answer=fragment, error=_FRAGMENT_LIKED))
    return [*thumbs, *fragments]


def _shorter_liked(thumbs: Sequence[Rated]) -> bool:
    """True if the length that divides the answers best has the liked ones below it."""
    _, short, long = length_rule(thumbs)
    return short > long


def _beside_counterfeits(thumbs: Sequence[Rated], rated: Sequence[Rated]) -> Interval:
    """How much more each liked answer is worth than one as short that people liked on an input least like its own.

    By a reward that was fitted to other people's thumbs, as a search climbs by it.
    """
    liked = [thumb for thumb in thumbs if thumb.up]
    words = {thumb.input: set(_input_words(thumb.input)) for thumb in liked}
    told = rarity(list(words.values()))
    vectors = {input: unit_vector(Counter(own), told) for input, own in words.items()}

    def counterfeit(thumb: Rated) -> str | None:
        others = [
            other
            for other in liked
            if other.answer != thumb.answer and len(other.answer) <= len(thumb.answer)
        ]
        least = min(
            others,
            key=lambda other: (
                cosine(vectors[thumb.input], vectors[other.input]),
                digest([thumb.input, other.input, other.answer]),
            ),
            default=None,
        )
        return None if least is None else least.answer

    pairs = [(thumb, answer) for thumb in liked if (answer := counterfeit(thumb)) is not None]
    if len(pairs) < 2:
        return 0.0, 0.0
    own = _expected(rated, _as_used)["fitted"]
    place = {id(thumb): number for number, thumb in enumerate(thumbs)}
    answers = dict.fromkeys(range(len(thumbs)), "")
    answers |= {place[id(thumb)]: answer for thumb, answer in pairs}
    other = _expected(rated, _as_used, answers)["fitted"]
    held = [thumb for thumb, _ in pairs]
    return _margin(
        held, [-own[place[id(thumb)]] for thumb in held], [-other[place[id(thumb)]] for thumb in held]
    )


_Judges = Callable[
    [Sequence[Rated], set[str], Mapping[str, Named]], Mapping[str, Callable[[str, str], float]]
]


def _expected(
    rated: Sequence[Rated], judges: _Judges, answers: Mapping[int, str] | None = None
) -> dict[str, list[float]]:
    """How likely each thumb is up, by judges that were fitted to other people's thumbs on other inputs.

    Half where there are no others.

    Args:
        answers: thumb → another answer to its input, which is judged in the place of its own.
    """
    thumbs = _given(rated)
    signs = [sign for sign in rated if sign.error is not None]
    names = sorted({_person(number, thumb) for number, thumb in enumerate(thumbs)})
    names.sort(key=lambda name: digest(["fold", name]))
    fold_of = {name: number % _FOLDS for number, name in enumerate(names)}
    expected: dict[str, list[float]] = defaultdict(lambda: [0.5] * len(thumbs))
    # What tools give is no opinion of anybody's.
    looked_up = looked_up_for(rated)
    for fold in range(min(_FOLDS, len(names))):
        held = [n for n, thumb in enumerate(thumbs) if fold_of[_person(n, thumb)] == fold]
        rest = [thumb for n, thumb in enumerate(thumbs) if fold_of[_person(n, thumb)] != fold]
        if not rest:
            continue
        rest += [sign for sign in signs if fold_of.get(sign.person) != fold]
        for name, likes in judges(rest, {thumbs[n].input for n in held}, looked_up).items():
            for n in held:
                answer = thumbs[n].answer if answers is None else answers[n]
                expected[name][n] = likes(thumbs[n].input, answer)
    return expected


def _squares(values: Sequence[float], up: Sequence[float]) -> list[float]:
    return [(value - liked) ** 2 for value, liked in zip(values, up, strict=True)]


def _margin(thumbs: Sequence[Rated], own: Sequence[float], others: Sequence[float]) -> Interval:
    """Of the others' squared errors less its own, by people or by inputs, whichever is lower."""
    gains = [other - error for error, other in zip(own, others, strict=True)]
    by_person = _interval(gains, [_person(n, thumb) for n, thumb in enumerate(thumbs)])
    return min(by_person, _interval(gains, [thumb.input for thumb in thumbs]))


def _quarter(lengths: Iterable[int]) -> int:
    """The length that a quarter of the answers do not exceed; 1 at least."""
    ordered = sorted(lengths)
    return max(1, ordered[len(ordered) // 4])


def _person(number: int, thumb: Rated) -> str:
    return thumb.person or f"somebody {number}"


def _interval(values: Sequence[float], clusters: Sequence[str]) -> Interval:
    mean = ClusterMean()
    for value, cluster in zip(values, clusters, strict=True):
        mean.add(value, cluster)
    return mean.interval(bounds=(-1.0, 1.0))


def _judges(
    thumbs: Sequence[Rated], inputs: set[str], looked_up: Mapping[str, Named]
) -> dict[str, Callable[[str, str], float]]:
    """The fitted reward and each of RULES, as functions of these inputs and any answer: how likely a thumb up is."""
    blind = FittedReward([replace(thumb, answer="") for thumb in thumbs])
    by_input = {input: blind.liked(blind.without(input)("")) for input in inputs}
    ups = _share([thumb.up for thumb in _given(thumbs)])
    longest, short, long = length_rule(thumbs)
    return {
        **_whether_liked(thumbs, inputs, looked_up),
        "constant": lambda input, answer: ups,
        "length": lambda input, answer: short if len(answer) <= longest else long,
        "input": lambda input, answer: by_input[input],
    }


def _whether_liked(
    thumbs: Sequence[Rated], inputs: set[str], looked_up: Mapping[str, Named]
) -> dict[str, Callable[[str, str], float]]:
    """The fitted reward alone."""
    fitted = FittedReward(thumbs, looked_up)
    seeing = {input: fitted.without(input) for input in inputs}
    return {"fitted": lambda input, answer: fitted.liked(seeing[input](answer))}


def _as_used(
    thumbs: Sequence[Rated], inputs: set[str], looked_up: Mapping[str, Named]
) -> dict[str, Callable[[str, str], float]]:
    """The fitted reward as a search climbs by it: a lower bound, from other people's thumbs on these inputs, too."""
    return {"fitted": FittedReward(with_fragments(thumbs), looked_up)}


def _share(ups: Sequence[bool]) -> float:
    """Laplace's rule of succession."""
    return (sum(ups) + 1) / (len(ups) + 2)


def length_rule(thumbs: Sequence[Rated]) -> tuple[int, float, float]:
    """The length that divides these answers best, and the share of thumbs up up to it and above it."""
    ordered = sorted(thumbs, key=lambda thumb: len(thumb.answer))
    lengths = sorted({len(thumb.answer) for thumb in thumbs})
    best, rule = math.inf, (0, 0.5, 0.5)
    ups, below, at = sum(thumb.up for thumb in thumbs), 0, 0
    for longest in lengths:
        while at < len(ordered) and len(ordered[at].answer) <= longest:
            below += ordered[at].up
            at += 1
        sides = ((below, at), (ups - below, len(ordered) - at))
        shares = [(up + 1) / (count + 2) for up, count in sides]
        error = sum(
            up * (1 - share) ** 2 + (count - up) * share**2
            for (up, count), share in zip(sides, shares, strict=True)
        )
        if error < best:
            best, rule = error, (longest, shares[0], shares[1])
    return rule
