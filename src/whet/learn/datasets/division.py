"""Tasks → sides that share neither a group nor a question, with the gate's share held.

Groups are the user's, and stay as they are: they are the clusters of the gate's test.  That two tasks nearly say the
same only keeps them on one side.  Where that would put nearly everything on one side (the same customers asking the
same questions), the linked groups are taken apart, and tasks that nearly repeat one of the gate's are left out of
the other sides; the gate's stay.  What is left out is handed back, and what the gate can then show is worked out
before anything is spent (`Standing`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...prove.power import power_in_words
from ...stats import gain_for, pairs_for
from ...types import Sampling, Split, Task, digest
from .near import Near, linked, normalised
from .splits import FRACTIONS, check_given, split

_FED = 0.75
"""Share of its share that the gate must get, in tasks and in groups, before linked groups are taken apart."""
_GAINS = (0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Division:
    """Tasks with their sides."""

    tasks: list[Task]
    """Each with its split, in the order given, their groups as they were."""
    left_out: list[Task]
    """Those that nearly repeat a task of another side: they are on none."""


def divide(tasks: Sequence[Task], *, seed: int = 0) -> Division:
    """Sides by the hash of the group, near-duplicate instructions on one side only.

    A task without a group stands alone, and one without an instruction nearly repeats none.  A task that has a split
    keeps it, with its group.  Linked groups stay together as long as the gate gets three quarters of its share; then
    the largest links are cut first, tasks being left out as the price.  With fewer groups than splits the gate, then
    validation, gets nothing.

    Raises:
        GateError: one group was given two splits.
    """
    listed = list(tasks)
    if not listed:
        return Division([], [])
    problem = _Problem(listed, seed)
    chosen = problem.best()
    return Division(
        [replace(task, split=side) for task, side in zip(listed, chosen, strict=True) if side is not None],
        [task for task, side in zip(listed, chosen, strict=True) if side is None],
    )


def _shares(filled_splits: Collection[Split], free: int) -> dict[Split, float]:
    """Share of each split that can be filled: by what was given, and by so many groups, one each at least."""
    lacking = [part for part in FRACTIONS if part not in filled_splits]
    filled = {*filled_splits, *lacking[:free]}
    shares = {part: share for part, share in FRACTIONS.items() if part in filled}
    return {part: share / sum(shares.values()) for part, share in shares.items()}


Sides = list[Split | None]
"""Side of each task, None for one that is left out."""


class _Problem:
    """The tasks, and the ways to divide them that are tried in turn."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self.tasks, self.seed = tasks, seed
        # A task alone is a group of its own, named by its text so that a task added before it changes nothing.
        self.own = [task.group or f"\0{task.id}" for task in tasks]
        self.texts = [normalised(task.instruction) for task in tasks]
        check_given(tasks, self.own)
        unique = list(dict.fromkeys(text for text in self.texts if text))
        number = dict(zip(unique, linked(unique), strict=True))
        self.question: list[Hashable] = [
            number[text] if text else ("alone", index) for index, text in enumerate(self.texts)
        ]
        self.given = {
            key: task.split for key, task in zip(self.own, tasks, strict=True) if task.split is not None
        }
        self.groups = self._joined()

    def _joined(self) -> dict[str, str]:
        """Group → the smallest of those that it is linked with through questions."""
        above = {key: key for key in self.own}

        def root(key: str) -> str:
            while above[key] != key:
                above[key] = above[above[key]]
                key = above[key]
            return key

        first: dict[Hashable, str] = {}
        for key, question in zip(self.own, self.question, strict=True):
            # The smaller name is the root whatever the order of the tasks: the side is drawn by it.
            low, high = sorted((root(first.setdefault(question, key)), root(key)))
            above[high] = low
        return {key: root(key) for key in above}

    def best(self) -> Sides:
        """The first way that feeds the gate; else the one whose smaller side is the largest."""
        tried: list[tuple[int, Sides]] = []
        for ways in (self._linked, self._crossed):
            for sides in ways():
                held, learned, fed = self._weighed(sides)
                if fed:
                    return sides
                tried.append((min(held, learned), sides))
        return max(tried, key=lambda division: division[0])[1]

    def _weighed(self, sides: Sides) -> tuple[int, int, bool]:
        """Tasks of the gate, tasks that may be learned from, and whether the gate has enough of tasks and groups."""
        held = [index for index, side in enumerate(sides) if side is Split.GATE]
        learned = sum(side is not None for side in sides) - len(held)
        least = _FED * FRACTIONS[Split.GATE]
        groups = len({self.own[index] for index in held})
        enough = len(held) >= int(least * len(sides)) and groups >= int(least * len(set(self.own)))
        fed = len(set(self.own)) < 3 or (enough and bool(held) and learned >= len(held) / 2)
        return len(held), learned, fed or len(self.given) == len(set(self.own))

    def _linked(self) -> list[Sides]:
        """Linked groups on one side, but for those links that hold more than so many tasks."""
        sizes = Counter(self.groups[key] for key in self.own)
        inside = defaultdict(set)
        for key in self.own:
            inside[self.groups[key]].add(self.given.get(key))
        share = FRACTIONS[Split.GATE] * len(self.tasks)
        divisions = []
        for most in (len(self.tasks), share / 2, share / 8, 0):
            # Groups whose sides were given apart are linked in vain.
            uncut = {root for root, size in sizes.items() if size <= most and len(inside[root] - {None}) <= 1}
            keys = {key: root if root in uncut else key for key, root in self.groups.items()}
            divisions.append(self._without_repeats(self._sides([keys[key] for key in self.own])))
        return divisions

    def _crossed(self) -> list[Sides]:
        """Groups and questions both divided: a task stays where the two agree, or nothing nearly repeats it."""
        by_group = self._sides(self.own)
        by_question = self._sides([f"question {number}" for number in self.question], free=True)
        times_asked = Counter(self.question)
        return [
            [
                group_side if group_side is question_side or times_asked[question] == 1 else None
                for group_side, question_side, question in zip(
                    by_group, by_question, self.question, strict=True
                )
            ]
        ]

    def _sides(self, keys: Sequence[str], *, free: bool = False) -> Sides:
        """A side for each key."""
        if not free and len(self.given) == len(set(self.own)):
            return [self.given[key] for key in self.own]
        splits = (
            {}
            if free
            else {key: task.split for key, task in zip(keys, self.tasks, strict=True) if task.split}
        )
        shares = _shares(set(splits.values()), len(set(keys)) - len(splits))
        keyed = [
            replace(task, id=str(index), group=key, split=None if free else task.split)
            for index, (task, key) in enumerate(zip(self.tasks, keys, strict=True))
        ]
        return [task.split for task in split(keyed, seed=self.seed, fractions=shares, balanced=True)]

    def _without_repeats(self, sides: Sides) -> Sides:
        """Left out: what nearly repeats the gate, then what lies on both sides of train and validation."""
        across = defaultdict(set)
        for question, side in zip(self.question, sides, strict=True):
            across[question].add(side)
        if all(len(question_sides) == 1 for question_sides in across.values()):
            return sides
        held = list(
            dict.fromkeys(
                text for text, side in zip(self.texts, sides, strict=True) if text and side is Split.GATE
            )
        )
        index = Near(held)
        clean: dict[str, bool] = {"": True}
        for text, question in zip(self.texts, self.question, strict=True):
            if text not in clean:
                clean[text] = Split.GATE not in across[question] or next(index.of(text), None) is None
        cleaned: Sides = [
            side if side is Split.GATE or clean[text] else None
            for text, side in zip(self.texts, sides, strict=True)
        ]
        return self._apart(cleaned)

    def _apart(self, sides: Sides) -> Sides:
        """Tasks linked across train and validation all go to one of them, by hash, as their shares are."""
        places = [index for index, side in enumerate(sides) if side in (Split.TRAIN, Split.VALIDATION)]
        unique = list(dict.fromkeys(self.texts[index] for index in places if self.texts[index]))
        number = dict(zip(unique, linked(unique), strict=True))
        members: dict[int, list[int]] = defaultdict(list)
        for index in places:
            if self.texts[index]:
                members[number[self.texts[index]]].append(index)
        separated = list(sides)
        bar = FRACTIONS[Split.TRAIN] / (FRACTIONS[Split.TRAIN] + FRACTIONS[Split.VALIDATION])
        for linked_places in members.values():
            if len({sides[index] for index in linked_places}) < 2:
                continue
            name = min(self.texts[index] for index in linked_places)
            train = int(digest(["question", self.seed, name], 8), 16) / 16**8 < bar
            # A chain of questions that holds most of them would else leave nothing to learn from.
            train = train or len(linked_places) > len(places) / 2
            loser = Split.VALIDATION if train else Split.TRAIN
            for index in linked_places:
                if sides[index] is loser:
                    separated[index] = None
        return separated


