"""`whet issues`: what fails more than the rest is found, what only looks so is not, and closed issues come back."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from issues_world import ARTICLES, QUESTIONS, START, runs
from server_world import world

import whet
from whet.cli import app
from whet.record.store import Component, IssueStatus
from whet.serve import Role
from whet.ship.issues import find_issues, standing
from whet.ship.issues.marks import RunMark
from whet.ship.issues.scanning import scan
from whet.ship.issues.standing_whole import slice_as, whole_of
from whet.types import Failure, Fault, Outcome, Step, Trajectory

NOW = START + 86_400 * 30


def test_a_part_of_the_traffic_that_people_dislike_is_an_issue_and_nothing_else_is() -> None:
    with whet.Store(":memory:") as store:
        store.put(*runs(0))
        (issue,) = standing(find_issues(store, now=NOW))
        assert (issue.where, issue.measure) == ({"tool": "stock"}, "people")
        assert issue.rate > 0.8
        assert issue.usual < 0.2
        assert issue.people > 10
        assert {run.steps[1].name for run in store.trajectories(ids=issue.runs)} == {"stock"}
        assert issue.component in (Component.TOOL, Component.PROMPT)
        assert issue.certainty < 0.6, "thumbs alone do not tell a wrong tool from a prompt that lacks a rule"


_BILLS = {
    "due": "How long may I wait with the bill of the {}?",
    "total": "How much does the bill of the {} come to?",
    "parts": "Does the bill of the {} go in thirds, and what is each?",
    "fee": "Each month, what do I give for the {}?",
}
"""Topics with a tool each, whose questions share their words."""


def _bills(seed: int, bad: dict[str, float]) -> list[Trajectory]:
    """Questions on bills beside others, and the share of each topic's answers that people find bad."""
    asked, draw, made = {**_BILLS, **QUESTIONS}, random.Random(seed), []
    for run in runs(seed, count=1_000, broken=""):
        tool = draw.choice(sorted(asked))
        value = -1.0 if draw.random() < bad.get(tool, 0.1) else 1.0
        made.append(
            replace(
                run,
                task=replace(run.task, instruction=asked[tool].format(draw.choice(ARTICLES))),
                steps=[run.steps[0], replace(run.steps[1], name=tool)],
                feedback=[replace(note, value=value) for note in run.feedback],
            )
        )
    return made


@pytest.mark.parametrize("bad", [{"due": 0.9, "total": 0.75, "parts": 0.9, "fee": 0.9}, {"due": 0.9}, {}])
@pytest.mark.parametrize("seed", range(2))
def test_no_issue_is_of_two_faults_whose_questions_share_words(seed: int, bad: dict[str, float]) -> None:
    with whet.Store(":memory:") as store:
        store.put(*_bills(seed, bad))
        found = standing(find_issues(store, now=NOW))
        tools = [{run.steps[1].name for run in store.trajectories(ids=issue.runs)} for issue in found]
    assert {frozenset(each) for each in tools} == {frozenset((tool,)) for tool in bad}
    assert len(bad) > 1 or len(found) == len(bad)


@pytest.mark.parametrize("seed", range(3))
def test_where_thumbs_stand_on_other_peoples_runs_nothing_is_found(seed: int) -> None:
    with whet.Store(":memory:") as store:
        store.put(*runs(seed, shuffled=True))
        assert find_issues(store, now=NOW) == []


def test_people_who_like_nothing_are_no_issue() -> None:
    with whet.Store(":memory:") as store:
        store.put(*runs(1, broken="", grumpy=4))
        assert find_issues(store, now=NOW) == []


def test_what_a_change_has_shown_stands_over_what_a_trace_suggests_until_it_comes_back() -> None:
    with whet.Store(":memory:") as store:
        store.put(*runs(0))
        (issue,) = standing(find_issues(store, now=NOW))
        shown = "with desk.UNITS alone changed, 60 points more of the answers were liked"
        store.issues.put(
            replace(issue, component=Component.DATA, resource="desk.UNITS", certainty=0.95, shown=shown)
        )
        (again,) = standing(find_issues(store, now=NOW))
        assert (again.component, again.resource, again.certainty) == (Component.DATA, "desk.UNITS", 0.95)
        assert again.because[0] == shown
        for status in (IssueStatus.DIAGNOSED, IssueStatus.CLOSED, IssueStatus.REOPENED):
            store.issues.move(issue.id, status, reason="it is another fault")
        (back,) = standing(find_issues(store, now=NOW))
        assert back.component in (Component.TOOL, Component.PROMPT)
        assert not back.shown


