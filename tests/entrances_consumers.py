"""Every consumer of the record, as a function of the two runs of `entrances_world`: what came out, or why not.

A consumer returns a short text of what it made of them, after it has held that to what the runs did; it raises
Refused with the product's own sentence.  An AssertionError is a cell that neither works nor refuses.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from entrances_agent import PLAN, PLANS, QUESTION, WEATHER
from entrances_agent import weather as weather_tool
from entrances_world import Runs

from whet.cli.exchange import _made as exported
from whet.cli.named import judged
from whet.errors import WhetError
from whet.judge import (
    Compound,
    Judge,
    Reward,
    ascore,
    contains,
    cost,
    env_reward,
    exact,
    fewer_steps,
    fields,
    latency,
    matches,
    number,
    rated,
    score,
    solved,
    thumbs,
)
from whet.judge.agent_env import calls
from whet.judge.conduct import safe
from whet.judge.replay import UNRECORDED, again
from whet.judge.tool_use import ToolUse
from whet.learn.datasets.recorded import recorded, why_none
from whet.learn.datasets.signatures import read as signature_of
from whet.learn.experiment import Experiment
from whet.learn.optimizers.kto import KTO, KTOOptions
from whet.learn.optimizers.sft import SFT
from whet.learn.plugins import load
from whet.learn.training.capture import require, survey
from whet.learn.training.cloning import choose, succeeded
from whet.learn.training.credit import credit
from whet.learn.training.dataset import grouped
from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.options import SFTOptions
from whet.learn.training.pairs import step_pairs, trajectory_pairs, with_preferences
from whet.models import ScriptedModel
from whet.record.store import Store
from whet.record.store.codec import decode
from whet.record.tasks import tasks
from whet.record.tracing import signals
from whet.record.tracing.dialects import form
from whet.types import Bundle, Feedback, Split, Task, Trajectory

SIZE = ModelOptions(hidden=8, layers=1, heads=1, kv_heads=1, ffn=8, max_length=64)
VOCABULARY = 64


def whole(value: Any) -> Any:
    """What a generator yielded, as one text."""
    pieces = isinstance(value, list) and all(isinstance(piece, str) for piece in value)
    return WHOLE.get("".join(value), "".join(value)) if pieces else value


WHOLE = {text.replace(" ", ""): text for text in WEATHER.values()}


class Refused(Exception):
    """The product's sentence."""


def sentence(text: str) -> Refused:
    """A refusal that a person can act on: some words, and not an exception's name with a traceback in it."""
    assert len(text.split()) >= 5, f"no sentence: {text!r}"
    assert not text.startswith("reward:"), f"the reward broke: {text}"
    assert "could not judge this" not in text, f"says no reason: {text}"
    return Refused(text)


# -- rewards ---------------------------------------------------------------------------------------


def rewarded(reward: Reward, runs: Runs, *, priced: bool = False) -> str:
    """The good run above the bad one; of what prices a run, below 0 on both and not always the same."""
    good, bad = (asyncio.run(ascore(reward, run)) for run in runs.both)
    if good.value is None or bad.value is None:
        assert (good.value, bad.value) == (None, None), f"one is judged and one is not: {good}, {bad}"
        raise sentence(good.reason)
    if priced:
        assert good.value < 0 > bad.value, (good, bad)
        return "priced"
    assert good.value > bad.value, f"does not tell the good run from the bad one: {good}, {bad}"
    return f"{good.value:g} > {bad.value:g}"


def harmless(runs: Runs) -> str:
    """Neither does harm, and the same runs do where what they call is forbidden."""
    assert [score(safe, run).value for run in runs.both] == [1.0, 1.0]
    forbidden = [
        replace(run, task=replace(run.task, meta={"forbidden_calls": ["weather"]})) for run in runs.both
    ]
    values = [score(safe, run).value for run in forbidden]
    assert values in ([0.0, 0.0], [1.0, 1.0]), values
    return "safe" if values == [1.0, 1.0] else "safe, and not with its call forbidden"


def marks(request: Any) -> str:
    """A judge that finds Paris right."""
    asked = str(request.messages[-1]["content"])
    answer = asked.rpartition('"answer":')[2].partition("}")[0]
    return "SCORE: 10" if "Paris" in answer else "SCORE: 2"


