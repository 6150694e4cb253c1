"""How examples were learned, where a fifth of the labels is wrong: what `whet refine` reads off that.

The tables are those of the line `data`.  A small network of whet's own, from random weights, is fitted to one by SFT,
and what became of each row is read from the record, as `whet refine --store` does; then it is fitted again, to what is
left.  In the other trial it was fitted to a fifth of the questions, rightly labelled, and tries the others by GRPO,
eight times each for ten rounds.  In the third a reward model, and DPO, learn from pairs of a label and another one, a
fifth of which is the wrong way round.  The control gives each row the history of another.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from false_win_data import SETS, Pairs, absent, found, planted, shares
from newcomers_shell import Noted

import whet
from whet.learn.datasets.dynamics import Histories, doubtful, example_of_pair, recorded
from whet.learn.datasets.refining import Refinement, refine
from whet.learn.optimizers.dpo import DPO
from whet.learn.optimizers.grpo import GRPO
from whet.learn.optimizers.reward_model import RewardModel
from whet.learn.optimizers.sft import SFT
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.optim import OptimOptions
from whet.learn.training.options import DPOOptions, GRPOOptions, RewardModelOptions, SFTOptions
from whet.learn.training.vocabulary import Vocabulary
from whet.record.env import StepResult
from whet.record.policy import Action
from whet.record.rows import row
from whet.record.store import Store
from whet.types import Bundle, Group, Outcome, Preference, Split, Step, Task, Tokens, Trajectory

SEEDS = 3
EPOCHS, ROUNDS, GROUP = 6, 10, 8
_RARE = "<rare>"


def measure(data: Path, folder: Path) -> list[Noted]:
    """Both sets fitted, and the databases tried, over the seeds."""
    torch.set_num_threads(1)
    noted = []
    for name in SETS:
        if gone := absent(name, data):
            noted.append(gone)
            continue
        noted.append(_fitted(name, data, folder / name))
        if name == "databases":
            noted.append(_tried(name, data, folder / f"{name}-tried"))
            noted += [_compared(method, name, data, folder / f"{name}-{method}") for method in COMPARING]
    return noted


class World:
    """A network, its vocabulary, and an environment that asks for the label of a text."""

    def __init__(self, rows: Sequence[Task], folder: Path, seed: int) -> None:
        self.folder, self.seed, self.models = folder, seed, LocalModels()
        folder.mkdir(parents=True, exist_ok=True)
        counts = Counter(word for task in rows for word in _words(task))
        labels = sorted({str(task.answer) for task in rows})
        self.words = Vocabulary(
            [
                *(word for word, count in counts.items() if count > 1),
                _RARE,
                *(f"={label}" for label in labels),
            ]
        )
        self.known = {word for word, count in counts.items() if count > 1}
        self.start = Bundle(
            [fresh("policy", folder / "start", options=ModelOptions(), vocab_size=len(self.words), seed=seed)]
        )

    def ids(self, task: Task) -> list[int]:
        """A text, as the policy is asked."""
        words = [word if word in self.known else _RARE for word in _words(task)]
        return [self.words.bos, *self.words.encode(words[:100]), self.words.act]

    def demonstration(self, task: Task) -> Trajectory:
        """A row as a run that answered with its label."""
        label = self.words.encode([f"={task.answer}"])
        step = Step(tokens=Tokens(tuple(self.ids(task)), tuple(label), (0.0,)))
        return Trajectory(task=task, steps=[step], output=task.answer, outcome=Outcome.SUCCESS)

    def experiment(
        self,
        tasks: Sequence[Task],
        store: Store | None,
        name: str,
        preferences: Sequence[Preference] | None = None,
    ) -> whet.Experiment:
        """Over these tasks, all to learn from."""
        return whet.Experiment(
            env=Asked,
            tasks=[replace(task, split=Split.TRAIN) for task in tasks],
            rewards=[],
            policy=lambda bundle, seed: Answering(self, bundle, seed),
            seed=self.seed,
            store=store,
            name=name,
            folder=self.folder / name,
            preferences=preferences,
        )

    def cloned(self, rows: Sequence[Task], store: Store | None, name: str) -> Bundle:
        """The network, fitted to these rows."""
        options = SFTOptions(
            epochs=EPOCHS,
            batch=32,
            validation_share=0,
            optim=OptimOptions(learning_rate=3e-3),
            seed=self.seed,
        )
        groups = [Group(task, [self.demonstration(task)]) for task in rows]
        learner = SFT(options, models=self.models)
        experiment = self.experiment(rows, store, name)
        return asyncio.run(experiment.improve(learner, bundle=self.start, groups=groups)).bundle

    def right(self, bundle: Bundle, pairs: Pairs) -> float:
        """Share of these that the network labels rightly, by its likeliest word."""
        tasks = [row(text, expected=label) for text, label in pairs]
        sampler = self.models.sampler(bundle["policy"], greedy=True)

        async def answered(number: int, task: Task) -> bool:
            session = sampler.session(number)
            said = await session.generate(self.ids(task), stop_id=None, max_new_tokens=1)
            return self.words.tokens[said.output_ids[0]] == f"={task.answer}"

        async def every() -> list[bool]:
            return await asyncio.gather(*(answered(*numbered) for numbered in enumerate(tasks)))

        return fmean(asyncio.run(every()))


class Asked:
    """Asks for the label of a text, once."""

    def reset(self, task: Task, seed: int) -> Task:
        self._answer = str(task.answer)
        return task

    def step(self, action: str) -> StepResult:
        right = action == self._answer
        return StepResult(None, float(right), True, False, {"success": right})


class Answering:
    """The network as a policy."""

    def __init__(self, world: World, bundle: Bundle, seed: int) -> None:
        self._world = world
        self._session = world.models.sampler(bundle["policy"], temperature=1.0).session(seed)

    async def act(self, task: Task) -> Action:
        said = await self._session.generate(self._world.ids(task), stop_id=None, max_new_tokens=1)
        label = self._world.words.tokens[said.output_ids[0]].removeprefix("=")
        return Action(label, said.tokens, said.usage)


def _words(task: Task) -> list[str]:
    return re.findall(r"[a-z]+|\d|[^\w\s]", str(task.initial_state["input"]).lower())


def _table(name: str, data: Path, seed: int, wrong: float) -> tuple[list[Task], frozenset[int], Pairs]:
    """Rows without copies, the places of wrong labels, and rows that were never touched."""
    table = planted(SETS[name](data, seed), seed, wrong=wrong)
    kept = [place for place in range(len(table.rows)) if place not in table.twice]
    places = {place: number for number, place in enumerate(kept)}
    return (
        [table.rows[place] for place in kept],
        frozenset(places[place] for place in table.wrong),
        table.clean,
    )


def _by_histories(rows: Sequence[Task], histories: Histories, seed: int) -> Refinement:
    return refine(rows, histories=histories, leave_out=("doubtful",), seed=seed)


def _exchanged(histories: Histories, seed: int) -> Histories:
    """Each row with the history of another."""
    names = sorted(histories)
    others = random.Random(f"exchanged:{seed}").sample(names, len(names))
    return {name: histories[other] for name, other in zip(names, others, strict=True)}


def _fitted(name: str, data: Path, folder: Path) -> Noted:
    told: list[tuple[float, float]] = []
    control, base, clean, gains, by_chance = [], [], [], [], []
    for seed in range(SEEDS):
        rows, wrong, untouched = _table(name, data, seed, 0.2)
        world = World(rows, folder / str(seed), seed)
        with Store(":memory:") as store:
            raw = world.right(world.cloned(rows, store, "raw"), untouched)
            histories = recorded(store)
        doubted = found(_by_histories(rows, histories, seed), "doubtful")
        told.append(shares(doubted, wrong))
        base.append(len(wrong) / len(rows))
        control.append(
            shares(found(_by_histories(rows, _exchanged(histories, seed), seed), "doubtful"), wrong)[0]
        )
        left = [task for place, task in enumerate(rows) if place not in doubted]
        fewer = random.Random(seed).sample(rows, len(left))
        gains.append(world.right(world.cloned(left, None, "left"), untouched) - raw)
        by_chance.append(world.right(world.cloned(fewer, None, "fewer"), untouched) - raw)
        rows, _, _ = _table(name, data, seed, 0.0)
        world = World(rows, folder / f"{seed}-clean", seed)
        with Store(":memory:") as store:
            world.cloned(rows, store, "clean")
            refined = _by_histories(rows, recorded(store), seed)
        clean.append(len(found(refined, "doubtful")) / len(rows))
    figures = _figures(told, base, control)
    figures |= {
        "doubted where none is wrong": f"{fmean(clean):.3f}",
        "accuracy, fitted to what is left − to all": f"{fmean(gains):+.3f}",
        "to as many less by chance − to all": f"{fmean(by_chance):+.3f}",
    }
    lines = _bars(told, base, control)
    lines["fitted to what is left it learns more than with as many less by chance"] = fmean(gains) > fmean(
        by_chance
    )
    return Noted(f"{name}, fitted by SFT", figures=figures, lines=lines)


def _compared(method: str, name: str, data: Path, folder: Path) -> Noted:
    """Pairs of the right label and another one, a fifth of them the wrong way round."""
    told: list[tuple[float, float]] = []
    control, base, clean = [], [], []
    for seed in range(SEEDS):
        rows, _, _ = _table(name, data, seed, 0.0)
        for share in (0.2, 0.0):
            world = World(rows, folder / f"{seed}-{share}", seed)
            turned, preferences = _pairs(world, rows, seed, share)
            with Store(":memory:") as store:
                experiment = world.experiment(rows, store, "compared", preferences=preferences)
                learner = COMPARING[method](world)
                asyncio.run(experiment.improve(learner, bundle=world.start, groups=[]))
                known = recorded(store)
            own = [known[preference.example] for preference in preferences]
            doubted = set(doubtful(own))
            if not share:
                clean.append(len(doubted) / len(own))
                continue
            told.append(shares(doubted, turned))
            base.append(len(turned) / len(own))
            others = random.Random(f"exchanged:{seed}").sample(own, len(own))
            control.append(shares(set(doubtful(others)), turned)[0])
    figures = _figures(told, base, control) | {"doubted where none is wrong": f"{fmean(clean):.3f}"}
    return Noted(f"{name}, pairs by {method}", figures=figures, lines=_bars(told, base, control))


def _pairs(
    world: World, rows: Sequence[Task], seed: int, share: float
) -> tuple[frozenset[int], list[Preference]]:
    drawn = random.Random(f"pairs:{seed}")
    labels = sorted({str(task.answer) for task in rows})
    turned, preferences = set(), []
    for place, task in enumerate(rows):
        sides = [str(task.answer), drawn.choice([label for label in labels if label != task.answer])]
        if drawn.random() < share:
            turned.add(place)
            sides.reverse()
        chosen, rejected = (world.words.encode([f"={side}"]) for side in sides)
        # With its place: the same text may stand in two rows.
        example = example_of_pair(f"{place} {task.initial_state['input']}", *sides)
        preferences.append(
            Preference(prompt=world.ids(task), chosen=chosen, rejected=rejected, example=example)
        )
    return frozenset(turned), preferences


COMPARING: dict[str, Callable[[World], Any]] = {
    "reward model": lambda world: RewardModel(
        RewardModelOptions(epochs=EPOCHS, batch=32, validation_share=0, seed=world.seed), models=world.models
    ),
    "DPO": lambda world: DPO(
        DPOOptions(epochs=EPOCHS, batch=32, validation_share=0, seed=world.seed), models=world.models
    ),
}


def _tried(name: str, data: Path, folder: Path) -> Noted:
    told: list[tuple[float, float]] = []
    control, base, unsolvable, corrected, success = [], [], [], [], []
    for seed in range(SEEDS):
        rows, wrong, untouched = _table(name, data, seed, 0.2)
        right = dict(SETS[name](data, seed))
        world = World(rows, folder / str(seed), seed)
        known = [row(text, expected=label) for text, label in untouched]
        begin = world.cloned(
            [task for task in known if f"={task.answer}" in world.words.tokens], None, "begin"
        )
        with Store(":memory:") as store:
            experiment = world.experiment(rows, store, "tried")
            experiment.baseline = {"success": 0.2}
            options = GRPOOptions(
                steps=ROUNDS, group_size=GROUP, optim=OptimOptions(learning_rate=5e-3), seed=seed
            )
            improvement = asyncio.run(
                experiment.improve(GRPO(options, models=world.models), bundle=begin, rounds=ROUNDS)
            )
            histories = recorded(store)
        refined = _by_histories(rows, histories, seed)
        doubts: list[Any] = [doubt for doubt in refined.doubts if doubt.kind == "doubtful"]
        told.append(shares({doubt.row for doubt in doubts}, wrong))
        unsolvable.append(shares(found(refined, "unsolvable"), wrong)[0])
        instead = [right[str(rows[doubt.row].initial_state["input"])] == doubt.instead for doubt in doubts]
        corrected.append(fmean(instead) if instead else 0.0)
        base.append(len(wrong) / len(rows))
        control.append(
            shares(found(_by_histories(rows, _exchanged(histories, seed), seed), "doubtful"), wrong)[0]
        )
        success += [f"{improvement.metrics[0]['success']:.2f} → {improvement.metrics[-1]['success']:.2f}"]
    figures = _figures(told, base, control)
    figures |= {
        "the other answer is right": f"{fmean(corrected):.2f}",
        "of those never right": f"{fmean(unsolvable):.2f}",
        "success": ", ".join(success),
    }
    return Noted(f"{name}, tried by GRPO", figures=figures, lines=_bars(told, base, control))


def _figures(
    told: Sequence[tuple[float, float]], base: Sequence[float], control: Sequence[float]
) -> dict[str, str]:
    precision, recall = (fmean(column) for column in zip(*told, strict=True))
    return {
        "of the doubted, wrong": f"{precision:.2f}",
        "of the wrong, doubted": f"{recall:.2f}",
        "of all, wrong": f"{fmean(base):.2f}",
        "of the doubted by other rows' histories, wrong": f"{fmean(control):.2f}",
    }


def _bars(
    told: Sequence[tuple[float, float]], base: Sequence[float], control: Sequence[float]
) -> dict[str, bool]:
    precision = fmean(one for one, _ in told)
    return {
        "the doubted are wrong more than twice as often as others": precision > 2 * fmean(base),
        "histories of other rows find no more than chance": fmean(control) < fmean(base) + 0.1,
    }
