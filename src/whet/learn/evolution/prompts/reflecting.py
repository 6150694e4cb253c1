"""`Reflect`: a model is shown what went wrong, names the causes, and rewrites a prompt; what it writes is raced.

It is a relative of GEPA (Agrawal et al. 2025, arXiv 2507.19457), from which it differs in seven ways:

1. one request shows the failures of all rows that were run, grouped by cause and counted, instead of a minibatch
   of three; it asks for root causes before changes, for several prompts at once, and lists what was tried;
2. a candidate is raced against its parent on the same rows, those that went wrong first, and put aside as soon as it
   has gained nothing or cannot win; GEPA runs each on a minibatch and the accepted ones on all validation rows;
3. the parent is the best so far; after a round in vain one that is best on some rows that the best is not (GEPA
   draws from the Pareto front each time);
4. a block that memorises a row is dropped before anything is run, and blocks that earn nothing are dropped at the
   end; where the model has nothing, prompts are joined and shortened without it;
5. nothing is asked once every row is right, and of further rows as many as the budget has room for;
6. what was put aside is not forgotten: what all runs say of each piece of a prompt tells which prompt, or which pieces
   joined, may yet be better than the best, and that is run on further rows (`prompt_race.py`);
7. the winner is not reported by the rows that chose it: the gate judges it on others.

A row is any Task whose runs have a Score in [0, 1], by whatever reward: a metric, a judge, people's thumbs.  What
is said about a run (the Score's reason, comments of feedback, `Task.meta["said"]`) is shown with it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ....errors import BudgetExceeded, ModelError, TrainingRefused
from ....models import RecordedModel
from ....models.base import Model
from ....models.budget import Meter
from ....record.tracing.resources import FunctionResource, resources
from ....types import Budget, Bundle, Group, Task, Version, digest
from ...loop import Context, Update
from ..editing.blocks import blocks
from ..editing.slots import slots
from .failures import Failures, case_of
from .prompt_race import EQUAL, PromptRace, RacedPrompt, bare
from .reflection import PromptTrial, RowMemory, added, pruned, read, request, with_rules, without

_DRAWS = 10
"""Draws from the belief about a prompt's pieces, of which the first that may be better than the best is run."""
_AGAIN = 2
"""Times the rows that have to be left as runs for a text to be tried with the rules that came later."""
_USELESS = 8
"""Answers of a model that hold one prompt at most, after which it is asked no more."""
_FAILED = 3
"""Requests in a row without an answer, after which the model is asked no more."""
_LIKELIER = 2 / 3
"""Probability of being better than the best, above which a prompt that the end of the runs cut short is taken."""
_VAIN = 3
"""Second looks in vain, once the model is asked no more, after which the search ends."""


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
    second_looks: bool = True
    """Run what was given up again where all runs of its pieces speak for it: for answers that people judge, whose
    thumbs err. A table says what is right, and its few calls are better spent on the next proposal."""
    longest: int = 6000
    """Characters that a prompt may have; twice the start's length where that is more."""
    seed: int = 0
    """Random seed."""