REWARDS: dict[str, Callable[[Runs], str]] = {
    "exact": functools.partial(rewarded, exact),
    "contains": functools.partial(rewarded, contains),
    "number": functools.partial(rewarded, number()),
    "matches": functools.partial(rewarded, matches("Paris")),
    "fields": functools.partial(rewarded, fields({"city": "Paris"})),
    "solved": functools.partial(rewarded, solved),
    "env_reward": functools.partial(rewarded, env_reward),
    "thumbs": functools.partial(rewarded, thumbs),
    "rated": functools.partial(rewarded, rated),
    "fewer_steps": functools.partial(rewarded, fewer_steps()),
    "latency": functools.partial(rewarded, latency(), priced=True),
    "cost": functools.partial(rewarded, cost(), priced=True),
    **{
        name: functools.partial(rewarded, load("whet.rewards", name))
        for name in (
            "verbatim",
            "f1",
            "json",
            "schema",
            "format",
            "tool_use",
            "subgoals",
            "intent",
            "no_loops",
        )
    },
    **{
        name: functools.partial(rewarded, load("whet.rewards", name))
        for name in ("turns", "sql", "tests", "goal_state", "implied")
    },
    "safe": harmless,
    "ToolUse": functools.partial(rewarded, ToolUse()),
    "Judge": lambda runs: rewarded(Judge(ScriptedModel(marks), "Which city is warmer?"), runs),
    "Compound": lambda runs: rewarded(Compound({thumbs: 1.0, matches("Paris"): 0.5}), runs),
}


# -- training --------------------------------------------------------------------------------------


def by_thumbs(runs: Runs) -> tuple[list[Trajectory], str]:
    """What `--reward-function whet.judge:thumbs` makes of them."""
    found, score, _ = judged(runs.both, "whet.judge:thumbs")
    return found, score


def capture(runs: Runs) -> str:
    found, score = by_thumbs(runs)
    told = survey(found, score=score)
    if not told.trainable:
        raise sentence("; ".join(told.lines()[1:]))
    assert (told.trainable, told.continuous) == (2, 2), told
    return f"{told.trainable} trainable, one sequence each"


def cloned(runs: Runs) -> str:
    found, score = by_thumbs(runs)
    require(found, score=score, rl=False)
    chosen, _ = choose(grouped(found), lambda run: succeeded(run, score))
    ((_, (_, counts)),) = chosen
    assert counts.calls == 3, counts
    return f"{counts.targets} tokens of the good run"


def paired(runs: Runs) -> str:
    found, score = by_thumbs(runs)
    require(found, score=score, rl=False)
    groups = grouped(found)
    (pair,), _ = with_preferences(trajectory_pairs(groups, score=score), (), None, len(groups))
    assert pair.chosen[0].ids != pair.rejected[0].ids
    steps, _ = step_pairs(groups, score=score)
    assert steps
    return f"1 pair, {len(steps)} of steps"


def thumbed(runs: Runs) -> str:
    require(runs.both, rl=False)
    judged = KTO(KTOOptions(judged_by="thumbs"))._judged(grouped(runs.both))
    assert judged.desirable == [True, False]
    return "1 good, 1 bad"


def credited(assignment: Any, runs: Runs) -> str:
    found, score = by_thumbs(runs)
    require(found, score=score)
    made = credit(grouped(found), score=score, assignment=assignment)
    by_unit = {sequence.unit: sequence.advantages for sequence in made.sequences}
    good, bad = by_unit[0], by_unit[1]
    assert max(good) > 0 > min(bad), (good, bad)
    return f"{max(good):+g} / {min(bad):+g}"


TRAINERS: dict[str, Callable[[Runs], str]] = {
    "capture check": capture,
    "sft": cloned,
    "dpo, reward-model": paired,
    "kto": thumbed,
    "grpo, rloo, reinforce, ppo": functools.partial(credited, "broadcast"),
    "credit to go": functools.partial(credited, "to_go"),
    "credit by agent": functools.partial(credited, "agent"),
}


# -- rows, replay, signals -------------------------------------------------------------------------