@dataclass(frozen=True, slots=True)
class Standing:
    """The evidence that the gate will have, before anything is run."""

    rows: int
    groups: int
    """A row without a group is one of its own."""
    splits: Mapping[str, int]
    """Split → rows."""
    pairs: int
    """Rows of the gate that say what should come out: each gives one pair, before and after."""
    clusters: int
    """Groups that the pairs are in."""
    gain: float | None
    """Smallest gain that so many pairs are likely to prove; None where none is."""
    needed: Mapping[str, int | None]
    """Gain → pairs that it takes where nothing gets worse, in as many groups if some share one; None if these are too
    few."""

    @property
    def sentence(self) -> str:
        """One or two sentences: what there is, what it can prove, and what to do where that is little."""
        parts = ", ".join(f"{part} {count}" for part, count in self.splits.items())
        text = (
            f"{_count(self.rows, 'row')} in {_count(self.groups, 'group')} ({parts}); behind the gate "
            f"{_count(self.pairs, 'pair')} in {_count(self.clusters, 'group')}"
        )
        if not self.pairs and self.splits.get(Split.GATE.value):
            return f"{text}: nothing can be proven, for none of the gate's says what is right. Give it as expected"
        if not self.pairs:
            return (
                f"{text}: nothing can be proven. Give more groups, or rows that differ more from each other"
            )
        takes = "; ".join(
            f"a gain of {float(gain):.0%} takes {f'about {count}' if count else 'more groups'}"
            for gain, count in self.needed.items()
        )
        if self.gain is None:
            return f"{text}: too few to prove any gain ({takes}). Give rows of more groups before spending anything"
        text += f": enough to prove a gain of {self.gain:.0%} where nothing gets worse ({takes})"
        return text + ("" if self.gain <= 0.2 else ". For a smaller gain give rows of more groups")

    def power(self, regime: Sampling) -> str:
        """A sentence on what either regime could prove."""
        return power_in_words(self.pairs, self.clusters, regime=regime)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def standing(tasks: Sequence[Task]) -> Standing:
    """The evidence in these tasks, which have their splits and the user's groups."""
    own = [task.group or f"\0{index}" for index, task in enumerate(tasks)]
    held = [
        key for key, task in zip(own, tasks, strict=True) if task.answer_known and task.split is Split.GATE
    ]
    clusters = len(set(held))
    return Standing(
        rows=len(tasks),
        groups=len(set(own)),
        splits={part.value: sum(task.split is part for task in tasks) for part in Split},
        pairs=len(held),
        clusters=clusters,
        gain=gain_for(len(held), clusters=clusters),
        # Where no two share a group, more pairs come with as many more groups.
        needed={
            f"{gain:g}": pairs_for(gain, clusters=None if clusters == len(held) else clusters)
            for gain in _GAINS
        },
    )
