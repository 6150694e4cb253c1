"""`whet report`: what runs came to and what they cost, added up and as a person reads it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from commands import command
from commands import whet as whet_command

import whet
from whet.cli import app
from whet.errors import InputError, NotFoundError
from whet.models.prices import bundled, known_prices, price_for, read_prices
from whet.models.spending import Price
from whet.prove.report import relative_errors, report
from whet.record.costs import dollars_of
from whet.types import Failure, Fault, Outcome, Score, Step, Usage

PRICES = {"small": Price(prompt=1.0, output=10.0)}


def run(number: int, *, outcome: Outcome, version: str = "a", model: str = "small") -> whet.Trajectory:
    """An agent's run: a model call, a tool, a model call."""
    call = Step(kind="llm", usage=Usage(1_000, 100, calls=1), info={"model": model}, id="1")
    tool = Step(kind="tool", name="search", id="2")
    failed = Failure(Fault.TOOL, "Timeout", "no answer") if outcome is Outcome.FAILURE else None
    return whet.Trajectory(
        task=whet.Task(instruction=str(number)),
        steps=[call, tool, call],
        outcome=outcome,
        error=failed,
        versions={"prompt": version},
        seconds=float(number + 1),
        started=1_000.0 + number,
        scores={"near": Score("near", None if number % 4 == 3 else number % 2)},
    )


def runs(successes: int, failures: int, unknown: int = 0, version: str = "a") -> list[whet.Trajectory]:
    outcomes = [Outcome.SUCCESS] * successes + [Outcome.FAILURE] * failures + [Outcome.UNKNOWN] * unknown
    return [run(number, outcome=outcome, version=version) for number, outcome in enumerate(outcomes)]


def test_runs_are_added_up() -> None:
    added = report([*runs(12, 4, 3), run(0, outcome=Outcome.INFRASTRUCTURE_ERROR)], PRICES)
    assert (added.runs, added.judged, added.successes, added.rate) == (20, 16, 12, 0.75)
    low, high = added.interval
    assert 0.5 < low < 0.75 < high < 0.9
    assert (added.steps, added.model_calls, added.tool_calls) == (3.0, 40, 20)
    assert (added.prompt_tokens, added.output_tokens) == (40_000, 4_000)
    assert added.per_success(added.tool_calls) == pytest.approx(20 / 12)
    assert added.faults == {"tool": 4}
    assert added.dollars == pytest.approx(0.04 + 0.04)
    assert added.per_thousand == pytest.approx(4.0)
    assert added.scores["near"].n == 16
    assert added.scores["near"].missing == 4


def test_the_percentiles_are_times_that_were_observed() -> None:
    assert report(runs(3, 0)).seconds == (2.0, 3.0)
    assert report(runs(100, 0)).seconds == (50.0, 95.0)
    assert report([]).seconds is None


def test_calls_that_do_not_say_their_tokens_cost_an_unknown_amount_and_not_nothing() -> None:
    silent = Step(kind="llm", action="yes", info={"model": "small"}, id="1")
    refused = Step(kind="llm", error=Failure(Fault.MODEL, "RateLimit", "later"), id="2")
    quiet = whet.Trajectory(task=whet.Task(instruction="?"), steps=[silent, refused], outcome=Outcome.SUCCESS)
    added = report([quiet], PRICES)
    assert (added.uncounted, added.dollars, added.per_thousand) == (1, None, None)
    mixed = report([quiet, *runs(1, 0)], PRICES)
    assert (mixed.uncounted, mixed.prompt_tokens, mixed.dollars) == (1, 2_000, None)
    # What the run says of all its calls together is as good; a run without a model costs nothing.
    whole = Step(kind="agent", usage=Usage(1_000, 100), info={"model": "small"}, id="0")
    told = whet.Trajectory(task=whet.Task(instruction="?"), steps=[whole, silent])
    assert report([told], PRICES).uncounted == 0
    assert report([whet.Trajectory(task=whet.Task(instruction="?"))], PRICES).dollars == 0.0


