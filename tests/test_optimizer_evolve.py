"""Evolve finds a planted optimum, keeps to its budget, resumes exactly, and is not fooled by noise."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import count

import msgspec
import pytest
from evolution_world import (
    BEST,
    RULE_SOURCE,
    START,
    KnobEnv,
    World,
    fit,
    start_bundle,
    success,
    tasks,
    without_score,
)

from whet.errors import NotFoundError, TrainingRefused
from whet.learn.evolution.editing.operators import knobs
from whet.learn.evolution.editing.targets import find
from whet.learn.evolution.search.effects import Effects, Trial, compared
from whet.learn.evolution.search.search_state import (
    Archive,
    Member,
    SearchState,
    clearly_worse,
    paired,
    rungs,
)
from whet.learn.loop import Context, Update, value_of
from whet.learn.loop_checks import check_optimizer
from whet.learn.optimizers.evolve import Evolve, EvolveOptions
from whet.types import Budget, Bundle, Group, Json, Outcome, Score, Task, Trajectory, Version

DOMAINS = {"rule": find(RULE_SOURCE, "RULE").domains}
SMALL = EvolveOptions(generations=3, tasks=24, children=5, parents=3, probe=6)


def evolve(options: EvolveOptions = SMALL, **more: str) -> Evolve:
    return Evolve(("rule",), domains=DOMAINS, options=options, **more)


async def run(
    optimizer: Evolve, world: World, context: Context, bundle: Bundle
) -> tuple[Update, list[Update]]:
    updates = []
    while True:
        update = await optimizer.step(bundle, (), context)
        updates.append(update)
        if update.done:
            return update, updates
        bundle, context.state = update.bundle, update.state


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_planted_optimum_is_recovered_within_a_rollout_budget(seed: int) -> None:
    async def job() -> None:
        world = World(budget=Budget(rollouts=12_000))
        train, validation = tasks(200, seed, "t"), tasks(150, seed + 50, "v")
        context = world.context(train, validation, seed=seed)
        options = EvolveOptions(generations=30)
        update, _ = await run(evolve(options), world, context, start_bundle())
        rule = update.bundle["rule"].content
        gained = sum(fit(key, rule[key]) for key in BEST) - sum(fit(key, START[key]) for key in BEST)
        possible = len(BEST) - sum(fit(key, START[key]) for key in BEST)
        assert gained / possible > 0.75, rule
        held_out = tasks(600, seed + 100, "h")
        before, after = await success(start_bundle(), held_out), await success(update.bundle, held_out)
        assert after > before + 0.35, (before, after)
        assert update.metrics["lift"] > 0.3

    asyncio.run(job())


def test_scores_shuffled_across_candidates_bring_nothing_on_held_out_tasks() -> None:
    async def job(seed: int) -> float:
        luck = random.Random(seed)

        def judge(trajectory: Trajectory, bundle: Bundle) -> Trajectory:
            return trajectory.scored(Score("success", float(luck.random() < 0.5)))

        world = World(judge=judge, budget=Budget(rollouts=2_500))
        context = world.context(tasks(120, seed, "t"), tasks(100, seed + 50, "v"), seed=seed)
        # From a good rule, so that any undirected change is for the worse or indifferent.
        update, _ = await run(evolve(EvolveOptions(generations=10)), world, context, start_bundle(BEST))
        held_out = tasks(400, seed + 100, "h")
        return await success(update.bundle, held_out) - await success(start_bundle(BEST), held_out)

    lifts = [asyncio.run(job(seed)) for seed in range(3)]
    assert max(lifts) <= 0.0, lifts


def test_a_search_that_the_budget_ended_goes_on_with_more_budget() -> None:
    async def job() -> None:
        train = tasks(40, 1, "t")
        world = World()
        whole, _ = await run(evolve(), world, world.context(train, seed=4), start_bundle())
        short = World(budget=Budget(rollouts=world.count * 2 // 3))
        part, _ = await run(evolve(), short, short.context(train, seed=4), start_bundle())
        assert "the budget ends the search" in part.reason
        assert part.metrics["generation"] < 3
        more = World()
        rest, _ = await run(evolve(), more, more.context(train, seed=4, state=part.state), part.bundle)
        assert rest.bundle == whole.bundle
        same = ("generation", "best", "mean", "start", "lift", "duplicates", "candidates")
        assert {key: rest.metrics[key] for key in same} == {key: whole.metrics[key] for key in same}

    asyncio.run(job())


@pytest.mark.parametrize("rollouts", [0, 1, 23, 24, 60, 101, 250])
def test_the_budget_is_never_overshot_and_ends_the_search_with_the_best_so_far(rollouts: int) -> None:
    async def job() -> None:
        world = World(budget=Budget(rollouts=rollouts))
        context = world.context(tasks(30, 1, "t"), tasks(20, 2, "v"), seed=3)
        update, _ = await run(
            evolve(EvolveOptions(generations=50, tasks=24, probe=6)), world, context, start_bundle()
        )
        assert world.count == world.meter.spent["rollouts"] == update.metrics["rollouts"] <= rollouts
        assert update.done
        assert "the budget ends the search" in update.reason
        if rollouts < 24:
            assert update.bundle == start_bundle()

    asyncio.run(job())


def test_the_incumbent_keeps_ties() -> None:
    async def job() -> None:
        world = World(judge=lambda done, bundle: done.scored(Score("success", 0.5)))
        context = world.context(tasks(30, 1, "t"), tasks(20, 2, "v"))
        update, _ = await run(evolve(), world, context, start_bundle())
        assert update.bundle == start_bundle()
        assert "the incumbent stays" in update.reason
        assert update.metrics["lift"] == 0.0

    asyncio.run(job())


def test_missing_scores_are_excluded_and_counted_never_zero() -> None:
    async def job() -> None:
        broken = count()

        def judge(done: Trajectory, bundle: Bundle) -> Trajectory:
            # The judge fails more often on better rules: as zeros this would hide the optimum.
            good = bundle["rule"].content["match"] == "any"
            if good and next(broken) % 2:
                return without_score(done)
            return done.scored(Score("success", 1.0 if good else 0.6))

        world = World(judge=judge)
        options = EvolveOptions(generations=4, tasks=30, probe=10)
        update, _ = await run(evolve(options), world, world.context(tasks(30, 1, "t")), start_bundle())
        assert update.bundle["rule"].content["match"] == "any"
        assert update.metrics["best"] == pytest.approx(1.0)
        assert update.metrics["missing"] > 0

    asyncio.run(job())


def test_no_score_at_all_is_refused_with_what_to_do() -> None:
    world = World(judge=lambda done, bundle: without_score(done))
    with pytest.raises(TrainingRefused, match="has a score 'success'"):
        asyncio.run(evolve().step(start_bundle(), (), world.context(tasks(10, 1, "t"))))
    with pytest.raises(TrainingRefused, match="no training tasks"):
        asyncio.run(evolve().step(start_bundle(), (), World().context([])))
    text = Bundle([Version(resource="rule", content={"said": "free text"})])
    with pytest.raises(TrainingRefused, match="hint"):
        asyncio.run(Evolve(("rule",)).step(text, (), World().context(tasks(10, 1, "t"))))
    with pytest.raises(NotFoundError, match="no parser"):
        asyncio.run(Evolve(("rule", "parser")).step(start_bundle(), (), World().context(tasks(10, 1, "t"))))


def test_duplicates_in_behaviour_cost_only_the_probe() -> None:
    async def job() -> None:
        # Every task needs `match` alone, so whatever else changes is a duplicate.
        needing = [Task(id=f"t{number}", initial_state={"needs": ["match"]}) for number in range(60)]
        world = World()
        options = EvolveOptions(generations=1, children=10, probe=6, crossover=0.0)
        update, _ = await run(evolve(options), world, world.context(needing), start_bundle())
        duplicates = update.metrics["duplicates"]
        proposed = update.metrics["candidates"] - 1
        assert duplicates >= 17
        # The incumbent and at most one finisher run on all tasks; the finisher may not have been probed.
        assert world.count <= 60 + (proposed - 1) * 6 + 60

    asyncio.run(job())


def test_another_bundle_starts_a_new_search() -> None:
    async def job() -> None:
        world = World()
        context = world.context(tasks(30, 1, "t"))
        first = await evolve().step(start_bundle(), (), context)
        context.state = first.state
        other = await evolve().step(start_bundle(BEST), (), context)
        assert other.metrics["generation"] == 1
        assert other.metrics["start"] > first.metrics["start"]

    asyncio.run(job())


def test_the_new_version_says_where_it_comes_from() -> None:
    async def job() -> None:
        world = World()
        context = world.context(tasks(60, 1, "t"), tasks(60, 2, "v"))
        optimizer = evolve(EvolveOptions(generations=4))
        update, updates = await run(optimizer, world, context, start_bundle())
        version = update.bundle["rule"]
        lives = [start_bundle(), *(each.bundle for each in updates)]
        assert version.parent in {live["rule"].id for live in lives} - {version.id}
        assert version.kind == "value"
        assert version.meta["optimizer"] == "evolve"
        assert version.meta["validation_lift"] > 0

    asyncio.run(job())


def test_evolve_keeps_the_optimizer_contract() -> None:
    def context(budget: Budget) -> Context:
        return World(budget=budget).context(tasks(30, 1, "t"), tasks(12, 2, "v"), seed=5)

    asyncio.run(check_optimizer(evolve, start_bundle(), (), context, rounds=3))


def test_every_kind_of_outcome_has_its_value() -> None:
    task = Task(id="t")
    assert value_of(Trajectory(task=task, outcome=Outcome.SUCCESS), "success") == 1.0
    assert value_of(Trajectory(task=task, outcome=Outcome.TIMEOUT), "success") == 0.0
    assert value_of(Trajectory(task=task, outcome=Outcome.UNKNOWN), "success") is None
    failed = Trajectory(
        task=task, outcome=Outcome.INFRASTRUCTURE_ERROR, scores={"success": Score("success", 1.0)}
    )
    assert value_of(failed, "success") is None
    assert value_of(without_score(Trajectory(task=task, outcome=Outcome.SUCCESS)), "success") is None
    assert value_of(Trajectory(task=task, scores={"x": Score("x", float("nan"))}), "x") is None
    assert value_of(Trajectory(task=task), "reward") is None


def test_members_rank_by_paired_differences_and_the_clearly_worse_is_known() -> None:
    def member(name: str, values: list[float | None]) -> Member:
        made = Member({"rule": name})
        for number, value in enumerate(values):
            score = {} if value is None else {"s": Score("s", value)}
            task = Task(id=str(number))
            made.add([Group(task, (Trajectory(task=task, scores=score, output=name),))], "s")
        return made

    hard = [0.0, 0.0, 1.0, 1.0]
    reference = member("reference", hard)
    better = member("better", [0.0, 1.0, 1.0, 1.0])
    unlucky = member("unlucky", [None, None, 1.0, 1.0])  # its mean is the highest, its difference 0
    worse = member("worse", [0.0, 0.0, 0.0, 0.0])
    assert paired(better, reference)[0] == 0.25
    assert paired(unlucky, reference) == (0.0, 0.0, 2)
    keys = ["0", "1", "2", "3"]
    assert not clearly_worse(better, reference, keys)
    assert not clearly_worse(worse, reference, keys)  # two tasks of four: that may be luck
    assert clearly_worse(member("none", [None] * 4), reference, keys)
    assert clearly_worse(member("clearly", [-1.0, -1.0, 0.0, 0.0]), reference, keys)
    archive = Archive()
    archive.admit([reference, unlucky, better, worse], reference, 3)
    assert archive.population == [better.id, *sorted([reference.id, unlucky.id])]
    trials = [Trial((1, 2), 0.5, 0.2, 24, 3)]
    state = SearchState(seed=1, tasks=["a"], validation=[], archive=archive, trials=trials)
    assert SearchState.decode(state.encode()) == state
    older = {**state.encode(), "archive": {"population": [], "seen": [], "members": []}}
    with pytest.raises(msgspec.ValidationError):
        SearchState.decode(older)


def trials_of(worth: Callable[[dict[str, Json]], float], count: int, seed: int, noise: float) -> Effects:
    """The belief after `count` random candidates were tried, ten a generation, with this noise."""
    rng = random.Random(seed)
    places = knobs({"rule": START}, {("rule", *path): domain for path, domain in DOMAINS["rule"].items()})
    plain = Effects(places, {"rule": START})
    trials = []
    for number in range(count):
        candidate = plain.scattered({"rule": START}, rng)
        lift = worth(candidate["rule"]) + rng.gauss(0.0, noise)
        trials.append(Trial(plain.levels(candidate), lift, noise**2 * 24, 24, number // 10))
    return Effects(places, {"rule": START}, trials, generation=count // 10)


def test_effects_find_the_best_setting_of_every_knob_though_no_trial_had_them_all() -> None:
    def worth(rule: dict[str, Json]) -> float:
        return 0.05 * sum(fit(key, rule[key]) for key in BEST)

    found = trials_of(worth, 300, 0, 0.03).expected({"rule": START})["rule"]
    assert sum(fit(key, found[key]) for key in BEST) > 0.9 * len(BEST), found
    # The control: with as much noise and nothing to find, the choice is no better than chance.
    chance = [
        sum(fit(key, value[key]) for key in BEST)
        for seed in range(20)
        for value in [trials_of(lambda rule: 0.0, 300, seed, 0.03).expected({"rule": START})["rule"]]
    ]
    assert sum(chance) / len(chance) < 0.6 * len(BEST)


def test_draws_close_in_on_what_is_known_and_stay_wide_on_what_is_not() -> None:
    effects = trials_of(lambda rule: 0.3 * (rule["match"] == "any"), 100, 1, 0.05)
    rng = random.Random(2)
    drawn = [effects.drawn({"rule": START}, rng)["rule"] for _ in range(60)]
    assert {each["match"] for each in drawn} == {"any"}
    assert {each["order"] for each in drawn} == {"rank", "date", "size"}
    assert {each["strict"] for each in drawn} == {True, False}


def test_a_lift_is_over_the_others_on_the_same_task_and_missing_scores_are_left_out() -> None:
    lifts = compared(
        [{"easy": 1.0, "hard": 1.0}, {"easy": 1.0, "hard": 0.0}, {"easy": 1.0, "hard": None}, {}]
    )
    assert [lift and lift[0] for lift in lifts] == [0.25, -0.25, 0.0, None]
    assert [lift and lift[2] for lift in lifts] == [2, 2, 1, None]


def test_rungs_grow_to_the_whole_set() -> None:
    assert rungs(100, 12, 3) == [12, 36, 100]
    assert rungs(5, 12, 3) == [5]
    assert rungs(40, 16, 3) == [16, 40]


def test_the_world_itself_has_its_optimum_where_it_was_planted() -> None:
    train = tasks(100, 0, "t")
    assert asyncio.run(success(start_bundle(BEST), train)) > 0.85
    assert asyncio.run(success(start_bundle(), train)) < 0.5
    assert KnobEnv().reset(train[0], 0) == train[0].initial_state["needs"]
