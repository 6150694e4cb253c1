"""Reverse actions: tried on a copy before the call; consent where they fail; and an undo log that takes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import InputError, PermissionDenied
from whet.record.permissions.person import PermissionRequest
from whet.record.permissions.reversing import UndoLog
from whet.record.permissions.rules import PermissionRule, Permissions
from whet.record.policy import FunctionPolicy

WORLD: ContextVar[dict[str, str]] = ContextVar("world")
ALL = PermissionRule(decision="allow", reason="all of it")


def unput(result: str | None, key: str, value: str) -> None:
    if result is None:
        del WORLD.get()[key]
    else:
        WORLD.get()[key] = result


@whet.step(kind="tool", reverse=unput)
def put(key: str, value: str) -> str | None:
    before = WORLD.get().get(key)
    WORLD.get()[key] = value
    return before


def wrong(result: str, key: str) -> None:
    WORLD.get()[key] = "something"


@whet.step(kind="tool", reverse=wrong)
def drop(key: str) -> str:
    return WORLD.get().pop(key)


@whet.step(kind="tool")
def send(key: str) -> str:
    WORLD.get()["sent"] = key
    return "sent"


@contextmanager
def copied() -> Iterator[Callable[[], Any]]:
    token = WORLD.set(dict(WORLD.get()))
    try:
        yield lambda: dict(WORLD.get())
    finally:
        WORLD.reset(token)


@pytest.fixture
def world() -> Iterator[dict[str, str]]:
    state = {"a": "1", "b": "2"}
    token = WORLD.set(state)
    yield state
    WORLD.reset(token)


def test_a_reverse_that_brings_a_copy_back_lets_the_call_through(world: dict[str, str]) -> None:
    with whet.permissions(Permissions(rules=[ALL], irreversible="deny"), copy=copied):
        assert put("a", "9") == "1"
        assert put("c", "9") is None

    assert world == {"a": "9", "b": "2", "c": "9"}


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: drop("a"), "on a copy its reverse does not bring the state back"),
        (lambda: send("a"), "it declares no reverse"),
        (lambda: drop("nothing"), "trying it on a copy failed: KeyError"),
    ],
)
def test_a_wrong_reverse_is_found_on_the_copy_and_nothing_is_done(
    world: dict[str, str], call: Callable[[], Any], why: str
) -> None:
    rules = Permissions(rules=[ALL], irreversible="deny")
    with whet.permissions(rules, copy=copied), pytest.raises(PermissionDenied, match=why):
        call()

    assert world == {"a": "1", "b": "2"}


def test_a_person_consents_to_what_cannot_be_taken_back(world: dict[str, str]) -> None:
    asked: list[str] = []

    def consent(request: PermissionRequest) -> bool:
        asked.append(request.decision.reason)
        return True

    with whet.permissions(Permissions(rules=[ALL], irreversible="ask"), ask=consent, copy=copied):
        send("a")
        put("a", "9")

    assert world["sent"] == "a"
    assert len(asked) == 1
    assert "irreversible: it declares no reverse" in asked[0]


def test_without_a_copy_every_write_needs_consent_and_a_read_does_not(world: dict[str, str]) -> None:
    @whet.step(kind="tool", effect="read")
    def get(key: str) -> str:
        return WORLD.get()[key]

    with whet.permissions(Permissions(rules=[ALL], irreversible="ask")):
        assert get("a") == "1"
        with pytest.raises(PermissionDenied, match="no copy of the world"):
            put("a", "9")


def test_the_undo_log_takes_back_whatever_was_done(world: dict[str, str], tmp_path: Path) -> None:
    for seed in range(20):
        rng, before = random.Random(seed), dict(world)
        log = tmp_path / f"{seed}.jsonl"
        with whet.permissions(Permissions(rules=[ALL]), undo=log):
            for _ in range(25):
                put(rng.choice("abcdef"), str(rng.randrange(100)))
        assert len(UndoLog(log).entries()) == 25

        UndoLog(log).undo(5)
        with log.open("ab") as file:
            file.write(b'{"id": "cut o')  # as a crash leaves it
        assert len(UndoLog(log).undo()) == 20

        assert world == before
        assert UndoLog(log).entries() == []


def test_an_unknown_reverse_takes_nothing_back_and_says_what_to_do(tmp_path: Path) -> None:
    log = UndoLog(tmp_path / "undo.jsonl")
    log.add("elsewhere", {"key": "a"}, None)

    with pytest.raises(InputError, match="import the module that marks it"):
        log.undo()

    assert len(log.entries()) == 1


class Shelf:
    """An environment of a counter that can be raised, lowered, and broken."""

    def reset(self, task: whet.Task, seed: int) -> int:
        self.state, self.broken = 0, False
        return 0

    def step(self, action: Any) -> whet.StepResult:
        name = action["name"]
        self.state += {"up": 1, "down": -1}.get(name, 0)
        self.broken = self.broken or name == "break"
        return whet.StepResult(self.state, terminated=name == "stop", info={"success": True})

    def snapshot(self) -> tuple[int, bool]:
        return self.state, self.broken

    def restore(self, saved: tuple[int, bool]) -> None:
        self.state, self.broken = saved

    def reverse(self, action: Any) -> list[Any] | None:
        back = {"up": "down", "down": "up", "break": "down"}.get(action["name"])
        return [] if back is None else [{"name": back, "arguments": {}}]


@pytest.mark.parametrize(
    ("names", "states", "outcome"),
    [("up up down stop", [1, 2, 1, 1], "success"), ("up break", [1], "blocked")],
)
def test_an_environments_actions_are_tried_on_its_snapshot(
    names: str, states: list[int], outcome: str
) -> None:
    shelf, left = Shelf(), [{"name": name, "arguments": {}} for name in names.split()]
    policy = FunctionPolicy(lambda _observation: left.pop(0))

    with whet.permissions(Permissions(rules=[ALL], irreversible="deny")):
        episode = asyncio.run(whet.rollout(shelf, policy, whet.Task(instruction="x"), seed=0))

    assert str(episode.outcome) == outcome
    assert shelf.state == states[-1]
    assert shelf.broken is False