def test_a_report_says_of_how_many_calls_the_tokens_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = Step(kind="llm", action="yes", info={"model": "small"}, id="1")
    quiet = whet.Trajectory(task=whet.Task(instruction="?"), steps=[silent], outcome=Outcome.SUCCESS)
    with whet.Store(tmp_path / "runs.db") as store:
        store.put(quiet)
    said = " ".join(command(capsys, "report", "--store", tmp_path / "runs.db").stdout.split())
    assert "tokens in unknown" in said
    assert "dollars per 1,000 runs unknown" in said
    assert "1 model call of 1" in said


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--score", "rewrad"),
        ("issues", "--score", "rewrad"),
        ("tasks", "collect", "--score", "rewrad", "--output", "tasks.jsonl"),
        ("export", "trl-sft", "--score", "rewrad", "--output", "rows.jsonl"),
    ],
    ids=["report", "issues", "tasks collect", "export"],
)
def test_the_name_of_a_score_that_no_run_has_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    """A slip of the pen said that nothing was judged, or that there is no defect."""
    with whet.Store(tmp_path / "runs.db") as store:
        store.put(*runs(3, 3))
    refused = whet_command(*words, "--store", "runs.db", folder=tmp_path)
    assert refused.returncode == 2
    assert "has a score 'rewrad'; their scores are near" in refused.stderr
    right = [word.replace("rewrad", "near") for word in words]
    assert whet_command(*right, "--store", "runs.db", folder=tmp_path).returncode in (0, 1)


def test_nothing_judged_is_unknown_and_not_zero() -> None:
    added = report(runs(0, 0, 5))
    assert added.rate is None
    assert added.interval == (0.0, 1.0)
    assert added.per_success(10) is None


def test_a_model_without_a_price_is_named_and_costs_nothing_that_is_made_up() -> None:
    added = report([run(0, outcome=Outcome.SUCCESS, model="large")], PRICES)
    assert added.dollars is None
    assert added.unpriced == ("large",)
    recorded = whet.Trajectory(
        task=whet.Task(instruction="x"), steps=[Step(kind="llm", usage=Usage(10, 1, dollars=0.5))]
    )
    assert dollars_of(recorded, {}) == (0.5, set()), "what the gateway has written down stays"


def test_usage_of_an_agent_around_its_calls_is_not_paid_twice() -> None:
    agent = Step(kind="agent", id="a", usage=Usage(2_000, 200), info={"model": "small"})
    call = Step(kind="llm", id="b", parent="a", usage=Usage(1_000, 100), info={"model": "small"})
    both = whet.Trajectory(task=whet.Task(instruction="x"), steps=[agent, call])
    assert dollars_of(both, PRICES)[0] == pytest.approx(0.002)
    alone = whet.Trajectory(task=whet.Task(instruction="x"), steps=[agent])
    assert dollars_of(alone, PRICES)[0] == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("model", "priced"),
    [
        ("small", True),
        ("small-2026-01-01", True),
        ("small:fine", True),
        ("openai/small", True),
        ("smaller", False),
        ("small-audio", False),
    ],
)
def test_a_dated_model_has_the_price_of_its_name(model: str, priced: bool) -> None:
    assert (price_for(model, PRICES) is not None) is priced


def test_public_prices_are_bundled_with_their_date_and_source() -> None:
    table = bundled()
    assert table.stated.startswith("2026-")
    assert "list prices" in table.source
    assert len(table.prices) > 100
    assert all(price.output >= price.prompt * 0.5 > 0 for price in table.prices.values())
    assert (
        price_for("gpt-4o-mini-2024-07-18", table.prices)
        == price_for("gpt-4o-mini", table.prices)
        is not None
    )
    assert price_for("gpt-4o-mini-audio-preview", table.prices) is None
    assert price_for("my-own-model", table.prices) is None


def test_a_persons_own_prices_go_before_the_public_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, given = tmp_path / "own.json", tmp_path / "given.json"
    own.write_text('{"gpt-4o-mini": {"prompt": 1, "output": 2}, "local": {"prompt": 0, "output": 0}}')
    given.write_text('{"gpt-4o-mini": {"prompt": 3, "output": 4}}')
    monkeypatch.setenv("WHET_PRICES", str(own))
    assert price_for("gpt-4o-mini", known_prices()) == Price(prompt=1, output=2)
    assert price_for("gpt-4o-mini", known_prices(given)) == Price(prompt=3, output=4)
    # A model that costs nothing is known to, which is another thing than one whose price nobody knows.
    assert dollars_of(run(0, outcome=Outcome.SUCCESS, model="local"), known_prices()) == (0.0, set())
    assert dollars_of(run(0, outcome=Outcome.SUCCESS, model="nobody's"), known_prices()) == (
        0.0,
        {"nobody's"},
    )