def test_errors_of_a_tool_are_put_down_to_it_or_to_a_value_or_to_what_it_stands_on() -> None:
    def failing(run: Trajectory, error: str) -> Trajectory:
        call = replace(run.steps[1], error=Failure(Fault.TOOL, "Error", error), action=None)
        return replace(run, feedback=(), steps=[run.steps[0], call])

    def look(broken: dict[str, str]) -> tuple[Component, str]:
        with whet.Store(":memory:") as store:
            for run in runs(2, broken=""):
                name, article = run.steps[1].name, run.steps[1].observation["article"]
                error = broken.get(name) or broken.get(f"{name} {article}")
                store.put(failing(run, error) if error else replace(run, feedback=()))
            (issue,) = standing(find_issues(store, now=NOW))
            assert issue.status is IssueStatus.DIAGNOSED
            return issue.component, issue.resource

    assert look({"price": "KeyError: 'amount'"}) == (Component.TOOL, "price")
    assert look({"price": "503 Service Unavailable"}) == (Component.UPSTREAM, "price")
    rows = {
        "price hose": "could not convert string to float",
        "price lamp": "could not convert string to float",
    }
    assert look(rows) == (Component.DATA, "price")
    # One issue, whatever value the error quotes: of all calls, or of those with some values.
    missing = {f"price {article}": f"KeyError: '{article}'" for article in ARTICLES}
    assert look(missing) == (Component.TOOL, "price")
    some = {f"price {article}": f"KeyError: '{article}'" for article in ARTICLES[:4]}
    assert look(some) == (Component.DATA, "price")


def test_errors_that_quote_what_is_missing_are_told_apart_where_they_are_few() -> None:
    with whet.Store(":memory:") as store:
        for run in runs(2, broken=""):
            lacks = {"hose": "sum", "lamp": "Lindau"}.get(run.steps[1].observation["article"])
            call = replace(run.steps[1], error=Failure(Fault.TOOL, "KeyError", f"'{lacks}'"), action=None)
            broken = lacks and run.steps[1].name == "price"
            store.put(replace(run, feedback=(), steps=[run.steps[0], call]) if broken else run)
        names = {issue.name for issue in standing(find_issues(store, now=NOW))}
        assert names == {
            f"Calls of price that end in KeyError: '{key}': tools fail" for key in ("sum", "Lindau")
        }


def test_an_outage_that_is_over_is_closed_at_once_and_says_so() -> None:
    with whet.Store(":memory:") as store:
        for run in runs(3, broken=""):
            down = START + 86_400 * 4 < run.started < START + 86_400 * 4.6
            call = replace(run.steps[1], action="Error: 503 Service Unavailable")
            out = down and call.name in ("price", "order")
            store.put(replace(run, feedback=(), steps=[run.steps[0], call]) if out else run)
        issues = find_issues(store, now=NOW)
        assert issues
        assert {(issue.component, issue.status) for issue in issues} == {
            (Component.UPSTREAM, IssueStatus.CLOSED)
        }
        assert "nothing to repair" in issues[0].reason
        assert standing(issues) == []


@pytest.mark.parametrize("otherwise", [False, True])
def test_a_part_of_an_issue_that_stands_is_that_issue_unless_something_else_goes_wrong_there(
    otherwise: bool,
) -> None:
    with whet.Store(":memory:") as store:
        for run in runs(6, broken="price"):
            hose = "hose" in run.task.instruction and run.steps[1].name == "price"
            store.put(replace(run, output="We will call you back about that.") if otherwise and hose else run)
        (issue,) = standing(find_issues(store, now=NOW))
        assert issue.where == {"tool": "price"}
        table = scan(store.trajectories()).table
        mark = RunMark("tool argument", "price article=hose")
        part = slice_as(table, replace(issue, where={mark.kind: mark.value}, marks=(str(mark),)))
        assert part.rate > 0.8
        assert whole_of(store, table, part, [issue]) == (None if otherwise else issue)
        closed = replace(issue, status=IssueStatus.SHIPPED)
        assert whole_of(store, table, part, [closed]) is None, "what is repaired has no parts that fail"