class Reflect:
    """Optimizer of the texts of a Bundle, by a model that reflects on what went wrong.

    Args:
        resources: a text's name, or several, which are improved one after the other; every text of the bundle,
            else every declared one, if None.
        score: name of the Score to raise, in [0, 1], or `success`.
        model: proposes; its answers are recorded, so a resumed run asks for none twice.
        right: from this value on a row counts as right.
        options: see ReflectOptions.
        candidates: prompts, of a single text, that are run on all rows before the model is asked: something speaks for
            them already, which the luck of a first lap must not outweigh.
        weights: id of a train row → rows that it stands for, where the train rows are no even sample; 1 if omitted.
        keeps: name of a Score, 1 where a run keeps what has to stay and 0 where it does not; a prompt that loses more
            of it than it keeps is given up, whatever it gains elsewhere.

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
        keeps: str | None = None,
    ) -> None:
        self.keeps = keeps
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
        more += [self.keeps] if self.keeps else []
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
        rules = dict[str, None]()
        # What a model proposes for one text may belong into another: the first ones hear at the end what it said later.
        again = versions[:-1]
        for place, version in enumerate([*versions, *again]):
            left = context.meter.left("rollouts")
            asks = place < len(versions)
            # An equal share of what is left, so that the last text can be tried as well.
            share = (
                None
                if left is None
                else int(left / (len(versions) + len(again) / 2 - place) if asks else left)
            )
            version = bundle.get(version.resource, version)
            if not asks and (
                not rules or (share is not None and share < _AGAIN * min(len(context.train), 40))
            ):
                break
            search = _Search(self, self.model, bundle, context, version, share, rules=list(rules), asks=asks)
            try:
                await search.run()
            except BudgetExceeded:
                if search.start is None or not search.start.values:
                    if updates:
                        break
                    raise
                search.cut_short()
            self.causes += search.causes
            updates.append(search.update())
            bundle = updates[-1].bundle
            rules |= dict.fromkeys(search.proposed)
            held = str(bundle[version.resource].content) if version.resource in bundle else ""
            rules = {rule: None for rule in rules if rule not in held}
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
        *,
        rules: Sequence[str] = (),
        asks: bool = True,
    ) -> None:
        if not context.train:
            raise TrainingRefused("reflect: no training rows to run candidates on")
        self.options, self.score, self.right = owner.options, owner.score, owner.right
        self.candidates, self.context, self.version = owner.candidates, context, version
        self.rules, self.rounds = rules, self.options.rounds if asks else 0
        self.meter = Meter(Budget(rollouts=share))
        """Of this text's share of the runs."""
        self.model = RecordedModel(model, context.log)
        self.rng = random.Random(f"reflect:{self.options.seed}")
        self.memory = RowMemory.of([*context.train, *context.validation])
        self.race = PromptRace(
            version,
            bundle,
            context,
            self.meter,
            self._affordable(),
            first=self.options.first,
            score=self.score,
            right=self.right,
            weights=owner.weights,
            seed=self.options.seed,
            keeps=owner.keeps,
            on_trial=lambda prompt: self._tell("on trial", prompt) if self.pool else None,
        )
        self.start: RacedPrompt | None = None
        self.pool: list[RacedPrompt] = []
        """Prompts that were run on all rows."""
        self.attempts: list[PromptTrial] = []
        self.causes: list[str] = []
        self.asked = self.useless = self.memorised = 0
        self.failed, self.unheard = 0, ""
        """Requests in a row that the model did not answer, and why it is asked no more."""
        self.heard = set[str]()
        """Texts that the model proposed."""
        self.resumed = 0.0
        """Runs of second looks."""
        self.ended = ""
        self.final: RacedPrompt | None = None
        """The best without what it does not need; or what was cut short and is likely to be better."""

    @property
    def rows(self) -> Sequence[Task]:
        return self.race.rows

    @property
    def proposed(self) -> list[str]:
        """Rules that somebody proposed to add."""
        return [rule for new, gone in self.race.pieces if not gone for rule in new]

    def _affordable(self) -> list[Task]:
        """Rows that the start and a few candidates can be run on: with more of them fewer could be tried."""
        left, train = self.meter.left("rollouts"), list(self.context.train)
        count = min(self.options.tasks, len(train))
        if left is not None:
            count = min(count, max(6, int(left / 6)), int(left))
        return self.rng.sample(train, count)

    @property
    def best(self) -> RacedPrompt:
        # The shorter of two equals: what a rule does not earn it costs, in tokens at least.
        return max(self.pool, key=lambda prompt: (round(prompt.mean(self.rows), 9), -len(prompt.text)))

    async def run(self) -> None:
        """Search until nothing is left to gain, to ask or to spend."""
        self.start = await self._started()
        if self.race.perfect(self.start):
            self.ended = (
                f"all {len(self.rows)} rows that were tried are right already, so no change was asked for"
            )
            return
        texts = [text for candidate in self.candidates if (text := self._pruned(candidate, self.start))]
        if texts:
            prompts = [self.race.proposal(text, self.start) for text in texts]
            await self._raced(prompts, self.start, whole=True)
        more = [self._pruned(with_rules(self.best.text, [rule]), self.best) for rule in self.rules]
        if any(more):
            best = self.best
            await self._raced([self.race.proposal(text, best) for text in more if text], best)
        idle = 0
        limits = self.options
        while self.asked < self.rounds and idle < limits.patience and await self._wanting():
            if self.asked >= _USELESS and len(self.heard) < 2:
                break
            parent = self._parent(idle)
            better = await self._reflected(parent)
            idle = 0 if better else idle + 1
            if not better and await self._joined():
                better, idle = True, 0
            if not better and self._spared(idle) and await self._looked_again():
                idle = 0
        if self.race.perfect(self.best):
            self.ended = f"all {len(self.rows)} training rows are right"
        vain = 0
        while vain < _VAIN and not self.race.perfect(self.best) and self._spared(limits.patience):
            vain = 0 if await self._looked_again() else vain + 1
        await self._shortened()
        if not self.ended:
            self.ended = f"{self._asked()}; {idle} in a row brought nothing better"

    def cut_short(self) -> None:
        """End where the runs are used up: of what they cut short, that ships for which all runs of its pieces speak."""
        ended = self.ended or f"{self._asked()}, and the runs to search with are used up"
        best, start = self.best, self.pool[0]
        chances = [
            (self.race.chance(prompt.text, best), prompt.number, prompt)
            for prompt in self.race.known.values()
            if not self.race.whole(prompt) and not prompt.breaks(best) and not prompt.breaks(start)
        ]
        chance, _, prompt = max(chances, default=(0.0, 0, best))
        if chance > _LIKELIER:
            self.final = prompt
            ended += f"; one that had not run on all rows is better with a probability of {chance:.2f}, so it is taken"
        self.ended = ended

    def _spared(self, idle: int) -> bool:
        """True if runs are left for a second look, beside those that the reflections to come are likely to take.

        Second looks end once they took more runs than all others did, and leave what it takes to shorten the best.
        """
        if not self.options.second_looks:
            return False
        assert self.start is not None
        to_come = min(self.rounds - self.asked, self.options.patience - idle)
        others = self.meter.spent["rollouts"] - self.resumed
        left = self.meter.left("rollouts")
        if left is None or self.resumed > others:
            return self.resumed <= others
        new = len(added(self.best.text, self.start.text))
        shortening = len(self.rows) + new * self.options.first if new > 1 else 0
        return left - shortening - len(self.rows) >= max(0, to_come) * others / max(1, self.asked)

    async def _looked_again(self) -> bool:
        """Run on further rows what may be better than the best by all that is known; True if it is."""
        best = self.best
        for _ in range(_DRAWS):
            text = self._combined(best, self.race.worth_of_pieces(self.rng))
            if not text or not self.race.promising(text, best):
                continue
            prompt, before = self.race.prompt(text, best), self.meter.spent["rollouts"]
            try:
                await self.race.resume(prompt, best)
            finally:
                self.resumed += self.meter.spent["rollouts"] - before
            if self.race.whole(prompt) or prompt.breaks(best):
                self._enter(prompt, best)
            else:
                self._tell("given up once more", prompt)
            return self.best is not best
        return False

    def _combined(self, best: RacedPrompt, worth: Sequence[float]) -> str:
        """The best with the pieces that are worth something and without those that are not; "" if that is no prompt.

        A piece that replaced blocks stays: the old ones may belong anywhere.
        """
        assert self.start is not None
        own = {bare(block): block for block in blocks(best.text)}
        held = self.race.held(best.text)
        rules: list[str] = []
        dropped: list[str] = []
        for (new, gone), place in self.race.pieces.items():
            if place not in held and worth[place] > 0:
                rules += [rule for rule in new if rule not in rules and rule not in own]
                dropped += gone
            elif place in held and worth[place] < 0 and not gone:
                dropped += new
        if not own.keys() >= set(dropped):
            return ""
        text = without(best.text, [own[block] for block in dropped])
        text = with_rules(text, rules) if rules else text
        kept = slots(self.start.text).keys() <= slots(text).keys()
        return text if text.strip() and kept and len(text) <= self._longest else ""

    async def _wanting(self) -> bool:
        """True if the best is not right on all rows; where it is, on more of them, as far as half of the runs last."""
        while self.race.perfect(self.best):
            best, tried = self.best, {row.id for row in self.rows}
            spare = [row for row in self.context.train if row.id not in tried]
            left = self.meter.left("rollouts")
            count = min(len(spare), len(self.rows) // 2, len(spare) if left is None else int(left / 2))
            if count < self.options.first:
                return False
            more = self.rng.sample(spare, count)
            await self.race.extend(best, more)
            self.race.add_rows(more)
            # The others have not been run on these.
            self.pool = [best]
        return True

    def _asked(self) -> str:
        text = f"{self.asked} reflection{'' if self.asked == 1 else 's'}"
        if self.asked and self.asked == self.useless:
            text += ", not one of which held a new prompt or a rule: another model may propose better"
        elif self.asked >= _USELESS and len(self.heard) == 1:
            text += ", all of which held one and the same: another model may propose better"
        if self.unheard:
            text += f", and the model that proposes no longer answers ({self.unheard})"
        return text

    async def _started(self) -> RacedPrompt:
        start = self.race.prompt(str(self.version.content), None)
        await self.race.extend(start, self.rows)
        if not start.values:
            failed = next((run.error for run in start.runs.values() if run.error is not None), None)
            why = failed.message if failed is not None else f"no run has a score {self.score!r}"
            raise TrainingRefused(f"reflect: not one of {len(self.rows)} rows could be run and judged: {why}")
        self.pool.append(start)
        self._tell("as it stands", start)
        return start

    def _parent(self, idle: int) -> RacedPrompt:
        """The best; after a round in vain also one that is better on some row than the best."""
        best = self.best
        if idle == 0 or len(self.pool) < 2:
            return best
        others = [
            prompt
            for prompt in self.pool
            if prompt is not best
            and any(prompt.values.get(id, 0.0) > value + EQUAL for id, value in best.values.items())
        ]
        return self.rng.choice([best, *others])

    async def _reflected(self, parent: RacedPrompt) -> bool:
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
            self.failed += 1
            if self.asked == self.useless and (error.for_good or self.asked == 2):
                raise TrainingRefused(f"reflect: the model that proposes cannot be asked: {error}") from error
            if error.for_good or self.failed == _FAILED:
                self.rounds, self.unheard = self.asked, f"{error}"
            return False
        self.failed = 0
        reflection = read(answer, parent.text)
        self.causes += reflection.causes
        texts = [text for prompt in reflection.prompts if (text := self._pruned(prompt, parent))]
        self.useless += not texts
        self.heard |= set(texts)
        prompts = [self.race.proposal(text, parent) for text in dict.fromkeys(texts)]
        prompts += [self.race.prompt(text, parent) for text in self._shorter(parent)]
        return await self._raced(prompts, parent)

    def _shorter(self, parent: RacedPrompt) -> list[str]:
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

    def _pruned(self, text: str, parent: RacedPrompt) -> str:
        """A proposal without what memorises rows; "" if nothing new is left of it."""
        text, dropped = pruned(text, parent.text, self.memory)
        self.memorised += len(dropped)
        if _repeats(text) > _repeats(parent.text):  # it says something once more
            return ""
        if not text.strip() or text.strip() in self.race.known or len(text) > self._longest:
            return ""
        return text

    async def _raced(
        self, prompts: Sequence[RacedPrompt], parent: RacedPrompt, *, whole: bool = False
    ) -> bool:
        """Run each against its parent, lap by lap or whole; True if one is the best now.

        Where several gain on their first lap, what they add is joined, and that runs on in their place.
        """
        before, joined, entered = self.best, list[RacedPrompt](), list[RacedPrompt]()
        try:
            for prompt in prompts:
                laps = 1 if len(prompts) > 1 else None
                await self.race.race(prompt, parent, before, laps=laps, whole=whole)
            gains = {prompt.number: prompt.gain(parent, self.race.ran(prompt)) for prompt in prompts}
            live = [
                prompt for prompt in prompts if gains[prompt.number] > EQUAL and not prompt.breaks(parent)
            ]
            live.sort(key=lambda prompt: -gains[prompt.number])
            if live:
                # A block whose rows stay right without it may be in the way of what is added.
                live += [
                    p for p in prompts if p not in live and gains[p.number] > -EQUAL and not p.adds(parent)
                ]
            union = self._union(live, parent) if len(live) > 1 else None
            if union is not None:
                joined = live
                await self.race.race(union, parent, before, whole=whole)
                self._enter(union, parent)
            if len(prompts) > 1:
                # What spoils the others when they are joined may well have gained the most on the first lap.
                for prompt in live:
                    if self.best is not before:
                        break
                    await self.race.race(prompt, parent, before)
                    self._enter(prompt, parent)
                    entered.append(prompt)
        finally:
            # Where the runs are used up, those that were run on all rows count all the same.
            for prompt in prompts:
                if prompt not in entered:
                    self._enter(prompt, parent, joined=prompt in joined)
        return self.best is not before

    def _enter(self, prompt: RacedPrompt, parent: RacedPrompt, *, joined: bool = False) -> None:
        """Note how a prompt fared, for the requests that follow; one that ran on all rows may become a parent."""
        broken = prompt.breaks(parent) or prompt.breaks(self.pool[0])
        ran, whole = self.race.ran(prompt), self.race.whole(prompt) and not broken
        new = "\n".join(added(prompt.text, parent.text)) or "(blocks dropped or moved)"
        gain = prompt.gain(parent, ran)
        self.attempts.append(PromptTrial(new, min(gain, 0.0) if broken else gain, len(ran)))
        if whole and prompt not in self.pool:
            self.pool.append(prompt)
        self._tell("kept" if whole else "joined with others" if joined else "given up", prompt)

    def _union(self, prompts: Sequence[RacedPrompt], parent: RacedPrompt) -> RacedPrompt | None:
        """The parent without what any of these drops, and with what each adds; None if one does more than that."""
        rules: list[str] = []
        dropped: list[str] = []
        for prompt in prompts:
            new, gone = added(prompt.text, parent.text), added(parent.text, prompt.text)
            if without(prompt.text, new).split() != without(parent.text, gone).split():
                return None
            rules += [rule for rule in map(bare, new) if rule not in rules]
            dropped += gone
        text = self._pruned(with_rules(without(parent.text, dropped), rules), parent)
        return self.race.prompt(text, parent) if text else None

    async def _joined(self) -> bool:
        """The best with what another prompt has beside it, where that one is better on some rows; no model is asked."""
        best = self.best
        for other in reversed(self.pool):
            better = any(
                other.values.get(id, 0.0) > value + EQUAL
                for id, value in best.values.items()
                if other is not best
            )
            rules = (
                [block.strip().removeprefix("- ") for block in added(other.text, best.text)] if better else []
            )
            text = self._pruned(with_rules(best.text, rules), best) if rules else ""
            if text:
                return await self._raced([self.race.prompt(text, best)], best)
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
        spare: list[RacedPrompt] = []
        for block in new:
            left = self.meter.left("rollouts")
            text = without(best.text, [block])
            if not text.strip() or (left is not None and left < len(self.rows) + first):
                continue
            prompt = self.race.prompt(text, best)
            await self.race.race(prompt, best, best, -EQUAL, laps=1)
            if prompt.gain(best, self.race.ran(prompt)) >= -EQUAL:
                spare.append(prompt)
        dropped = [block for prompt in spare for block in added(best.text, prompt.text)]
        if not dropped or len(dropped) == len(new):
            return
        shorter = self.race.prompt(without(best.text, dropped), best)
        worth = len(dropped) / 2 + EQUAL
        await self.race.race(shorter, best, best, -worth)
        if self.race.whole(shorter) and shorter.gain(best, self.rows) >= -worth:
            self.final = shorter
            self.ended = (
                f"{self.ended or self._asked()}; {len(dropped)} blocks that earned too little are dropped"
            )
            self._tell("without what no row misses", shorter)

    def _tell(self, what: str, prompt: RacedPrompt) -> None:
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
            candidate=" ".join(bare(new[0]).split())[:60] if new else "",
            **budget,
        )

    def update(self) -> Update:
        """The best prompt, and how it came about."""
        assert self.start is not None
        best = self.final or self.best
        # What was cut short has no mean: that of the best which ran on all rows stands for it, and is less.
        ran = best if self.race.whole(best) else self.best
        # The start was not run on the rows that were added when all others were right.
        rows = [row for row in self.rows if row.id in self.start.runs]
        before, after = self.start.mean(rows), ran.mean(rows)
        if after <= before + EQUAL and ran is best:
            best = self.start
        metrics = {
            "start": before,
            "best": max(before, after),
            "rows": float(len(rows)),
            "asked": float(self.asked),
            "useless": float(self.useless),
            "tried": float(len(self.race.known) - 1),
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


def _repeats(text: str) -> int:
    """Blocks of a prompt that stand in it before."""
    own = [bare(block) for block in blocks(text)]
    return len(own) - len(set(own))