SIGNATURE = signature_of(inspect.getsource(inspect.unwrap(weather_tool)).partition("\n")[2], "weather")


def rows(runs: Runs) -> str:
    """What `whet generate-training-data weather --store` takes from the record."""
    found: list[Task] = list(recorded(SIGNATURE, "weather", [runs.good]))
    if not found:
        raise sentence(why_none("weather", runs.both))
    told = {str((SIGNATURE.named(row.initial_state["input"]) or {}).get("city")): row for row in found}
    assert {city: whole(row.meta["output"]) for city, row in told.items()} == WEATHER, found
    assert all(row.meta["label"] == 1.0 for row in found), found
    return f"{len(found)} rows"


def as_tasks(runs: Runs) -> str:
    found = tasks(runs.both, group=lambda run: "one")
    (task,) = found
    assert task.instruction == QUESTION, task
    assert task.meta["feedback_n"] == 2
    corrected = replace(
        runs.bad,
        feedback=(*runs.bad.feedback, Feedback(run=runs.bad.id, kind="correction", correction="Paris")),
    )
    assert tasks([runs.good, corrected], group=lambda run: "one")[0].answer == "Paris"
    return "1 task, 2 runs"


def replayed(runs: Runs) -> str:
    """The good run again: its tools answered from the record."""
    token = PLAN.set(PLANS[0])
    try:
        done = asyncio.run(again(runs.agent, runs.good))
    finally:
        PLAN.reset(token)
    if not done.faithful:
        raise sentence(f"1 run {UNRECORDED}: {done.counts.diverged[0]}")
    assert (done.again.output, done.counts.exact, done.counts.unused) == (PLANS[0].answer, 2, 0), done
    return f"{done.counts.exact} calls as recorded"


def implicit(runs: Runs) -> str:
    """Thanks in the next message speak for the run before it."""
    if (silent := signals.why_silent(runs.good)) is not None:
        assert signals.implicit_feedback(runs.both) == []
        raise sentence(silent)
    follow_up = Trajectory(
        task=Task(instruction="Thank you, that is right."),
        output="You are welcome.",
        session=runs.good.session,
        started=runs.good.started + 60,
    )
    found = signals.implicit_feedback([runs.good, runs.bad, follow_up])
    mine = [one for one in found if one.run == runs.good.id]
    assert [(one.kind, one.value) for one in mine] == [("implicit.praised", 1.0)], found
    return "praised"


def shown(runs: Runs) -> str:
    """`whet show trajectories --json`: question, tools with arguments and results, answer, feedback."""
    told = msgspec.json.encode(form(runs.good)).decode()
    for text in (QUESTION, "Paris", "Oslo", "thumb"):
        assert text in told, f"{text} is lost"
    results = [text in told or text.replace(" ", '","') in told for text in WEATHER.values()]
    if not any(results):
        assert not any(step.kind == "tool" for step in runs.good.steps), told
        return "the answer; no tools"
    assert all(results), told
    found = "all"
    if '"call_0"' in told:
        assert '"call_1"' in told, told
        found += ", call ids"
    if agents := {step.agent for step in runs.good.steps} - {""}:
        assert agents == {"meteo"}
        assert all(step.agent for step in runs.good.steps), runs.good.steps
        found += ", agent"
    return found


# -- export ----------------------------------------------------------------------------------------


def export(format: Any, check: Callable[[list[Any], Runs], str], runs: Runs) -> str:
    made = exported(format, runs.both, [], score=None, source="whet")
    if not made.rows:
        raise sentence("; ".join(f"left out: {reason}" for reason in made.left_out))
    return check(made.rows, runs)


def all_of_it(rows: list[Any], runs: Runs) -> str:
    assert [decode(row, Trajectory) for row in rows] == runs.both
    return "the same again"


def in_the_published_form(rows: list[Any], runs: Runs) -> str:
    good = rows[0]
    assert good["steps"], "an empty run"
    assert whole(good["steps"][-1]["action"]) == PLANS[0].answer, good
    calls = [step["action"] for step in good["steps"][:-1]]
    if not calls:
        return "question and answer"
    assert [call["name"] for call in calls] == ["weather"] * 2, good
    # A decorated function of one argument is recorded with the argument itself.
    assert [call["arguments"] for call in calls] in ([{"city": city} for city in WEATHER], list(WEATHER)), (
        good
    )
    assert [whole(step["obs"]) for step in good["steps"][1:]] == list(WEATHER.values())
    return f"{len(good['steps'])} steps"