def test_cached_prompt_tokens_have_their_own_price() -> None:
    step = Step(kind="llm", usage=Usage(1_000, 0), info={"model": "m", "usage": {"cached_input": 400}})
    called = whet.Trajectory(task=whet.Task(instruction="x"), steps=[step])
    prices = {"m": Price(prompt=10, output=1, cached=1)}
    assert dollars_of(called, prices)[0] == pytest.approx((600 * 10 + 400 * 1) / 1e6)


def test_the_change_of_the_error_rate_has_an_interval_that_shrinks_with_runs() -> None:
    change = relative_errors(report(runs(80, 20)), report(runs(60, 40)))
    assert change is not None
    assert change[0] == pytest.approx(-0.5)
    assert change[1][0] < -0.5 < change[1][1] < 0
    more = relative_errors(report(runs(800, 200)), report(runs(600, 400)))
    assert more is not None
    assert more[1][1] - more[1][0] < (change[1][1] - change[1][0]) / 2
    assert relative_errors(report(runs(10, 0)), report(runs(60, 40))) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "not a price table"),
        (b'{"m": {"prompt": 1}}', "not a price table"),
        (b'{"m": {"prompt": -1, "output": 1}}', "below 0"),
        (b"[" * 5_000, "not a price table"),
        (b"\xff", "not a price table"),
    ],
)
def test_what_is_no_price_table_is_refused_with_its_form(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_prices(file)
    with pytest.raises(NotFoundError):
        read_prices(tmp_path / "none.json")


def test_a_person_reads_two_versions_side_by_side(tmp_path: Path) -> None:
    with whet.Store(tmp_path / "runs.db") as store:
        store.put(*runs(80, 20, version="new"), *runs(60, 40, version="old"))
        first = next(iter(store.trajectories()))
        store.add_feedback(whet.Feedback(run=first.id, value=-1.0))
    (tmp_path / "prices.json").write_text('{"small": {"prompt": 1, "output": 10}}')
    words = ("report", "--store", "runs.db", "--version", "prompt=new", "--versus", "old")
    shown = whet_command(*words, "--prices", "prices.json", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "80.0% [71.1%, 86.7%]" in shown.stdout
    assert "60.0% [50.2%, 69.1%]" in shown.stdout
    assert "0 up, 1 down [0%, 79%] up" in shown.stdout
    assert "$4.0000" in shown.stdout
    assert "errors: -50% [-68%, -21%] against old" in shown.stdout
    told = json.loads(whet_command(*words, "--json", folder=tmp_path).stdout)
    assert told["report"]["runs"] == told["versus"]["runs"] == 100
    assert math.isclose(told["relative_errors"]["change"], -0.5)


def test_what_no_run_fits_says_what_to_do(tmp_path: Path) -> None:
    with whet.Store(tmp_path / "runs.db") as store:
        store.put(*runs(2, 1))
    nothing = whet_command("report", "--store", "runs.db", "--version", "z", folder=tmp_path)
    assert nothing.returncode != 0
    assert "whet show versions" in nothing.stderr
    none = whet_command("report", "--store", "runs.db", "--session", "z", folder=tmp_path)
    assert "omit --since" in none.stderr


def test_what_a_search_tried_is_no_run_of_the_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "runs.db"
    with whet.Store(record) as store:
        store.put(*runs(0, 9), experiment="evolve/gate")
    command = ["report", "--store", str(record)]
    app(command, result_action="return_value")
    searched = capsys.readouterr().out
    assert "0 of 9" in searched or "0.0%" in searched, "a record of a search alone is reported"
    assert "left out" not in searched
    with whet.Store(record) as store:
        store.put(*runs(6, 2))
    app(command, result_action="return_value")
    served = capsys.readouterr().out
    assert "75.0%" in served
    assert "9 runs of experiments left out (evolve/gate); --experiment NAME reports on one" in served
    app([*command, "--experiment", "evolve/gate"], result_action="return_value")
    assert "0.0%" in capsys.readouterr().out
