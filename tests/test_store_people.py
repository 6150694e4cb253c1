"""Sessions and people: feedback at every level, plain SQL, retention, and erasure that says what remains."""

from __future__ import annotations

import itertools
import json
import sqlite3
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from whet.errors import InputError
from whet.record.store import Store
from whet.types import (
    Bundle,
    Failure,
    Fault,
    Feedback,
    Outcome,
    Preference,
    Rollout,
    Span,
    Step,
    Task,
    Trajectory,
    Usage,
    Version,
)

SECRET = "Where does Ann live?"


def asked(name: str, subject: str | None, *, session: str | None = None, **fields: object) -> Trajectory:
    trace = name.encode().hex().ljust(32, "0")
    return Trajectory(
        task=Task(id=f"task-{name}", instruction=SECRET if subject == "ann" else "When?"),
        id=name,
        subject=subject,
        session=session,
        trace_ids=(trace,),
        meta={"run": f"run-{name}"},
        **fields,  # type: ignore[arg-type]
    )


def span(trajectory: Trajectory, number: int = 0, body: bytes = b"") -> Span:
    trace = bytes.fromhex(trajectory.trace_ids[0])
    return Span(
        trace, number.to_bytes(8, "big"), b"", 1, 2, "chat", body or SECRET.encode(), "span", b"c", None
    )


def test_feedback_is_kept_at_the_level_it_was_given(tmp_path: Path) -> None:
    run = asked("a", "ann", session="s")
    step = Feedback(run="a", step="3", value=0.4, kind="rating")
    late = Feedback(run="run-a", correction={"answer": "noon"}, kind="correction", at=1.0)
    better = Feedback(run="a", correction={"chosen": "x", "rejected": "y"}, kind="preference")
    whole = Feedback(session="s", value=-1.0, comment="we gave up")
    with Store(tmp_path / "runs.db") as store:
        store.add_feedback(step, whole)  # before what it is about
        store.put(run)
        store.add_feedback(late, better)
        assert store.trajectory("a").feedback == (step, better, late)
        assert list(store.feedback(session="s")) == [whole]
        assert list(store.trajectories(session="s")) == list(store.trajectories(subject="ann"))
        assert list(store.trajectories(session="other")) == []


def test_messages_and_operations_are_plain_sql(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    told = {
        "model": "m",
        "input_messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}],
    }
    steps = (
        Step(kind="agent", name="root", id="0"),
        Step(kind="llm", name="chat", id="1", parent="0", info=told, usage=Usage(5, 7, 0.1, 1), latency=0.5),
        Step(kind="tool", name="search", id="2", parent="0", error=Failure(Fault.TOOL, "E", "down")),
    )
    with Store(path) as store:
        store.put(asked("talk", "ann", session="s", steps=steps, output="noon", started=10.0, seconds=2.0))
        store.put(asked("plain", None, started=20.0))
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT trajectory, position, role, content, at FROM messages ORDER BY at, position"
    )
    assert rows.fetchall() == [
        ("talk", 0, "system", "Be brief.", 10.0),
        ("talk", 1, "user", "?", 10.0),
        ("talk", 2, "assistant", "noon", 12.0),
        ("plain", 0, "user", "When?", 20.0),
    ]
    rows = connection.execute(
        "SELECT kind, name, parent, model, output_tokens, dollars, seconds, fault, error FROM operations "
        "WHERE session = 's' ORDER BY position"
    )
    assert rows.fetchall() == [
        ("agent", "root", None, None, None, None, None, None, None),
        ("llm", "chat", "0", "m", 7, 0.1, 0.5, None, None),
        ("tool", "search", "0", None, None, None, None, "tool", "down"),
    ]
    connection.close()


