"""An evaluator is fitted again when preferences arrive, and replaced only by a better one."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from whet.errors import InputError
from whet.judge.generation import Folder
from whet.judge.refit import Refit, refit
from whet.types import Preference

TOPICS = "invoice parcel password garden harbour violin teacher winter bridge market".split()  # noqa: SIM905


def preferences(count: int, seed: int = 0) -> list[Preference]:
    """People who like short answers without an apology; what they are about differs."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        topic, other = rng.sample(TOPICS, 2)
        plain = f"The {topic} number {number} is ready beside the {other} at {rng.randint(1, 12)} today."
        long = (
            f"Sorry! Unfortunately I really cannot be entirely certain, but thanks for asking! {plain} " * 2
        )
        made.append(Preference(prompt=f"Where is {topic} {number}?", chosen=plain, rejected=long))
    return made


def fitted(folder: Folder, given: list[Preference]) -> Refit:
    return asyncio.run(refit(folder, given, name="desk"))


def test_it_agrees_with_preferences_held_back_and_every_fit_is_a_new_version(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    first = fitted(folder, preferences(60))
    assert first.taken, first.reason
    assert first.before == 0.5
    assert first.after >= 0.8
    assert first.held + first.fitted == 60
    assert first.made.parent is None
    assert [each.name for each in folder.admitted()] == ["desk_preference"]
    # People change their minds: the same file, another version, whose parent is the one before.
    turned = [replace(each, chosen=each.rejected, rejected=each.chosen) for each in preferences(60, seed=1)]
    second = fitted(folder, turned)
    assert second.before < 0.5 < second.after
    known = msgspec.json.decode((tmp_path / "proofs.json").read_bytes())["desk_preference"]
    assert second.taken, second.reason
    assert known["parent"] == folder_version(first)
    assert known["version"] == folder_version(second)


def folder_version(found: Refit) -> str:
    assert found.made.proof is not None
    return found.made.proof.version


def test_shuffled_preferences_are_agreed_with_by_chance_and_not_taken(tmp_path: Path) -> None:
    rng = random.Random(5)
    shuffled = [
        each if rng.random() < 0.5 else replace(each, chosen=each.rejected, rejected=each.chosen)
        for each in preferences(80)
    ]
    found = fitted(Folder(tmp_path), shuffled)
    assert not found.taken
    assert 0.25 <= found.after <= 0.75
    assert not list(tmp_path.glob("*.py"))


def test_too_few_preferences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="20 are needed"):
        fitted(Folder(tmp_path), preferences(10))