def test_another_look_keeps_the_ids_and_a_closed_issue_comes_back_only_by_runs_since() -> None:
    with whet.Store(":memory:") as store:
        store.put(*runs(4))
        (first,) = standing(find_issues(store, now=NOW))
        assert [issue.id for issue in find_issues(store, now=NOW)] == [first.id]
        store.issues.move(first.id, "closed", reason="stock counts again", at=START + 86_400 * 11)
        assert standing(find_issues(store, now=NOW)) == []
        later = START + 86_400 * 12
        store.put(*runs(4, broken="", label="well", start=later))
        assert standing(find_issues(store, now=NOW)) == []
        store.put(*runs(4, label="again", start=later + 86_400 * 12))
        store.issues.move(first.id, "reopened", reason="tried by hand", at=later + 86_400 * 11)
        store.issues.move(first.id, "closed", reason="no, it is well", at=later + 86_400 * 11)
        (again,) = standing(find_issues(store, now=NOW + 86_400 * 30))
        assert (again.id, again.status) == (first.id, IssueStatus.REOPENED)
        assert "it is back" in again.reason


def test_what_comes_back_after_a_long_good_time_is_not_lost_among_all_runs_since() -> None:
    def record(store: whet.Store, seed: int, day: int, *, broken: bool) -> None:
        for run in runs(seed, broken="", label=f"day {day}", start=START + 86_400 * day):
            call = run.steps[1]
            if broken and call.name == "price":
                error = Failure(Fault.TOOL, "Error", "KeyError: 'amount'")
                run = replace(run, steps=[run.steps[0], replace(call, error=error, action=None)])
            store.put(replace(run, feedback=()))

    with whet.Store(":memory:") as store:
        record(store, 4, 0, broken=True)
        (first,) = standing(find_issues(store, now=NOW))
        store.issues.move(first.id, "closed", reason="price counts again", at=START + 86_400 * 11)
        for time in range(1, 5):
            record(store, 4 + time, 12 * time, broken=False)
        find_issues(store, now=NOW)
        assert store.issues.get(first.id).status is IssueStatus.CLOSED
        record(store, 9, 60, broken=True)
        # Of a record that has grown the runs of its first days are looked at no more.
        find_issues(store, now=NOW + 86_400 * 60, since=START + 86_400 * 11)
        again = store.issues.get(first.id)
        assert again.status is IssueStatus.REOPENED
        assert "of the newest" in again.reason


def test_a_shipped_issue_is_closed_once_enough_runs_show_that_it_is_repaired() -> None:
    with whet.Store(":memory:") as store:
        store.put(*runs(5))
        (issue,) = standing(find_issues(store, now=NOW))
        for status in ("proposed", "proving", "shipped"):
            store.issues.move(issue.id, status, reason=status, at=START + 86_400 * 11)
        find_issues(store, now=NOW)
        assert store.issues.get(issue.id).status is IssueStatus.SHIPPED
        store.put(*runs(5, broken="", label="after", start=START + 86_400 * 12))
        find_issues(store, now=NOW)
        closed = store.issues.get(issue.id)
        assert (closed.status, "repaired" in closed.reason) == (IssueStatus.CLOSED, True)


@pytest.mark.parametrize("seed", range(2))
def test_phrasings_of_what_was_repaired_are_no_new_issues(seed: int) -> None:
    asked = (
        "Is the {} in stock?",
        "How many of the {} are on the shelf?",
        "Have you got a {} left?",
        "Any {} there?",
    )

    def phrased(made: Iterator[Trajectory], phrasings: Sequence[str]) -> Iterator[Trajectory]:
        for number, run in enumerate(made):
            own = run.steps[1].name == "stock"
            text = phrasings[number % len(phrasings)].format(ARTICLES[number % 5])
            yield replace(run, task=replace(run.task, instruction=text)) if own else run

    with whet.Store(":memory:") as store:
        store.put(*phrased(runs(seed), asked))
        known = {issue.id for issue in standing(find_issues(store, now=NOW))}
        for id in known:
            for status in ("proposed", "proving", "shipped"):
                store.issues.move(id, status, reason=status, at=START + 86_400 * 11)
        good = runs(seed, count=1_800, broken="", label="after", start=START + 86_400 * 12)
        store.put(*phrased(good, asked[:2]))
        assert {each.id for each in find_issues(store, now=NOW)} == known
        # What goes wrong since is an issue all the same.
        store.put(*phrased(runs(seed, label="later", start=START + 86_400 * 24), asked[2:]))
        assert standing(find_issues(store, now=NOW))


def test_runs_without_people_or_thumbs_are_told_by_their_outcomes_and_guardrails() -> None:
    with whet.Store(":memory:") as store:
        for run in runs(6):
            bare = replace(run, subject=None, session=None, feedback=())
            failed = run.steps[1].name == "manual"
            blocked = run.steps[1].name == "price" and run.task.instruction == "What does the rake cost?"
            outcome = Outcome.BLOCKED if blocked else Outcome.FAILURE if failed else Outcome.SUCCESS
            store.put(replace(bare, outcome=outcome))
        by_measure = {issue.measure: issue for issue in standing(find_issues(store, now=NOW))}
        assert set(by_measure) == {"judged", "blocked"}
        assert by_measure["judged"].where == {"tool": "manual"}
        assert any("rake" in mark for mark in by_measure["blocked"].marks)