def test_labels_are_plain_sql_at_every_level(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.add_feedback(
            Feedback(run="a", value=-1.0, comment="no", at=1.0),
            Feedback(run="a", step="3", kind="rating", value=0.4, at=2.0),
            Feedback(run="a", kind="correction", correction="noon", at=3.0),
            Feedback(run="a", step="1", kind="demonstration", correction=[{"action": "click"}], at=4.0),
            Feedback(run="a", kind="preference", correction={"chosen": "x", "rejected": "y"}, at=5.0),
            Feedback(session="s", value=1.0, at=6.0),
        )
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT level, run, step, session, kind, value, comment, correction, chosen, rejected FROM labels ORDER BY at"
    )
    assert rows.fetchall() == [
        ("trajectory", "a", None, None, "thumb", -1.0, "no", None, None, None),
        ("step", "a", "3", None, "rating", 0.4, "", None, None, None),
        ("trajectory", "a", None, None, "correction", None, "", "noon", None, None),
        ("step", "a", "1", None, "demonstration", None, "", '[{"action":"click"}]', None, None),
        ("trajectory", "a", None, None, "preference", None, "", '{"chosen":"x","rejected":"y"}', "x", "y"),
        ("session", "", None, "s", "thumb", 1.0, "", None, None, None),
    ]
    connection.close()


def test_erasing_a_person_takes_out_all_that_came_from_them_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    ann, unnamed, bob = (
        asked("ann1", "ann", session="s"),
        asked("ann2", None, session="s"),
        asked("bob", "bob"),
    )
    made = Task(id="made", instruction=SECRET, meta={"trajectories": ["ann1"]})
    shared = Task(id="shared", instruction="When?", meta={"trajectories": ["ann1", "bob"]})
    with Store(path) as store:
        store.put(ann, unnamed, bob)
        store.put(replace(ann, outcome=Outcome.SUCCESS), replace=True)
        store.put_tasks(made, shared, ann.task, bob.task)
        store.spans.put(
            [span(ann), span(bob, body=b"bobs"), span(ann)._replace(trace=b"x" * 16, run="run-ann1")]
        ).result()
        store.add_feedback(
            Feedback(run="run-ann1", comment=SECRET),
            Feedback(session="s", comment=SECRET),
            Feedback(run="bob", value=1.0),
        )
        store.put_preferences(
            Preference(prompt="q", chosen=SECRET, rejected="", annotator="ann"),
            Preference(prompt="q", chosen="b", rejected="", annotator="bob"),
        )
        store.queue.add([Rollout(id="r", task=made), Rollout(id="r2", task=shared)]).result()
        found = store.erase("ann")
        assert (found.trajectories, found.revisions, found.spans, found.feedback) == (2, 1, 2, 2)
        assert (found.tasks, found.preferences, found.open_rollouts) == (2, 1, ("r",))
        assert [each.id for each in store.trajectories()] == ["bob"]
        assert [each.id for each in store.tasks()] == ["shared", "task-bob"]
        assert next(store.tasks(ids=["shared"])).meta["trajectories"] == ["bob"]
        assert [each.run for each in store.feedback()] == ["bob"]
        assert len(list(store.preferences())) == 1
        assert store.count("spans") == len(store.spans.trace(span(bob).trace)) == 1
        assert store.queue.get("r").status == "cancelled"
        assert [each.rollout.id for each in store.queue.claim("w", n=9).result()] == ["r2"]
        assert any("tasks were also made from other" in each for each in found.remains)
        assert any("preference pairs" in each for each in found.remains)
        assert store.database.rows("PRAGMA integrity_check") == [("ok",)]
    assert SECRET.encode() not in path.read_bytes()


