"""The runtime of learned decisions, in plain Python: nothing here needs what trained them.

`HeadDecision` stands in for an agent's own decision function: it looks at what has been read so far
and says which to accept, `more`, or `unknown`.  Behind it is a `Forest`, which reads LightGBM's text
format and answers in microseconds.  `judge` turns the same head into a Reward, a judge learned from
thumbs.  `RouterTable` says which of several policies takes a task.

Nothing is learned here: `learn/optimizers/head.py` and `learn/optimizers/route.py` make the Versions.
"""

from __future__ import annotations

import inspect
import math
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..types import Json, Outcome, Score, Trajectory, Version

Candidate = Mapping[str, Json]
"""One candidate: name → number; entries that are not numbers are ignored."""

_ZERO = 1e-35  # LightGBM's kZeroThreshold
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_ZERO, _MISSING_NAN = 1, 2
_WIDTHS = {8: "B", 16: "H", 32: "I", 64: "Q"}


class Forest:
    """A binary LightGBM model read from its text format.

    Evaluation is QuickScorer's (Lucchese et al., SIGIR 2015): every node that sends a value to the
    right clears the leaves on its left, and the lowest bit left in each tree is the exit leaf.  Here
    the bits of all trees are one integer, and the nodes of a feature are folded into one mask per
    interval between thresholds, so a prediction costs one bisection per feature and one table look-up
    per tree.

    Args:
        text: of a model, as `Booster.model_to_string()` or `save_model` writes it.

    Raises:
        InputError: no such model, cut off, several classes, categorical or linear trees, or more than 64
            leaves in a tree.
    """

    def __init__(self, text: str) -> None:
        try:
            header, blocks = _blocks(text)
            self.features = header["feature_names"].split()
            self._sigmoid = _sigmoid(header)
            trees = [_Tree(block) for block in blocks]
        except (KeyError, ValueError, IndexError) as error:
            raise InputError(f"not a LightGBM text model that whet can run: {error!r}") from error
        most = max((tree.leaves for tree in trees), default=1)
        width = min(size for size in _WIDTHS if size >= most)
        self._length = len(trees) * width // 8
        self._words = struct.Struct(f"<{len(trees)}{_WIDTHS[width]}")
        self._leaves = [{1 << leaf: value for leaf, value in enumerate(tree.values)} for tree in trees]
        # Tree k has the bits from k * width on; `_words` unpacks them in that order, so it is little-endian.
        self._full = (1 << len(trees) * width) - 1
        nodes: dict[int, list[tuple[float, int, int]]] = {}
        for number, tree in enumerate(trees):
            for feature, threshold, decision, left_bits in tree.nodes:
                if feature >= len(self.features):
                    raise InputError(f"the model splits on feature {feature} of {len(self.features)}")
                nodes.setdefault(feature, []).append((threshold, decision, left_bits << number * width))
        self._tables = [(feature, *self._table(nodes[feature])) for feature in sorted(nodes)]

    def raw(self, values: Sequence[float | None]) -> float:
        """Sum of the exit leaves, the log-odds if the model is a binary one.

        Args:
            values: one per feature, in the order of `features`; None and NaN are missing.
        """
        bits = self._full
        for feature, thresholds, masks, zero, missing in self._tables:
            value = values[feature]
            if value is None or value != value:
                bits &= missing
            elif -_ZERO <= value <= _ZERO:
                bits &= zero
            else:
                # bisect_left: LightGBM sends a value that equals the threshold to the left.
                bits &= masks[bisect_left(thresholds, value)]
        words = self._words.unpack(bits.to_bytes(self._length, "little"))
        total = 0.0
        for leaves, word in zip(self._leaves, words, strict=True):
            total += leaves[word & -word]
        return total

    def predict(self, values: Sequence[float | None]) -> float:
        """Probability of the positive class."""
        score = -self._sigmoid * self.raw(values)
        # math.exp raises OverflowError from 709.8 on; it does not give inf.
        return 1.0 / (1.0 + math.exp(score)) if score < 700.0 else 0.0

    def _table(self, nodes: list[tuple[float, int, int]]) -> tuple[list[float], list[int], int, int]:
        """Thresholds of one feature, the mask of each interval between them, of zero and of missing."""
        nodes = sorted(nodes)
        thresholds = sorted({threshold for threshold, _, _ in nodes})
        masks, at = [self._full], 0
        for threshold in thresholds:
            mask = masks[-1]
            while at < len(nodes) and nodes[at][0] == threshold:
                mask &= ~nodes[at][2]
                at += 1
            masks.append(mask)
        zero = missing = self._full
        for threshold, decision, left_bits in nodes:
            kind = decision >> 2 & 3
            default, ordinary = bool(decision & _DEFAULT_LEFT), threshold >= 0.0
            # LightGBM reads a missing value as zero where the split was not trained with missing ones.
            if not (default if kind == _MISSING_ZERO else ordinary):
                zero &= ~left_bits
            if not (ordinary if kind not in (_MISSING_ZERO, _MISSING_NAN) else default):
                missing &= ~left_bits
        return thresholds, masks, zero, missing


