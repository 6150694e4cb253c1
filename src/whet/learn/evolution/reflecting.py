"""`Reflect`: a model is shown what went wrong, names the causes, and rewrites a prompt; what it writes is raced.

It is a relative of GEPA (Agrawal et al. 2025, arXiv 2507.19457), from which it differs in six ways:

1. one request shows the failures of all rows that were run, grouped by cause and counted, instead of a minibatch
   of three; it asks for root causes before changes, for several prompts at once, and lists what was tried;
2. a candidate is raced against its parent on the same rows, those that went wrong first, and given up as soon as it
   has gained nothing or cannot win; GEPA runs each on a minibatch and the accepted ones on all validation rows;
3. the parent is the best so far; after a round in vain one that is best on some rows that the best is not (GEPA
   draws from the Pareto front each time);
4. a block that memorises a row is dropped before anything is run, and blocks that earn nothing are dropped at the
   end; where the model has nothing, prompts are joined and shortened without it;
5. nothing is asked once every row is right, and of further rows as many as the budget has room for;
6. the winner is not reported by the rows that chose it: the gate judges it on others.

A row is any Task whose runs have a Score in [0, 1], by whatever reward: a metric, a judge, people's thumbs.  What
is said about a run (the Score's reason, comments of feedback, `Task.meta["said"]`) is shown with it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest

from ...errors import BudgetExceeded, ModelError, TrainingRefused
from ...models import RecordedModel
from ...models.base import Model
from ...models.budget import Meter
from ...record.tracing.resources import FunctionResource, resources
from ...types import Budget, Bundle, Group, Outcome, Task, Trajectory, Version, digest
from ..loop import Context, Update, value_of
from .blocks import ITEM, blocks
from .failures import Failures, case_of
from .reflection import PromptTrial, RowMemory, added, pruned, read, request, with_rules, without

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectOptions:
    """Settings of Reflect."""

    rounds: int = 8
    """Reflections at most: each is one call of the model."""
    prompts: int = 4
    """Prompts that one reflection asks for."""
    tasks: int = 20
    """Training rows that candidates are run on; fewer where the budget is small."""
    first: int = 3
    """Rows of the first lap of a race; each further lap has twice as many."""
    shown: int = 8
    """Rows that went wrong which the model is shown."""
    patience: int = 5
    """Rounds in vain after which it ends."""
    longest: int = 6000
    """Characters that a prompt may have; twice the start's length where that is more."""
    seed: int = 0
    """Random seed."""


@dataclass(slots=True)
class _Prompt:
    """A candidate and its runs."""

    text: str
    bundle: Bundle
    parent: _Prompt | None = None
    number: int = 0
    """Of those that were tried, the start being 0."""
    runs: dict[str, Trajectory] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    """Row → value; a row that a machine failed on is in `runs` only."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Row → rows that it stands for, where that is not one."""

    def mean(self, rows: Iterable[Task]) -> float:
        ids = [row.id for row in rows if row.id in self.values]
        weight = sum(self.weights.get(id, 1.0) for id in ids)
        return sum(self.weights.get(id, 1.0) * self.values[id] for id in ids) / weight if ids else 0.0

    def gain(self, other: _Prompt, rows: Iterable[Task]) -> float:
        """Sum of the differences to another on rows that both have a value on."""
        both = [row.id for row in rows if row.id in self.values and row.id in other.values]
        return sum(self.weights.get(id, 1.0) * (self.values[id] - other.values[id]) for id in both)