def test_what_was_erased_does_not_come_back_by_a_late_span_or_a_repeated_write(tmp_path: Path) -> None:
    ann = asked("ann1", "ann")
    with Store(tmp_path / "runs.db") as store:
        store.put(ann)
        store.erase("ann")
    with Store(tmp_path / "runs.db") as store, Store(tmp_path / "runs.db") as client:
        for each in (store, client):
            each.put(ann)
            each.put(ann, replace=True)
            each.spans.put([span(ann, 7), span(ann, 8)._replace(trace=b"y" * 16, run="run-ann1")]).result()
            each.add_feedback(Feedback(run="ann1", comment=SECRET))
        assert store.counts()["trajectories"] == store.counts()["feedback"] == store.count("spans") == 0
        fresh = asked("ann3", "ann")
        store.put(fresh)  # a person may come back
        assert store.trajectory("ann3") == fresh
        assert client.erase("ann").trajectories == 1
        assert store.erase("ann").trajectories == 0


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("call+json", msgspec.json.encode({"api": "chat", "subject": "ann", "request": SECRET})),
        ("span+json", b'{"attributes":[{"key":"user.id","value":{"stringValue":"ann"}}]}'),
        ("span", b"\x4a\x10\x0a\x07user.id\x12\x05\x0a\x03ann"),
    ],
)
def test_spans_that_name_a_person_go_before_any_trajectory_was_read_from_them(
    encoding: str, body: bytes
) -> None:
    other = body.replace(b"ann", b"bob")
    with Store(":memory:") as store:
        for trace, said in ((b"a" * 16, body), (b"b" * 16, other)):
            store.spans.put(
                [
                    Span(trace, b"1" * 8, b"", 1, 2, "chat", said, encoding),
                    Span(trace, b"2" * 8, b"1" * 8, 1, 2, "tool", b"no name here", encoding),
                ]
            ).result()
        assert store.erase("ann").spans == 2
        assert len(store.spans.trace(b"b" * 16)) == 2
        assert store.spans.trace(b"a" * 16) == []


@pytest.mark.parametrize("spaced", [False, True])
def test_json_of_either_kind_names_a_person_in_any_script(spaced: bool) -> None:
    said = [{"key": "user.id", "value": {"stringValue": "Zoë ☃"}}]
    body = json.dumps({"attributes": said}, separators=None if spaced else (",", ":"), ensure_ascii=spaced)
    with Store(":memory:") as store:
        store.spans.put([Span(b"a" * 16, b"1" * 8, b"", 1, 2, "chat", body.encode(), "span+json")]).result()
        assert store.erase("Zoë ☃").spans == 1


def test_what_a_person_sends_while_their_spans_are_searched_for_goes_too(tmp_path: Path) -> None:
    def said(trace: bytes, id: bytes, who: str, encoding: str = "call") -> Span:
        return Span(trace, id * 8, b"", 1, 2, "chat", b'{"subject":"%b"}' % who.encode(), encoding)

    traces = alone, joined, later, shared = [letter * 16 for letter in (b"a", b"b", b"c", b"d")]
    with Store(tmp_path / "runs.db", segment=4) as store:
        before = [said(alone, b"1", "ann"), said(joined, b"1", "ann"), said(shared, b"1", "ann")]
        store.spans.put([*before, said(shared, b"2", "bob")]).result()
        found = store.spans.naming("ann")
        # Bob comes into a trace that was Ann's alone; Ann goes on, in an old trace and in a new one.
        meanwhile = [said(joined, b"2", "bob"), said(alone, b"2", "ann"), said(later, b"1", "ann")]
        store.spans.put([*meanwhile, said(shared, b"3", "ann")]).result()
        assert store._erase("ann", found).spans == 6
        left = {trace: [span.id[:1] for span in store.spans.trace(trace)] for trace in traces}
    assert left == {alone: [], joined: [b"2"], later: [], shared: [b"2"]}


