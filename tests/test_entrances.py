"""Each entrance of the record with each consumer: a cell works, or refuses in a sentence.

`docs/entrances.md` is this table, written by `python tests/house_entrances.py` (part of `scripts/reference`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from entrances_consumers import CONSUMERS, Refused, cell, exported, sentence
from entrances_world import ENTRANCES, Runs, enter
from house_entrances import on_the_page
from test_otlp_captures import CAPTURES, captured, expectation

from whet.judge import (
    contains,
    cost,
    env_reward,
    exact,
    fields,
    is_async,
    latency,
    matches,
    name_of,
    number,
    rated,
    score,
    solved,
    thumbs,
)
from whet.learn.plugins import announced, load
from whet.learn.training.capture import check
from whet.record.tracing.dialects import form, survey
from whet.types import Feedback, Trajectory

PLAIN = [exact, contains, number(), matches("sunny"), fields({"a": 1}), solved, env_reward, thumbs, rated]
PLAIN += [latency(), cost()]
PLAIN += [reward for name in announced("whet.rewards") if not is_async(reward := load("whet.rewards", name))]

Entered = Callable[[str], Runs]
Told = Callable[[str, str], str]


@pytest.fixture(scope="session")
def entered(tmp_path_factory: pytest.TempPathFactory) -> Entered:
    """The runs of an entrance, gone in by once."""
    known: dict[str, Runs] = {}

    def runs(name: str) -> Runs:
        if name not in known:
            known[name] = enter(name, tmp_path_factory.mktemp("entrance"))
        return known[name]

    return runs


@pytest.fixture(scope="session")
def told(entered: Entered) -> Told:
    """What a cell says, asked once for both of its tests."""
    known: dict[tuple[str, str], str] = {}

    def says(entrance: str, consumer: str) -> str:
        if (entrance, consumer) not in known:
            known[entrance, consumer] = cell(consumer, entered(entrance))[1]
        return known[entrance, consumer]

    return says


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_cell_works_or_refuses_in_a_sentence(told: Told, entrance: str, consumer: str) -> None:
    assert told(entrance, consumer), "an empty cell"


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_the_page_says_what_the_cells_say(told: Told, entrance: str) -> None:
    written = {consumer: text for (name, consumer), text in on_the_page().items() if name == entrance}
    found = {consumer: told(entrance, consumer) for consumer in CONSUMERS}
    assert written == found, "docs/entrances.md is out of date: run scripts/reference"


@pytest.mark.parametrize("capture", CAPTURES)
def test_what_real_frameworks_sent_is_judged_exported_and_shown_or_refused(data: Path, capture: str) -> None:
    folder = data / "otel"
    spans = captured(folder, expectation(folder, capture)["files"], as_json=False)
    for run in survey(spans).trajectories:
        praised = replace(run, feedback=[Feedback(run=run.id, value=1.0)])
        for reward in PLAIN:
            judged = score(reward, praised)
            assert judged.value is not None or sentence(judged.reason), (name_of(reward), judged)
        for format in ("whet", "published", "trl-sft", "trl-kto", "trl-prompts"):
            made = exported(format, [praised], [], score=None, source="whet")
            assert made.rows or made.left_out, format
        assert form(run)["steps"]
        check(praised)


def test_a_run_whose_fields_were_lost_is_no_working_cell(entered: Entered) -> None:
    """The negative control: what the cells are held to can fail."""
    runs = entered("POST /api/trajectories")

    def mute(run: Trajectory) -> Trajectory:
        return replace(run, steps=[replace(step, action="") for step in run.steps])

    for consumer in ("rows", "show", "export trl-sft", "export published"):
        with pytest.raises(AssertionError):
            cell(consumer, replace(runs, good=mute(runs.good)))
    forgetful = replace(runs.good, steps=runs.good.steps[:2])
    with pytest.raises((AssertionError, Refused)):
        CONSUMERS["replay"](replace(runs, good=forgetful))
    same = replace(runs, good=replace(runs.bad, feedback=()))
    for consumer in ("exact", "matches", "Judge", "thumbs"):
        with pytest.raises(AssertionError):
            cell(consumer, same)
    worked, sentence_of_it = cell("Experiment.improve", same)
    assert not worked, "nobody praised a run, and it learned"
    assert "no trajectory to clone" in sentence_of_it