class Reflect:
    """Optimizer of the texts of a Bundle, by a model that reflects on what went wrong.

    Args:
        resources: a text's name, or several, which are improved one after the other; every text of the bundle,
            else every declared one, if None.
        score: name of the Score to raise, in [0, 1], or `success`.
        model: proposes; its answers are recorded, so a resumed run asks for none twice.
        right: from this value on a row counts as right.
        options: see ReflectOptions.
        candidates: prompts, of a single text, that are raced before the model is asked.
        weights: id of a train row → rows that it stands for, where the train rows are no even sample; 1 if omitted.

    >>> Reflect("prompt", "score", model=model)  # doctest: +SKIP
    """

    name = "reflect"
    group_size = 0
    takes_groups = False
    on_policy = False
    ordered = False

    def __init__(
        self,
        resources: str | Sequence[str] | None = None,
        score: str = "success",
        *,
        model: Model | None = None,
        right: float = 1.0,
        options: ReflectOptions | None = None,
        candidates: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.candidates, self.weights = tuple(candidates), dict(weights or {})
        self.resources = (resources,) if isinstance(resources, str) else tuple(resources or ())
        self.score, self.model, self.right = score, model, right
        self.options = options or ReflectOptions()
        self.causes: list[str] = []
        """Root causes that the model named in the last step."""

    @property
    def identity(self) -> str:
        """Digest of what decides its results."""
        asked = (
            self.resources,
            self.score,
            getattr(self.model, "name", ""),
            self.right,
            asdict(self.options),
        )
        more = [self.candidates, self.weights] if self.candidates or self.weights else []
        return digest([*asked, *more])

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One search for each text, from its start to its end.

        Raises:
            TrainingRefused: no model, no training rows, no text, or the agent cannot be run.
        """
        if self.model is None:
            raise TrainingRefused(
                "reflect needs a model that proposes: give --model and --base-url (model=...)"
            )
        versions = self._versions(bundle)
        self.causes, updates = [], list[Update]()
        for place, version in enumerate(versions):
            left = context.meter.left("rollouts")
            # An equal share of what is left, so that the last text can be tried as well.
            share = None if left is None else int(left / (len(versions) - place))
            search = _Search(self, self.model, bundle, context, version, share)
            try:
                await search.run()
            except BudgetExceeded:
                if search.start is None or not search.start.values:
                    if updates:
                        break
                    raise
                search.ended = search.ended or f"{search._asked()}, and the runs to search with are used up"
            self.causes += search.causes
            updates.append(search.update())
            bundle = updates[-1].bundle
        metrics = {name: sum(update.metrics[name] for update in updates) for name in updates[0].metrics}
        # Scores are no sums: of several texts those of the first as it stood, and of the last as it is.
        metrics |= {"start": updates[0].metrics["start"], "best": updates[-1].metrics["best"]}
        metrics["rows"] = updates[-1].metrics["rows"]
        return Update(
            bundle=bundle, metrics=metrics, done=True, reason="; ".join(update.reason for update in updates)
        )

    def _versions(self, bundle: Bundle) -> list[Version]:
        """The texts to improve, as they stand; functions are not among them."""
        declared = {
            name: handle.default_version
            for name, handle in resources().items()
            if not isinstance(handle, FunctionResource)
        }
        held = {
            name: version for name, version in bundle.items() if name in declared or name not in resources()
        }
        texts = {
            name: version
            for name, version in {**declared, **held}.items()
            if isinstance(version.content, str)
        }
        names = self.resources or [name for name in held if name in texts] or list(texts)
        if not self.resources and not names:
            raise TrainingRefused(
                "reflect: the bundle holds no text, and none is declared with whet.resource"
            )
        missing = [name for name in names if name not in texts]
        # Of several that were named some may be functions or tables, which are another learner's.
        if len(missing) == len(names):
            raise TrainingRefused(
                f"reflect: {', '.join(missing)} is not a text; there are {', '.join(texts) or 'none'}"
            )
        return [texts[name] for name in names if name in texts]


class _Search:
    """One step's work."""

    def __init__(
        self,
        owner: Reflect,
        model: Model,
        bundle: Bundle,
        context: Context,
        version: Version,
        share: int | None,
    ) -> None:
        if not context.train:
            raise TrainingRefused("reflect: no training rows to run candidates on")
        self.options, self.score, self.right = owner.options, owner.score, owner.right
        self.candidates, self.weights = owner.candidates, owner.weights
        self.base, self.context, self.version = bundle, context, version
        self.meter = Meter(Budget(rollouts=share))
        """Of this text's share of the runs."""
        self.model = RecordedModel(model, context.log)
        self.rng = random.Random(f"reflect:{self.options.seed}")
        self.rows = self._affordable()
        self.memory = RowMemory.of([*context.train, *context.validation])
        self.start: _Prompt | None = None
        self.pool: list[_Prompt] = []
        """Prompts that were run on all rows."""
        self.seen: set[str] = set()
        self.attempts: list[PromptTrial] = []
        self.causes: list[str] = []
        self.asked = self.useless = self.tried = self.memorised = 0
        self.ended = ""
        self.final: _Prompt | None = None
        """The best without what it does not need."""
        self._words: dict[str, frozenset[str]] = {}
        self._counts: Counter[str] = Counter()

    def _affordable(self) -> list[Task]:
        """Rows that the start and a few candidates can be run on: with more of them fewer could be tried."""
        left, train = self.meter.left("rollouts"), list(self.context.train)
        count = min(self.options.tasks, len(train))
        if left is not None:
            count = min(count, max(6, int(left / 6)), int(left))
        return self.rng.sample(train, count)

    @property
    def best(self) -> _Prompt:
        # The shorter of two equals: what a rule does not earn it costs, in tokens at least.
        return max(self.pool, key=lambda prompt: (round(prompt.mean(self.rows), 9), -len(prompt.text)))

    def _perfect(self, prompt: _Prompt) -> bool:
        return all(prompt.values.get(row.id, 0.0) >= self.right - _EQUAL for row in self.rows)

    async def run(self) -> None:
        """Search until nothing is left to gain, to ask or to spend."""
        self.start = await self._started()
        if self._perfect(self.start):
            self.ended = (
                f"all {len(self.rows)} rows that were tried are right already, so no change was asked for"
            )
            return
        texts = [text for candidate in self.candidates if (text := self._pruned(candidate, self.start))]
        if texts:
            await self._raced([self._prompt(text, self.start) for text in texts], self.start)
        idle = 0
        limits = self.options
        while self.asked < limits.rounds and idle < limits.patience and await self._wanting():
            parent = self._parent(idle)
            better = await self._reflected(parent)
            idle = 0 if better else idle + 1
            if not better and await self._joined():
                idle = 0
        if self._perfect(self.best):
            self.ended = f"all {len(self.rows)} training rows are right"
        await self._shortened()
        if not self.ended:
            self.ended = f"{self._asked()}; {idle} in a row brought nothing better"

    async def _wanting(self) -> bool:
        """True if the best is not right on all rows; where it is, on more of them, as far as half of the runs last."""
        while self._perfect(self.best):
            best, tried = self.best, {row.id for row in self.rows}
            spare = [row for row in self.context.train if row.id not in tried]
            left = self.meter.left("rollouts")
            count = min(len(spare), len(self.rows) // 2, len(spare) if left is None else int(left / 2))
            if count < self.options.first:
                return False
            more = self.rng.sample(spare, count)
            await self._extend(best, more)
            self.rows = [*self.rows, *more]
            # The others have not been run on these.
            self.pool, self._words = [best], {}
        return True

    def _asked(self) -> str:
        text = f"{self.asked} reflection{'' if self.asked == 1 else 's'}"
        if self.asked and self.asked == self.useless:
            text += ", not one of which held a new prompt or a rule: another model may propose better"
        return text

    async def _started(self) -> _Prompt:
        start = self._prompt(str(self.version.content), None)
        self.seen.add(start.text.strip())
        await self._extend(start, self.rows)
        if not start.values:
            failed = next((run.error for run in start.runs.values() if run.error is not None), None)
            why = failed.message if failed is not None else f"no run has a score {self.score!r}"
            raise TrainingRefused(f"reflect: not one of {len(self.rows)} rows could be run and judged: {why}")
        self.pool.append(start)
        self._tell("as it stands", start)
        return start

    def _prompt(self, text: str, parent: _Prompt | None) -> _Prompt:
        version = Version(
            resource=self.version.resource,
            content=text,
            kind=self.version.kind,
            parent=parent.bundle[self.version.resource].id if parent is not None else None,
        )
        bundle = self.base.put(version if parent is not None else self.version)
        prompt = _Prompt(text, bundle, parent, number=self.tried, weights=self.weights)
        self.tried += 1
        return prompt

    async def _extend(self, prompt: _Prompt, rows: Sequence[Task]) -> None:
        missing = [row for row in rows if row.id not in prompt.runs]
        if not missing:
            return
        self.meter.reserve(rollouts=len(missing))
        if self.pool:
            self._tell("on trial", prompt)
        groups = await self.context.rollout(prompt.bundle, missing)
        refuse_unanswered(groups)
        for group in groups:
            run = group.trajectories[0]
            prompt.runs[group.task.id] = run
            value = value_of(run, self.score)
            if (
                value is None
                and run.outcome is not Outcome.INFRASTRUCTURE_ERROR
                and prompt.parent is not None
            ):
                value = 0.0  # an answer that nothing could judge is not better than one that was judged
            if value is not None:
                prompt.values[group.task.id] = value

    def _parent(self, idle: int) -> _Prompt:
        """The best; after a round in vain also one that is better on some row than the best."""
        best = self.best
        if idle == 0 or len(self.pool) < 2:
            return best
        others = [
            prompt
            for prompt in self.pool
            if prompt is not best
            and any(prompt.values.get(id, 0.0) > value + _EQUAL for id, value in best.values.items())
        ]
        return self.rng.choice([best, *others])

    async def _reflected(self, parent: _Prompt) -> bool:
        """Ask for prompts and race them; True if one is the best now."""
        cases = [case for run in parent.runs.values() if (case := case_of(run, self.score)) is not None]
        messages = request(
            parent.text,
            Failures.of(cases, self.right),
            self.attempts,
            count=self.options.prompts,
            shown=self.options.shown,
            rng=self.rng,
            longest=self._longest,
        )
        self.asked += 1
        try:
            answer = (await self.model.complete(messages, sample=self.asked)).text
        except ModelError as error:
            self.useless += 1
            if self.asked == self.useless == 2:
                raise TrainingRefused(f"reflect: the model that proposes cannot be asked: {error}") from error
            return False
        reflection = read(answer, parent.text)
        self.causes += reflection.causes
        texts = [text for prompt in reflection.prompts if (text := self._pruned(prompt, parent))]
        self.useless += not texts
        texts += self._shorter(parent)
        return await self._raced([self._prompt(text, parent) for text in texts], parent)

    def _shorter(self, parent: _Prompt) -> list[str]:
        """The prompt without one block that it has beside the start: what was right at first may be in the way now."""
        assert self.start is not None
        new = added(parent.text, self.start.text)
        if len(new) < 2:
            return []
        for block in self.rng.sample(new, len(new)):
            text = self._pruned(without(parent.text, [block]), parent)
            if text:
                return [text]
        return []

    @property
    def _longest(self) -> int:
        return max(self.options.longest, 2 * len(str(self.version.content)))

    def _pruned(self, text: str, parent: _Prompt) -> str:
        """A proposal without what memorises rows; "" if nothing new is left of it."""
        text, dropped = pruned(text, parent.text, self.memory)
        self.memorised += len(dropped)
        if _repeats(text) > _repeats(parent.text):  # it says something once more
            return ""
        if not text.strip() or text.strip() in self.seen or len(text) > self._longest:
            return ""
        self.seen.add(text.strip())
        return text

    async def _raced(self, prompts: Sequence[_Prompt], parent: _Prompt) -> bool:
        """Run each against its parent, lap by lap; True if one is the best now.

        Where several gain on their first lap, what they add is joined, and that runs on in their place.
        """
        before = self.best
        for prompt in prompts:
            await self._race(prompt, parent, laps=1 if len(prompts) > 1 else None)
        gains = {prompt.number: prompt.gain(parent, self._ran(prompt)) for prompt in prompts}
        live = [prompt for prompt in prompts if gains[prompt.number] > _EQUAL]
        live.sort(key=lambda prompt: -gains[prompt.number])
        if live:
            # A block whose rows stay right without it may be in the way of what is added.
            live += [
                p for p in prompts if p not in live and gains[p.number] > -_EQUAL and not _adds(p, parent)
            ]
        union = self._union(live, parent) if len(live) > 1 else None
        if union is not None:
            await self._race(union, parent)
            self._enter(union, parent)
        if self.best is before:
            # The best of them alone; the others' rules are asked for again if they were good.
            for prompt in live[: 1 if len(prompts) > 1 else 0]:
                await self._race(prompt, parent)
        for prompt in prompts:
            self._enter(prompt, parent, joined=union is not None and prompt in live)
        return self.best is not before

    def _ran(self, prompt: _Prompt) -> list[Task]:
        return [row for row in self.rows if row.id in prompt.values]

    def _enter(self, prompt: _Prompt, parent: _Prompt, *, joined: bool = False) -> None:
        """Note how a prompt fared, for the requests that follow; one that ran on all rows may become a parent."""
        ran, whole = self._ran(prompt), len(prompt.runs) == len(self.rows)
        new = "\n".join(added(prompt.text, parent.text)) or "(blocks dropped or moved)"
        self.attempts.append(PromptTrial(new, prompt.gain(parent, ran), len(ran)))
        if whole:
            self.pool.append(prompt)
        self._tell("kept" if whole else "joined with others" if joined else "given up", prompt)

    def _union(self, prompts: Sequence[_Prompt], parent: _Prompt) -> _Prompt | None:
        """The parent without what any of these drops, and with what each adds; None if one does more than that."""
        rules: list[str] = []
        dropped: list[str] = []
        for prompt in prompts:
            new, gone = added(prompt.text, parent.text), added(parent.text, prompt.text)
            if without(prompt.text, new).split() != without(parent.text, gone).split():
                return None
            rules += [rule for rule in map(_bare, new) if rule not in rules]
            dropped += gone
        text = self._pruned(with_rules(without(parent.text, dropped), rules), parent)
        return self._prompt(text, parent) if text else None

    async def _race(
        self, prompt: _Prompt, parent: _Prompt, bar: float = _EQUAL, laps: int | None = None
    ) -> None:
        """Run a prompt lap by lap, until it has gained less than `bar` or cannot win; at most so many laps."""
        order = self._order(prompt, parent)
        at, lap = 0, self.options.first
        while at < len(order):
            rows = order[at : at + lap]
            # The other rows of the lap can only lose: what gained nothing on these is given up without them.
            # One that only drops something may be joined for losing nothing, so it is run on all.
            if bar > 0 and _adds(prompt, parent):
                able = [row for row in rows if self._able(parent, row) > 0.0]
                await self._extend(prompt, able)
                if prompt.gain(parent, [*order[:at], *able]) < bar:
                    return
            await self._extend(prompt, rows)
            at, lap = min(len(order), at + lap), 2 * lap
            ran, left = order[:at], order[at:]
            gain = prompt.gain(parent, ran)
            # The most that it can still gain: every row that is left becomes right.
            hope = gain + sum(self._able(parent, row) for row in left)
            hopeless = hope < bar if bar < 0 else hope <= self.best.gain(parent, self.rows) - _EQUAL
            if left and (gain < bar or hopeless):
                return
            laps = None if laps is None else laps - 1
            if laps == 0:
                return

    def _able(self, parent: _Prompt, row: Task) -> float:
        """The most that a row can gain."""
        return self.weights.get(row.id, 1.0) * (1.0 - parent.values.get(row.id, 0.0))

    def _order(self, prompt: _Prompt, parent: _Prompt) -> list[Task]:
        """Rows in the order of a race: two that the parent has wrong for each that it has right, as long as both last.

        A harmful prompt is then found out by the first lap, and a useless one, too.  Of the wrong ones come first those
        that share the most words with what the prompt adds: what does not help where it speaks helps nowhere.
        """
        shuffled = random.Random(f"race:{self.options.seed}:{parent.text}").sample(self.rows, len(self.rows))
        # A prompt that only drops something is tried where that may be missed, on rows that are right with it.
        dropping = not _adds(prompt, parent)
        words = _words("\n".join(added(prompt.text, parent.text)))
        gone = _words("\n".join(added(parent.text, prompt.text)))
        causes: dict[str, list[Task]] = {}
        right: list[Task] = []
        for row in shuffled:
            if parent.values.get(row.id, 0.0) >= self.right - _EQUAL:
                right.append(row)
                continue
            case = case_of(parent.runs[row.id], self.score)
            causes.setdefault(case.cause if case is not None else "", []).append(row)
        # One of each cause in turn: a rule that mends one cause shows early.
        wrong = [row for turn in zip_longest(*causes.values()) for row in turn if row is not None]
        wrong.sort(key=lambda row: -self._shared(words, row))
        if dropping:
            right.sort(key=lambda row: -self._shared(gone, row))
            return [*right, *wrong]
        order: list[Task] = []
        while wrong or right:
            order += wrong[:2] + right[:1]
            wrong, right = wrong[2:], right[1:]
        return order

    def _shared(self, words: frozenset[str], row: Task) -> float:
        """How much the words of a change are those of a row, each by how few rows have it."""
        if not self._words:
            self._words = {task.id: _words(f"{task.instruction} {task.answer}") for task in self.rows}
            self._counts = Counter(word for own in self._words.values() for word in own)
        return sum(1.0 / self._counts[word] for word in words & self._words[row.id])

    async def _joined(self) -> bool:
        """The best with what another prompt has beside it, where that one is better on some rows; no model is asked."""
        best = self.best
        for other in reversed(self.pool):
            better = any(
                other.values.get(id, 0.0) > value + _EQUAL
                for id, value in best.values.items()
                if other is not best
            )
            rules = (
                [block.strip().removeprefix("- ") for block in added(other.text, best.text)] if better else []
            )
            text = self._pruned(with_rules(best.text, rules), best) if rules else ""
            if text:
                return await self._raced([self._prompt(text, best)], best)
        return False

    async def _shortened(self) -> None:
        """Drop what the best has beside the start and few rows miss.

        Each block is left out on a first lap of rows that it is about and that are right; those that were not missed
        are dropped together.  On all rows that may lose half a row for each: a block that earns less has met with luck.
        """
        assert self.start is not None
        best, first = self.best, self.options.first
        new = added(best.text, self.start.text)
        if len(new) < 2:
            return
        spare: list[_Prompt] = []
        for block in new:
            left = self.meter.left("rollouts")
            text = without(best.text, [block])
            if not text.strip() or (left is not None and left < len(self.rows) + first):
                continue
            prompt = self._prompt(text, best)
            await self._race(prompt, best, -_EQUAL, laps=1)
            if prompt.gain(best, self._ran(prompt)) >= -_EQUAL:
                spare.append(prompt)
        dropped = [block for prompt in spare for block in added(best.text, prompt.text)]
        if not dropped or len(dropped) == len(new):
            return
        shorter = self._prompt(without(best.text, dropped), best)
        worth = len(dropped) / 2 + _EQUAL
        await self._race(shorter, best, -worth)
        if len(shorter.runs) == len(self.rows) and shorter.gain(best, self.rows) >= -worth:
            self.final = shorter
            self.ended = (
                f"{self.ended or self._asked()}; {len(dropped)} blocks that earned too little are dropped"
            )
            self._tell("without what no row misses", shorter)

    def _tell(self, what: str, prompt: _Prompt) -> None:
        ran = [row for row in self.rows if row.id in prompt.values]
        new = added(prompt.text, prompt.parent.text) if prompt.parent is not None else []
        most = self.meter.budget.rollouts
        budget = {} if most is None else {"runs": self.meter.spent["rollouts"], "most": float(most)}
        self.context.progress(
            f"prompt {prompt.number} {what}",
            len(ran),
            len(self.rows),
            score=round(prompt.mean(ran), 4),
            best=round(self.best.mean(self.rows), 4) if self.pool else 0.0,
            reflections=self.asked,
            candidate=" ".join(_bare(new[0]).split())[:60] if new else "",
            **budget,
        )

    def update(self) -> Update:
        """The best prompt, and how it came about."""
        assert self.start is not None
        best = self.final or self.best
        # The start was not run on the rows that were added when all others were right.
        rows = [row for row in self.rows if row.id in self.start.runs]
        before, after = self.start.mean(rows), best.mean(rows)
        if after <= before + _EQUAL:
            best = self.start
        metrics = {
            "start": before,
            "best": max(before, after),
            "rows": float(len(rows)),
            "asked": float(self.asked),
            "useless": float(self.useless),
            "tried": float(self.tried - 1),
            "memorised": float(self.memorised),
            "spread": max(self.start.values.values()) - min(self.start.values.values()),
        }
        moved = (
            f"{before:.3f} → {after:.3f}" if best is not self.start else f"nothing better than {before:.3f}"
        )
        return Update(
            bundle=best.bundle,
            metrics=metrics,
            done=True,
            reason=f"{self.ended}; {moved}",
        )


def refuse_unanswered(groups: Sequence[Group]) -> None:
    """Stop where the model under the prompt answers no more: a key that is refused would cost every further row a call.

    Raises:
        TrainingRefused: each of these runs ended in an error of the model.
    """
    errors = [run.error for group in groups for run in group.trajectories]
    failed = [error for error in errors if error is not None and error.type == ModelError.__name__]
    if failed and len(failed) == len(errors):
        raise TrainingRefused(
            f"the model cannot be asked: {failed[0].message} Its answers so far are recorded: run the same command "
            "again to go on."
        )


def _adds(prompt: _Prompt, parent: _Prompt) -> bool:
    return bool(added(prompt.text, parent.text))


def _repeats(text: str) -> int:
    """Blocks of a prompt that stand in it before."""
    own = [_bare(block) for block in blocks(text)]
    return len(own) - len(set(own))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w{3,}", text.casefold()))


def _bare(block: str) -> str:
    """A block without the mark of a list item."""
    return ITEM.sub("", block.strip(), count=1)