def test_a_version_that_learned_from_an_erased_run_is_marked_and_named(tmp_path: Path) -> None:
    tainted = Version(
        resource="head", content={"w": 1}, kind="head", meta={"data": ["ann1", "bob"], "seed": 3}
    )
    clean = Version(resource="head", content={"w": 2}, kind="head", meta={"data": ["bob"]})
    with Store(tmp_path / "runs.db") as store:
        store.put(asked("ann1", "ann"), asked("bob", "bob"))
        store.put_versions(clean)
        store.set_live(Bundle([tainted]))
        store.set_live(Bundle([clean]), "canary")
        found = store.erase("ann")
        assert (found.versions, found.live) == ((tainted.id,), ("live",))
        meta = store.version(tainted.id).meta
        assert (meta["data"], meta["seed"], meta["erased"]["note"]) == (["bob"], 3, "trained on erased data")
        assert meta["erased"]["trajectories"] == 1
        assert store.version(clean.id) == clean
        assert "live" in " ".join(found.remains)
        with pytest.raises(InputError, match="subject"):
            store.erase("")


def test_retention_takes_out_what_is_old_and_keeps_what_it_was_told_to(tmp_path: Path) -> None:
    old = time.time() - 40 * 86_400
    with Store(tmp_path / "runs.db", segment=3) as store:
        store.put(asked("kept-new", None), *[asked(f"old{n}", None, started=old) for n in range(1_100)])
        store.put(asked("in-experiment", None, started=old), experiment="e")
        store.put(asked("rated", None, started=old), asked("learned", None, started=old))
        store.add_feedback(Feedback(run="rated", value=1.0))
        store.put_versions(Version(resource="head", content=1, meta={"data": ["learned"]}))
        found = store.retain(days=30)
        assert found.trajectories == 1_100
        assert {each.id for each in store.trajectories()} == {"kept-new", "in-experiment", "rated", "learned"}
        assert store.retain(days=30, keep=["lineage"]).trajectories == 2
        assert {each.id for each in store.trajectories()} == {"kept-new", "learned"}
        assert store.counts()["feedback"] == 0
        with pytest.raises(InputError, match="days"):
            store.retain(days=-1)
        with pytest.raises(InputError, match="keep"):
            store.retain(days=1, keep=["everything"])


def test_retention_drops_old_segments_and_spans_go_on(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db", segment=3) as store:
        for number in range(12):
            store.spans.put([span(asked(f"t{number}", None), number)]).result()
        store.queue.add([Rollout(id="r", task=Task(id="t"))]).result()
        (lease,) = store.queue.claim("w").result()
        store.queue.finish("r", lease.fence).result()
        store.queue.add([Rollout(id="waits", task=Task(id="t"))]).result()
        assert store.retain(days=1).spans == 0
        found = store.retain(days=0)
        assert (found.spans, found.rollouts) == (12, 1)
        assert store.count("spans") == 0
        cursor = store.database.rows("SELECT max(last) FROM segments")[0][0]
        store.spans.put([span(asked("t99", None), 99)]).result()
        assert store.spans.touched(cursor)[0].seq > cursor
        assert [each.rollout.id for each in store.queue.claim("w", n=9).result()] == ["waits"]
        assert store.database.rows("PRAGMA integrity_check") == [("ok",)]


def test_reading_goes_on_while_old_segments_are_taken_out(tmp_path: Path) -> None:
    trajectory = asked("one", None)
    with Store(tmp_path / "runs.db", segment=2) as store:
        failures: list[BaseException] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                try:
                    assert len(store.spans.trace(span(trajectory).trace)) <= 60
                    store.spans.touched(0)
                except BaseException as failure:
                    failures.append(failure)
                    return

        reader = threading.Thread(target=read)
        reader.start()
        for turn in range(10):
            store.spans.put([span(trajectory, 6 * turn + n) for n in range(6)]).result()
            store.retain(days=0)
        stop.set()
        reader.join()
        assert failures == []


def test_some_feedback_is_read_without_reading_all_of_it(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        store.add_feedback(*[Feedback(run=f"run-{number}", value=1.0) for number in range(5_000)])
        some, every = [], []
        for count, asked in ((20, some), (5_000, every)):
            tracemalloc.start()
            asked += [*itertools.islice(store.feedback(), count)]
            asked.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert len(every) == 5_001
        assert [noun.run for noun in some[:20]] == [f"run-{number}" for number in range(20)]
        assert some[-1] < every[-1] / 4