class _Tree:
    """One tree with its leaves numbered from left to right."""

    def __init__(self, block: Mapping[str, str]) -> None:
        self.leaves = int(block["num_leaves"])
        if self.leaves > max(_WIDTHS):  # before it is built: a chain of thousands would exhaust the stack
            raise InputError(f"a tree has {self.leaves} leaves; heads have at most {max(_WIDTHS)}")
        if int(block.get("num_cat", "0")):
            raise ValueError("it has categorical splits")
        if int(block.get("is_linear", "0")):
            raise ValueError("it has linear leaves")
        leaf_values = _numbers(block["leaf_value"], self.leaves)
        self.values: list[float] = []
        self.nodes: list[tuple[int, float, int, int]] = []
        """Feature, threshold, decision type, bits of the leaves on its left."""
        if self.leaves == 1:
            self.values = leaf_values
            return
        inner = self.leaves - 1
        feature = [int(part) for part in _numbers(block["split_feature"], inner)]
        threshold = _numbers(block["threshold"], inner)
        decision = [int(part) for part in _numbers(block["decision_type"], inner)]
        left_child, right = (
            [int(part) for part in _numbers(block[side], inner)] for side in ("left_child", "right_child")
        )
        if any(kind & _CATEGORICAL for kind in decision):
            raise ValueError("it has categorical splits")

        def visit(node: int, depth: int) -> int:
            """Bits of the leaves under a node; a leaf is numbered when it is met."""
            if depth > inner or len(self.values) >= self.leaves:
                raise ValueError("its nodes do not form a tree")
            # LightGBM writes leaf k as ~k, numbered as leaves grew; `raw` needs them from left to right.
            if node < 0:
                self.values.append(leaf_values[~node])
                return 1 << len(self.values) - 1
            below = visit(left_child[node], depth + 1)
            self.nodes.append((feature[node], threshold[node], decision[node], below))
            return below | visit(right[node], depth + 1)

        visit(0, 0)
        if len(self.values) != self.leaves or min(feature) < 0:
            raise ValueError("its nodes do not form a tree")


def _numbers(text: str, count: int) -> list[float]:
    parts = [float(part) for part in text.split()]
    if len(parts) != count:
        raise ValueError(f"{len(parts)} numbers where {count} belong")
    return parts


