"""The e-mail Env, the rubric and its two rewards."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace

import pytest

from whet.errors import EnvError, InputError
from whet.record.env import check_env, rollout
from whet.record.policy import FunctionPolicy
from whet.types import Outcome, Task
from whet.worlds.email import (
    MailEnv,
    MailWorld,
    Rubric,
    checked,
    derive,
    generate,
    published_reward,
    says_unknown,
    training_reward,
)

FLAGS = [name for name in Rubric.__dataclass_fields__ if name not in ("sources", "turns", "answerable")]


@pytest.fixture(scope="module")
def world() -> MailWorld:
    return MailWorld(generate(5, mailboxes=2, mails=100))


@pytest.fixture(scope="module")
def tasks(world: MailWorld) -> list[Task]:
    return derive(world, mailboxes=world.mailboxes, seed=0)


@pytest.fixture(scope="module")
def answerable(tasks: list[Task]) -> Task:
    return next(
        task
        for task in tasks
        if task.answer and task.meta["kind"] == "phone" and task.meta["tier"] == "exact"
    )


@pytest.fixture(scope="module")
def unanswerable(tasks: list[Task]) -> Task:
    return next(
        task for task in tasks if task.meta["unanswerable"] == "withheld" and task.meta["tier"] == "exact"
    )


def band(rubric: Rubric) -> tuple[float, float]:
    """The published bands, by the order in which the table looks."""
    if rubric.unparseable_call or rubric.bad_tool_name or rubric.bad_tool_arguments:
        return (-2.0, -1.4 + 1e-9)
    if rubric.attempted_answer and not rubric.answer_correct:
        return (-1.0, -0.6 + 1e-9)
    if not rubric.answer_correct or rubric.returned_unknown or rubric.ran_out_of_turns:
        return (0.0, 0.4 + 1e-9)
    return (1.0, 1.5 - 1e-9)


def test_published_reward_is_the_table_over_every_combination() -> None:
    spans: dict[tuple[float, float], list[float]] = {}
    for values in itertools.product((False, True), repeat=len(FLAGS)):
        for sources, turns in ((0, 1), (1, 10), (3, 4)):
            rubric = Rubric(**dict(zip(FLAGS, values, strict=True)), sources=sources, turns=turns)
            low, high = band(rubric)
            reward = published_reward(rubric, 10)
            assert low <= reward <= high
            spans.setdefault((low, high), []).append(reward)
    ordered = [spans[key] for key in sorted(spans)]
    assert len(ordered) == 4
    for worse, better in itertools.pairwise(ordered):
        assert max(worse) < min(better)


@pytest.mark.parametrize(
    ("rubric", "reward"),
    [
        (Rubric(unparseable_call=True), -2 + 0.1),
        (Rubric(bad_tool_name=True, read_invalid_mail=True), -1.9),
        (Rubric(bad_tool_arguments=True, found_right_mail=True), -1.8 + (0.1 + 0.1)),
        (Rubric(attempted_answer=True, found_right_mail=True, read_right_mail=True), -1 + (0.1 + 0.1 + 0.1)),
        (Rubric(returned_unknown=True), 0.1),
        (Rubric(ran_out_of_turns=True, read_invalid_mail=True), 0.0),
        (
            Rubric(answer_correct=True, attempted_answer=True, sources_correct=True, sources=2, turns=4),
            1 + 0.3 + 0.1 / 2 + 0.1 * (1 - 4 / 10),
        ),
        (Rubric(answer_correct=True, attempted_answer=True, turns=10), 1.0),
    ],
)
def test_published_reward_to_the_bit(rubric: Rubric, reward: float) -> None:
    assert published_reward(rubric, 10) == reward


def test_training_reward_pays_for_unknown_only_where_it_is_right() -> None:
    assert training_reward(Rubric(answer_correct=True, attempted_answer=True, turns=5)) == pytest.approx(0.9)
    assert training_reward(Rubric(returned_unknown=True, answerable=False)) == 0.5
    assert training_reward(Rubric(returned_unknown=True, answerable=True)) == -0.2
    assert training_reward(Rubric(attempted_answer=True)) == -1
    assert training_reward(Rubric(ran_out_of_turns=True, turns=10)) == pytest.approx(-0.8)


def test_env_keeps_the_contract(world: MailWorld, answerable: Task) -> None:
    actions = [
        {"tool": "search", "words": ["the"], "match": "any"},
        json.dumps({"tool": "read", "id": answerable.meta["evidence"]}),
        {"tool": "read", "id": "no such mail"},
        {"tool": "answer", "text": answerable.answer, "sources": [answerable.meta["evidence"]]},
    ]
    asyncio.run(check_env(lambda: MailEnv(world), answerable, actions))


def test_right_answer_with_its_source_succeeds(world: MailWorld, answerable: Task) -> None:
    env = MailEnv(world)
    first = env.reset(answerable, 0)
    assert first["question"] == answerable.instruction
    assert "answer" not in json.dumps({name: value for name, value in first.items() if name != "tools"})
    gold = answerable.meta["clues"]
    result = env.step(
        {"tool": "search", "words": [word["text"] for word in gold["words"]], "sender": gold["sender"]}
    )
    assert answerable.meta["evidence"] in [found["id"] for found in result.observation["results"]]
    env.step({"tool": "read", "id": answerable.meta["evidence"]})
    result = env.step(
        {"tool": "answer", "text": f"It is {answerable.answer}.", "sources": [answerable.meta["evidence"]]}
    )
    assert result.terminated
    assert result.info["success"] is True
    assert result.reward == pytest.approx(1 - 0.06)
    rubric = Rubric(**result.info["rubric"])
    assert rubric == Rubric(
        answer_correct=True,
        sources_correct=True,
        attempted_answer=True,
        found_right_mail=True,
        read_right_mail=True,
        sources=1,
        turns=3,
    )
    assert result.info["published_reward"] == published_reward(rubric, 10)


def test_withheld_mail_cannot_be_read_and_unknown_is_right(world: MailWorld, unanswerable: Task) -> None:
    env = MailEnv(world)
    env.reset(unanswerable, 0)
    result = env.step({"tool": "read", "id": unanswerable.meta["mail"]})
    assert "no mail has the id" in result.observation["error"]
    result = env.step({"tool": "unknown"})
    assert result.info["success"] is True
    assert result.info["rubric"]["read_invalid_mail"] is True
    assert result.reward == pytest.approx(0.5 - 0.04)


@pytest.mark.parametrize(
    ("action", "mark"),
    [
        ("no json", "unparseable_call"),
        (["search"], "unparseable_call"),
        ({"words": ["x"]}, "unparseable_call"),
        ({"tool": "delete"}, "bad_tool_name"),
        ({"tool": ["search"]}, "bad_tool_name"),
        ({"tool": "search"}, "bad_tool_arguments"),
        ({"tool": "search", "words": [1]}, "bad_tool_arguments"),
        ({"tool": "search", "words": ["x"], "month": 13}, "bad_tool_arguments"),
        ({"tool": "search", "words": ["x"], "month": True}, "bad_tool_arguments"),
        ({"tool": "search", "words": ["x"], "since": "soon"}, "bad_tool_arguments"),
        ({"tool": "read", "id": "x", "path": "/etc"}, "bad_tool_arguments"),
        ({"tool": "answer", "text": None}, "bad_tool_arguments"),
    ],
)
def test_malformed_calls_end_in_the_rubric_and_never_raise(
    world: MailWorld, unanswerable: Task, action: object, mark: str
) -> None:
    env = MailEnv(world)
    env.reset(unanswerable, 0)
    result = env.step(action)
    assert result.terminated
    assert result.info["success"] is False, "a malformed call is no right unknown"
    assert [
        name
        for name in ("unparseable_call", "bad_tool_name", "bad_tool_arguments")
        if result.info["rubric"][name]
    ] == [mark]
    assert result.info["published_reward"] < -1.4
    assert result.observation["error"]
    with pytest.raises(EnvError):
        env.step({"tool": "unknown"})


def test_running_out_of_turns_truncates(world: MailWorld, answerable: Task) -> None:
    search = {"tool": "search", "words": ["nothing"]}
    trajectory = asyncio.run(
        rollout(MailEnv(world, 3), FunctionPolicy(lambda _seen: search), answerable, seed=0)
    )
    assert len(trajectory.steps) == 3
    assert trajectory.outcome is Outcome.TRUNCATED
    assert trajectory.steps[-1].reward == pytest.approx(-0.66)
    with pytest.raises(InputError):
        MailEnv(world, 0)


def test_no_observation_shows_what_is_to_be_found_out(world: MailWorld, tasks: list[Task]) -> None:
    for task in tasks[:50]:
        env = MailEnv(world)
        shown = json.dumps([env.reset(task, 0), env.step({"tool": "search", "words": ["zzz"]}).observation])
        assert task.meta["fact"] not in shown
        assert task.meta["mail"] not in shown
        assert "wrong" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "I don't know.",
        "I don’t know",
        "unknown",
        "No such mail was found.",
        "Sorry, I could not find it.",
        "not found",
        "There is no answer in the mailbox.",
        "I cannot tell",
        "N/A",
        "",
        None,
    ],
)
def test_unknown_in_any_wording(text: str | None) -> None:
    assert says_unknown(text)


@pytest.mark.parametrize(
    "text", ["713-853-1234", "It is on March 5, 2001.", "Nora Knowles", "Notes on the north plant", "$5"]
)
def test_answers_are_not_unknown(text: str) -> None:
    assert not says_unknown(text)


def test_plain_text_answers_are_judged_by_their_value(answerable: Task, unanswerable: Task) -> None:
    right = checked(
        answerable, f"I'm not sure, but it is {answerable.answer}", [answerable.meta["evidence"]], 3
    )
    assert right.success
    assert right.sources_correct
    assert right.turns == 3
    wrong = checked(answerable, "999-999-9999")
    assert wrong.hallucination
    assert not wrong.success
    assert not checked(answerable, "I don't know").success
    assert checked(unanswerable, "I don't know").success
    assert checked(unanswerable, "713-853-1234").hallucination
    assert replace(wrong, answer_correct=True).hallucination is False