def test_a_jump_in_time_is_an_issue_and_a_tool_that_was_always_slow_is_none() -> None:
    with whet.Store(":memory:") as store:
        for run in runs(7, broken=""):
            late = run.started > START + 86_400 * 5
            # Of the questions to one tool some take ten times as much as others, from the first day on.
            dear = run.steps[1].name == "stock" and run.steps[1].observation["article"] == "hose"
            usual = 9.0 if run.steps[1].name == "manual" else 10.0 if dear else 1.0
            seconds = 8 * usual if late and run.steps[1].name == "order" else usual
            store.put(replace(run, feedback=(), seconds=seconds))
        (issue,) = standing(find_issues(store, now=NOW))
        assert issue.measure == "seconds"
        assert issue.where == {"tool": "order"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("told", ["since day 6", "at any time", "nothing, but other words"])
def test_what_gets_worse_everywhere_at_once_is_an_issue_of_that_moment(seed: int, told: str) -> None:
    draw = random.Random(f"worse {seed}")
    moment = START + 86_400 * 6

    def turned(run: Trajectory) -> Trajectory:
        if told == "nothing, but other words":
            other = replace(run.task, id="", instruction=f"Kindly inform me: {run.task.instruction}")
            return replace(run, task=other) if run.started >= moment else run
        worse = run.started >= moment if told == "since day 6" else draw.random() < 0.4
        if worse and draw.random() < 0.6:
            return replace(run, feedback=[replace(note, value=-1.0) for note in run.feedback])
        return run

    with whet.Store(":memory:") as store:
        store.put(*map(turned, runs(seed, broken="")))
        issues = standing(find_issues(store, now=NOW))
        if told != "since day 6":
            assert issues == []
            return
        (issue,) = issues
        assert abs(datetime.fromisoformat(issue.where["since"]).timestamp() - moment) < 86_400
        assert issue.name.startswith("Runs since 2026-")
        assert "thumbs drifted" in issue.because[0]
        store.put(
            *map(turned, runs(seed, broken="", label="later", start=START + 86_400 * 10, days=2.0, count=200))
        )
        assert [each.id for each in standing(find_issues(store, now=NOW))] == [issue.id], (
            "the same, once more"
        )


def test_a_hostile_record_is_read_and_its_text_stays_text() -> None:
    hostile = "\x1b[31m<script>alert(1)</script> " + "x" * 5_000
    with whet.Store(":memory:") as store:
        for run in runs(8):
            tool = replace(run.steps[1], name=hostile if run.steps[1].name == "stock" else run.steps[1].name)
            loop = Step(kind="function", name="f", id="3", parent="3", action=hostile)
            store.put(replace(run, steps=[run.steps[0], tool, loop], output={"deep": [hostile]}))
        (issue,) = standing(find_issues(store, now=NOW))
        assert len(issue.name) < 400


def test_the_command_lists_shows_closes_and_says_that_there_is_no_defect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with whet.Store(path) as store:
        store.put(*runs(9))
    assert app(["issues", "--store", str(path), "--json"], result_action="return_value") == 1
    (issue,) = json.loads(capsys.readouterr().out)["issues"]
    assert app(["issues", "show", issue["id"], "--store", str(path)], result_action="return_value") == 0
    assert "because" in capsys.readouterr().out
    close = ["issues", "close", issue["id"], "--store", str(path), "--reason", "known"]
    assert app(close, result_action="return_value") == 0
    capsys.readouterr()
    assert app(["issues", "--store", str(path)], result_action="return_value") == 0
    said = capsys.readouterr().out
    assert "no defect" in said
    assert "a second)" in said


def test_the_server_looks_lists_and_moves(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db") as here:
        here.store.put(*runs(10))
        (issue,) = here.post("/api/issues", {}, Role.ADMIN)["issues"]
        assert here.get("/api/issues?status=open")["issues"][0]["id"] == issue["id"]
        moved = here.post(f"/api/issues/{issue['id']}", {"status": "closed", "reason": "known"}, Role.ADMIN)
        assert moved["history"][-1]["reason"] == "known"
        assert here.get(f"/api/issues/{issue['id']}")["issue"]["status"] == "closed"
        assert here.get("/api/issues?status=open")["issues"] == []
