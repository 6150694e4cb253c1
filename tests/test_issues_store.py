"""Issues in the record: what was seen is written anew, where they stand is a log that nothing overwrites."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from whet.errors import ConflictError, InputError, NotFoundError
from whet.record.store import AgentIssue, Component, IssueStatus

SEEN = AgentIssue(
    id="stock",
    name="The tool stock fails",
    component=Component.TOOL,
    resource="stock",
    runs=[f"run-{number}" for number in range(30)],
    affected=30,
    where={"tool": "stock"},
    reason="first seen",
)


def test_an_issue_goes_its_way_and_the_log_keeps_every_reason():
    with whet.Store(":memory:") as store:
        store.issues.put(SEEN)
        for status, reason in (
            ("diagnosed", "the tool's calls end in errors"),
            ("proposed", "three variants"),
            ("proving", "the gate has 400 pairs"),
            ("shipped", "proven"),
            ("reopened", "it fails again"),
        ):
            assert store.issues.move("stock", status, reason=reason).reason == reason
        moves = store.issues.history("stock")
        assert [move.number for move in moves] == [1, 2, 3, 4, 5, 6]
        assert [str(move.status) for move in moves][-2:] == ["shipped", "reopened"]
        assert store.issues.read(IssueStatus.REOPENED)[0].id == "stock"
        assert store.issues.read("open", "closed") == []
        assert len(store.issues.get("stock").runs) == 20


def test_seeing_an_issue_again_moves_nothing():
    with whet.Store(":memory:") as store:
        store.issues.put(SEEN)
        store.issues.move("stock", "closed", reason="the shop closed")
        store.issues.put(replace(SEEN, affected=40, status=IssueStatus.OPEN))
        issue = store.issues.get("stock")
        assert (issue.affected, issue.status, issue.reason) == (40, IssueStatus.CLOSED, "the shop closed")
        assert len(store.issues.history("stock")) == 2


def test_what_does_not_follow_is_refused():
    with whet.Store(":memory:") as store:
        with pytest.raises(NotFoundError, match="whet issues lists"):
            store.issues.move("stock", "closed", reason="no reason")
        with pytest.raises(InputError, match="open or closed"):
            store.issues.put(replace(SEEN, status=IssueStatus.SHIPPED))
        store.issues.put(SEEN)
        with pytest.raises(InputError, match="can become diagnosed, proposed, closed, not shipped"):
            store.issues.move("stock", "shipped", reason="it is live")
        with pytest.raises(InputError, match="for a reason"):
            store.issues.move("stock", "closed", reason=" ")
        with pytest.raises(InputError, match="an issue is open, diagnosed"):
            store.issues.move("stock", "solved", reason="done")
        with pytest.raises(ConflictError, match="first seen"):
            store.issues.move("stock", "closed", reason="done", after=IssueStatus.DIAGNOSED)


def _move(path: str, status: str, outcomes: "multiprocessing.Queue[str]") -> None:
    with whet.Store(path) as store:
        try:
            store.issues.move("stock", status, reason=f"by {status}", after=IssueStatus.OPEN)
            outcomes.put("moved")
        except ConflictError:
            outcomes.put("conflict")


def test_of_two_processes_that_move_one_issue_one_is_told_what_the_other_did(tmp_path: Path):
    path = str(tmp_path / "runs.db")
    context = multiprocessing.get_context("spawn")
    outcomes = context.Queue()
    with whet.Store(path) as store:
        store.issues.put(SEEN)
        movers = [
            context.Process(target=_move, args=(path, status, outcomes)) for status in ("diagnosed", "closed")
        ]
        for mover in movers:
            mover.start()
        told = sorted(outcomes.get(timeout=120) for _ in movers)
        for mover in movers:
            mover.join(90)
        assert told == ["conflict", "moved"]
        assert len(store.issues.history("stock")) == 2
    with whet.Store(path) as store:
        assert store.issues.get("stock").status in (IssueStatus.DIAGNOSED, IssueStatus.CLOSED)