def answering(messages: Sequence[Any]) -> str:
    assert "Paris" in str(messages[-1]["content"]), messages
    asked = [call for message in messages for call in message.get("tool_calls", ())]
    results = [message for message in messages if message["role"] == "tool"]
    if not asked:
        return "question and answer"
    assert [call["function"]["arguments"] for call in asked] == [{"city": city} for city in WEATHER]
    # A tool that yields gave its pieces, as JSON.
    pieces = [json.dumps(text.split(), separators=(",", ":")) for text in WEATHER.values()]
    assert [message["content"] for message in results] in (list(WEATHER.values()), pieces), results
    assert [message["tool_call_id"] for message in results] == [call["id"] for call in asked]
    return "with its tools"


def one_good(rows: list[Any], runs: Runs) -> str:
    (row,) = rows
    return answering(row["messages"])


def both_labelled(rows: list[Any], runs: Runs) -> str:
    assert [row["label"] for row in rows] == [True, False]
    return answering([*rows[0]["prompt"], *rows[0]["completion"]])


def one_pair(rows: list[Any], runs: Runs) -> str:
    (row,) = rows
    assert "Oslo" in str(row["rejected"][-1]["content"])
    return answering([*row["prompt"], *row["chosen"]])


def one_prompt(rows: list[Any], runs: Runs) -> str:
    (row,) = rows
    assert row["prompt"][-1]["content"] == QUESTION, row
    return "the question"


EXPORTS: dict[str, Callable[[Runs], str]] = {
    f"export {format}": functools.partial(export, format, check)
    for format, check in {
        "whet": all_of_it,
        "published": in_the_published_form,
        "trl-sft": one_good,
        "trl-kto": both_labelled,
        "trl-dpo": one_pair,
        "trl-prompts": one_prompt,
        "verl": one_prompt,
    }.items()
}

# -- the loop --------------------------------------------------------------------------------------


@functools.cache
def untrained() -> Bundle:
    """Weights that have learned nothing, made once."""
    folder = Path(tempfile.mkdtemp(prefix="whet-entrances-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Bundle([fresh("policy", folder / "start", options=SIZE, vocab_size=VOCABULARY, seed=0)])


async def improved(runs: Runs) -> str:
    """`Experiment.improve` from the record alone: the weights of a policy, from the run that a person praised."""
    with tempfile.TemporaryDirectory() as folder, Store(":memory:") as store:
        store.put(*(replace(run, feedback=()) for run in runs.both))
        store.add_feedback(*(said for run in runs.both for said in run.feedback))
        read = tasks(store.trajectories(), group=lambda run: "one")
        experiment = Experiment(
            env=calls(runs.agent, record=store),
            tasks=[replace(task, split=Split.TRAIN) for task in read],
            rewards=[thumbs],
            store=store,
            folder=folder,
        )
        learner = SFT(SFTOptions(score="thumbs", epochs=1, validation_share=0.0))
        better = await experiment.improve(learner, bundle=untrained())
        assert better.bundle["policy"].id != untrained()["policy"].id
        assert experiment.rollouts == 0, "it learned from the record"
        assert better.metrics[-1]["trajectories"] == 1, "it cloned the run that was praised"
        return "weights from 1 run"


CONSUMERS: dict[str, Callable[[Runs], str]] = {
    **REWARDS,
    **TRAINERS,
    "rows": rows,
    "whet.tasks": as_tasks,
    "replay": replayed,
    "signals": implicit,
    "show": shown,
    **EXPORTS,
    "Experiment.improve": lambda runs: asyncio.run(improved(runs)),
}


def cell(consumer: str, runs: Runs) -> tuple[bool, str]:
    """Whether the consumer works on these runs, and what came out or its sentence.

    Raises:
        AssertionError: neither: a wrong or constant value, a field lost, a refusal without a reason.
    """
    try:
        return True, CONSUMERS[consumer](runs)
    except (Refused, WhetError) as refusal:
        return False, str(refusal)