def _blocks(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Key → value of the header, and of each tree."""
    header: dict[str, str] = {}
    blocks: list[dict[str, str]] = []
    current = header
    for line in text.splitlines():
        if line == "end of trees":
            break
        key, equals, value = line.partition("=")
        if key == "Tree":
            current = {}
            blocks.append(current)
        current[key] = value if equals else ""
    else:
        raise ValueError("the text ends before its trees do")
    return header, blocks


def _sigmoid(header: Mapping[str, str]) -> float:
    if (
        int(header["num_class"]) != 1
        or int(header["num_tree_per_iteration"]) != 1
        or "average_output" in header
    ):
        raise ValueError("it is not a plain binary model")
    objective = header["objective"].split()
    if objective[0] != "binary":
        raise ValueError(f"its objective is {objective[0]}, not binary")
    return float(next((part[8:] for part in objective[1:] if part.startswith("sigmoid:")), 1.0))


@dataclass(frozen=True, slots=True)
class Seen:
    """The candidates that one decision saw."""

    candidates: Sequence[Candidate]
    remaining: bool
    """True while there are more candidates to look at, or where that is not recorded."""
    told: bool = False
    """True if it is recorded."""


def seen(observation: Json, key: str | None = None, remaining: str = "remaining") -> Seen | None:
    """The candidates in the encoded arguments of a decision, None if there are none to be found.

    Args:
        observation: name → argument, `{"args": [...], "kwargs": {...}}`, a list of arguments, or the list
            of candidates itself.
        key: name of the argument that holds them; the first list of mappings if None.
        remaining: name of an argument, or of an entry of the last candidate, that is 0, False or
            empty when nothing is left to look at.
    """
    named: dict[str, Json] = {}
    if isinstance(observation, Mapping):
        if isinstance(observation.get("args"), (list, tuple)):
            named = {str(position): argument for position, argument in enumerate(observation["args"])}
            named |= observation.get("kwargs") or {}
        else:
            named = dict(observation)
    elif isinstance(observation, (list, tuple)):
        direct = all(isinstance(argument, Mapping) for argument in observation)
        named = (
            {"0": observation}
            if direct
            else {str(position): argument for position, argument in enumerate(observation)}
        )
    chosen = named.get(key) if key is not None and key in named else None
    if chosen is None:
        chosen = next((argument for argument in named.values() if _candidates(argument)), None)
    if chosen is None or not _candidates(chosen):
        return None
    if remaining in named:
        return Seen(chosen, bool(named[remaining]), told=True)
    if chosen and remaining in chosen[-1]:
        return Seen(chosen, bool(chosen[-1][remaining]), told=True)
    return Seen(chosen, True)


def _candidates(value: Json) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(candidate, Mapping) for candidate in value)


def vector(candidate: Candidate, features: Sequence[str]) -> list[float | None]:
    """The candidate's features in order; what is absent or not a number is missing, never 0."""
    values = [candidate.get(name) for name in features]
    return [float(value) if isinstance(value, (int, float)) else None for value in values]


class HeadDecision:
    """A learned decision function: index of the candidate to accept, `more`, or `unknown`.

    The best candidate so far is accepted when its probability reaches `accept`; when nothing is left
    to look at, when it reaches `settle`; else the answer is `more`, at the end `unknown`.  Candidates
    below one of `at_least` are never accepted.  A function that is not told whether there is more, and was
    never recorded to ask for it, has seen all there is.

    Args:
        version: of kind `head`, as `learn.optimizers.head.Head` makes it.
        original: the function that it stands in for; its signature names the arguments.

    Raises:
        InputError: the Version is not a head, or its model cannot be read.
    """

    def __init__(self, version: Version, original: Callable[..., Any] | None = None) -> None:
        content = version.content
        if version.kind != "head" or not isinstance(content, Mapping) or "model" not in content:
            raise InputError(f"Version {version.id} of {version.resource!r} is a {version.kind}, not a head")
        self.version = version
        self.forest = Forest(content["model"])
        self.features = list(content["features"])
        if len(self.features) != len(self.forest.features):
            raise InputError(
                f"the head names {len(self.features)} features, its model {len(self.forest.features)}"
            )
        self.accept = float(content["accept"])
        self.settle = float(content["settle"])
        self.key = content.get("key")
        self.remaining = content.get("remaining", "remaining")
        self.waits = bool(content.get("waits", True))
        self.at_least = dict(content.get("at_least") or {})
        self._names: list[str] = []
        if original is not None:
            self._names = list(inspect.signature(original).parameters)

    def probability(self, candidate: Candidate) -> float:
        """Probability that accepting this candidate is right; 0 if it may not be accepted."""
        for name, least in self.at_least.items():
            value = candidate.get(name)
            if not isinstance(value, (int, float)) or value < least:
                return 0.0
        return self.forest.predict(vector(candidate, self.features))

    def best(self, candidates: Sequence[Candidate]) -> tuple[int | None, float]:
        """Index and probability of the likeliest candidate, the first one on a tie; None, 0 without any."""
        # Above 0, not from 0 on: a candidate that `at_least` forbids has 0 and is never the best, even alone.
        chosen, highest = None, 0.0
        for index, candidate in enumerate(candidates):
            probability = self.probability(candidate)
            if probability > highest:
                chosen, highest = index, probability
        return chosen, highest

    def decide(self, looked: Seen) -> int | str:
        """The decision on what has been seen."""
        index, probability = self.best(looked.candidates)
        remaining = looked.remaining and self.waits
        if index is not None and probability >= (self.accept if remaining else self.settle):
            return index
        return "more" if remaining else "unknown"

    def __call__(self, *args: Any, **kwargs: Any) -> int | str:
        """The decision, called as the function it stands in for."""
        named = dict(zip(self._names, args, strict=False)) if self._names else dict(enumerate(args))
        looked = seen(
            {**{str(name): argument for name, argument in named.items()}, **kwargs}, self.key, self.remaining
        )
        if looked is None:
            raise InputError(
                f"{self.version.resource}: no argument of {len(args) + len(kwargs)} is a list of candidates"
            )
        return self.decide(looked)


def load_head(version: Version, original: Callable[..., Any] | None = None) -> HeadDecision:
    """Loader of `head` Versions, for `whet.record.tracing.resources.register_loader("head", load_head)`."""
    return HeadDecision(version, original)


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decision of one trajectory."""

    candidates: Sequence[Candidate]
    choice: int | None
    """Index of the accepted candidate; None where the answer was `unknown`."""


def decided(
    trajectory: Trajectory, resource: str, key: str | None = None, remaining: str = "remaining"
) -> Decided | None:
    """The last decision that `resource` took in a trajectory; None if none can be read."""
    for step in reversed(trajectory.steps):
        if step.kind != "function" or step.name != resource or step.error is not None:
            continue
        looked = seen(step.observation, key, remaining)
        if looked is None:
            continue
        action = step.action
        # True is an int, and not an index
        indexed = isinstance(action, int) and not isinstance(action, bool)
        if indexed and 0 <= action < len(looked.candidates):
            return Decided(looked.candidates, action)
        return Decided(looked.candidates, None)
    return None


def judge(
    version: Version, *, name: str = "judge", read: Callable[[Trajectory], Decided | None] | None = None
) -> Callable[[Trajectory], Score]:
    """A Reward: how likely the answer of a trajectory is right, by a head learned from thumbs.

    An accepted candidate scores its probability.  `unknown` scores the likelihood that there was
    nothing to find, `(1 - p of the best seen)` scaled to the rate at which users liked an `unknown`;
    where nothing was looked at, the share of tasks that have nothing to find, so that refusing without
    looking does not pay.  A run that failed by its own error scores 0; a failed machine is not scored.

    The rate of liked refusals was measured on agents that looked as far as the recorded one: an agent
    that looks at less is flattered when it refuses, so watch its share of `unknown`.

    Args:
        read: finds the decision in trajectories of another agent; the head's own resource by default.
    """
    head = HeadDecision(version)
    unknown: Mapping[str, float] = version.content.get("unknown") or {}
    rate, prior = float(unknown.get("rate", 0.5)), float(unknown.get("prior", 0.0))

    def judged(trajectory: Trajectory) -> Score:
        if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
            # None, not 0: a machine that failed says nothing of the agent, and 0 would teach against it.
            return Score(name, None, "infrastructure error", version.id)
        if trajectory.error is not None:
            return Score(name, 0.0, f"failed: {trajectory.error.type}", version.id)
        if read is not None:
            decision = read(trajectory)
        else:
            decision = decided(trajectory, version.resource, head.key, head.remaining)
        if decision is None or not decision.candidates:
            return Score(name, prior, "unknown without having looked", version.id)
        if decision.choice is not None:
            value = head.probability(decision.candidates[decision.choice])
            return Score(name, value, f"accepted candidate {decision.choice}", version.id)
        best = head.best(decision.candidates)[1]
        return Score(name, min(1.0, rate * (1.0 - best)), f"unknown; best seen {best:.2f}", version.id)

    judged.__name__ = name
    return judged


class RouterTable:
    """A readable table from the features of a task to the policy that takes it.

    Args:
        content: of a Version of kind `router`, as `learn.optimizers.route.Route` makes it.

    Raises:
        InputError: the table is not of that form.
    """

    def __init__(self, content: Mapping[str, Json]) -> None:
        try:
            self.by: list[str] = list(content["by"])
            self.table: dict[str, str] = dict(content["table"])
            self.default: str = content["default"]
            self.arms: list[str] = list(content.get("arms") or sorted({self.default, *self.table.values()}))
            self.n: dict[str, Mapping[str, int]] = dict(content.get("n") or {})
            self.rates: dict[str, Mapping[str, float]] = dict(content.get("rates") or {})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a router table: {error!r}; it has `by`, `table` and `default`") from error

    @staticmethod
    def of(version: Version) -> RouterTable:
        """The table of a Version of kind `router`."""
        if version.kind != "router":
            raise InputError(
                f"Version {version.id} of {version.resource!r} is a {version.kind}, not a router"
            )
        return RouterTable(version.content)

    def choose(self, features: Mapping[str, str | int]) -> str:
        """The arm for a task with these features; the default where the table has no row for them."""
        if not self.by or any(name not in features for name in self.by):
            return self.default
        return self.table.get(cell(features, self.by), self.default)

    def render(self) -> str:
        """The table as text: a row per cell with the arm, and each arm's rate and number of tasks."""
        rows = [["when", "arm", *self.arms]]
        for key in sorted(self.rates, key=lambda key: (key == "", key)):
            figures = []
            for arm in self.arms:
                count = self.n.get(key, {}).get(arm, 0)
                figures.append(f"{self.rates[key][arm]:.2f} ({count})" if arm in self.rates[key] else "-")
            label = ", ".join(_label(key)) or ("all tasks" if not self.by else "otherwise")
            rows.append([label, self.table.get(key, self.default), *figures])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = (
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)


# The percent sign is escaped first and read back last, or the escapes would be escaped themselves.
_ESCAPES = (("%", "%25"), (",", "%2C"), ("=", "%3D"))


def cell(features: Mapping[str, str | int], by: Sequence[str]) -> str:
    """The table's key of a task: `kind=phone,month=none`; the empty text for all tasks."""
    return ",".join(f"{_escaped(name)}={_escaped(str(features[name]))}" for name in by)


def _escaped(text: str) -> str:
    for plain, escape in _ESCAPES:
        text = text.replace(plain, escape)
    return text


def _label(key: str) -> Iterator[str]:
    for part in key.split(",") if key else ():
        for plain, escape in reversed(_ESCAPES):
            part = part.replace(escape, plain)
        yield part
