"""A trace that arrives whole is a Trajectory in the commit of its spans, and no other is lost on the way."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import otlp_fuzzer
import pytest
from commands import command
from otlp_spans import TRACE, call, decoded, named, one, request
from processes import until
from server_world import World, bearer, world

from whet.record.store import Store
from whet.record.tracing.arrivals import ArrivalFeed
from whet.record.tracing.assemble import Assembler
from whet.record.tracing.dialects import trajectory_id
from whet.record.tracing.otlp import decode, run_trace
from whet.record.tracing.whole import is_whole, read_whole
from whet.serve import Role, durable
from whet.types import Span, Trajectory

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
ROOT = one("invoke_agent a", AGENT, lasts=9)
FIRST = one("chat 1", CHAT, parent="invoke_agent a", at=1)
SECOND = one("chat 2", CHAT, parent="invoke_agent a", at=3)
ID = trajectory_id(TRACE, None)
NEVER = 3600.0


def send(
    here: World, *spans: dict[str, Any], packed: bool = False, path: str = "/v1/traces", **more: Any
) -> Any:
    body = request(*spans, **more)
    headers = {**bearer(Role.WRITE), "content-type": "application/json"}
    if packed:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    answered = here.http.post(path, content=body, headers=headers)
    assert answered.status_code == 200, answered.text
    return answered


def names(trajectory: Trajectory) -> list[str]:
    return [step.name for step in trajectory.steps]


@contextmanager
def assembling(store: Store, **more: Any) -> Iterator[Assembler]:
    """An assembler that listens to the writer, in a thread."""
    assembler, stop = Assembler(store, **more), threading.Event()
    thread = threading.Thread(target=assembler.run, args=(stop,), kwargs={"every": 0.01})
    thread.start()
    try:
        owner = store.database.owner
        assert owner is not None
        until(lambda: owner.on_spans)
        yield assembler
    finally:
        stop.set()
        thread.join(90)
        assert not thread.is_alive()


# -- whole traces ---------------------------------------------------------------------------------


def test_a_trace_that_arrives_whole_is_a_trajectory_when_the_request_is_answered(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=NEVER) as here:
        answered = send(here, SECOND, ROOT, FIRST, packed=True)
        assert names(here.store.trajectory(ID)) == ["a", "chat 1", "chat 2"], "without any grace"
        assert answered.headers["x-whet-lag-seconds"] == "0.000"
        health = here.get("/api/health")
        assert (health["whole"], health["accepted"], health["unassembled"]) == (1, 3, 0)


def test_what_the_door_writes_is_what_assembling_from_the_record_gives(tmp_path: Path, data: Path) -> None:
    exports = [path for path in sorted((data / "otel").glob("*.pb")) if "logs" not in path.name]
    with Store(tmp_path / "door.db") as door, Store(tmp_path / "later.db") as later:
        assembler = Assembler(door)
        for path in exports:
            spans = decode(path.read_bytes(), json=False, logs=False).spans
            assembler.admit(spans, read_whole(spans)).result()
            later.spans.put(spans).result()
        at_the_door = {each.id: each for each in door.trajectories()}
        assert len(at_the_door) >= 25, "most captures are whole traces"
        Assembler(later).flush()
        from_the_record = {each.id: each for each in later.trajectories()}
        assert at_the_door == {id: from_the_record[id] for id in at_the_door}
        # Reading all of it again, as after a crash, changes nothing that was written at the door.
        assembler.flush()
        assert {each.id: each for each in door.trajectories()} == from_the_record
        assert not any(door.revisions(id) for id in at_the_door)


@pytest.mark.parametrize("trace", [run_trace("mine"), TRACE], ids=["that stands for the run", "of its own"])
def test_what_is_kept_of_an_open_run_is_forgotten_with_it(tmp_path: Path, trace: bytes) -> None:
    """As of a run of which the gateway alone knows: its trace only stands for it, and no Trajectory names it."""
    with Store(tmp_path / "runs.db") as store, assembling(store, grace=1.5) as assembler:
        span = one("chat 1", CHAT | {"whet.run": "mine"}, trace=trace)
        assembler.admit(decode(request(span), json=True, logs=False).spans).result()
        until(lambda: assembler.held_bytes)
        until(lambda: store.count("trajectories"))
        until(lambda: not assembler.progress.open)
        assert assembler.held_bytes == 0
        # Again, and nothing of it is new: the run is closed without a Trajectory.
        late = one("a span that is no step", {"whet.run": "mine"}, trace=trace)
        assembler.admit(decode(request(late), json=True, logs=False).spans).result()
        until(lambda: store.count("spans") == 2 and not assembler.progress.open and not assembler.held_bytes)


def test_a_late_span_of_a_trace_that_was_whole_makes_a_revision(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=0.05) as here:
        send(here, ROOT, FIRST)
        assert names(here.store.trajectory(ID)) == ["a", "chat 1"]
        send(here, SECOND)
        until(lambda: len(here.store.trajectory(ID).steps) == 3)
        assert [names(each) for each in here.store.revisions(ID)] == [["a", "chat 1"]]


def test_a_batch_that_is_sent_again_is_one_trajectory_and_no_revision(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=0.05) as here:
        for _ in range(3):
            send(here, ROOT, FIRST, SECOND)
        time.sleep(0.6)
        assert here.store.count("trajectories") == 1
        assert here.store.count("spans") == 3
        assert here.store.revisions(ID) == []
        assert here.get("/api/health")["conflicting"] == 0


@pytest.mark.parametrize(
    "spans",
    [
        [FIRST, SECOND],
        [ROOT, one("chat 3", CHAT, parent="elsewhere")],
        [one("invoke_agent a", AGENT, lasts=9, endTimeUnixNano="0"), FIRST],
        [one("invoke_agent a", AGENT | {"whet.run": "mine"}, lasts=9), FIRST],
        [ROOT, FIRST, {**FIRST, "name": "another with its id"}],
    ],
    ids=["no root", "a parent elsewhere", "a root that goes on", "of a run", "an id twice"],
)
def test_a_trace_of_which_something_is_missing_waits(spans: list[dict[str, Any]]) -> None:
    assert not is_whole(decoded(*spans))
    assert read_whole(decoded(*spans)) == []


def test_a_trace_whose_first_half_came_before_is_not_whole_though_it_looks_so(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=NEVER) as here:
        send(here, FIRST)
        assert is_whole(decoded(ROOT, SECOND))
        send(here, ROOT, SECOND)
        assert here.store.count("trajectories") == 0, "it waits for the quiet"
        Assembler(here.store).flush()
        assert names(here.store.trajectory(ID)) == ["a", "chat 1", "chat 2"]
        assert here.store.revisions(ID) == []


def test_the_second_half_of_a_trace_after_a_restart_finds_the_first_in_the_record(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        store.spans.put(decoded(FIRST)).result()
    with Store(tmp_path / "runs.db") as store:
        later = decoded(ROOT, SECOND)
        Assembler(store).admit(later, read_whole(later)).result()
        assert store.count("trajectories") == 0
        Assembler(store).flush()
        assert names(store.trajectory(ID)) == ["a", "chat 1", "chat 2"]


def test_a_service_that_sends_its_messages_as_log_records_has_its_traces_wait_for_them(
    tmp_path: Path,
) -> None:
    resource = {"service.name": "talks in logs"}
    record = {"traceId": bytes(16).hex().replace("0", "7"), "timeUnixNano": "5", "body": {"stringValue": "x"}}
    with world(tmp_path / "runs.db", grace=NEVER) as here:
        send(here, record, path="/v1/logs", logs=True, resource=resource)
        send(here, ROOT, FIRST, resource=resource)
        assert here.store.count("trajectories") == 0
        other = bytes(range(16, 32))
        send(
            here,
            one("invoke_agent b", AGENT, trace=other),
            one("c", CHAT, parent="invoke_agent b", trace=other),
        )
        assert here.store.count("trajectories") == 1, "another service does not"


def test_a_trace_of_a_person_who_was_erased_does_not_come_back_whole(tmp_path: Path) -> None:
    theirs = one("invoke_agent a", AGENT | {"user.id": "ann"}, lasts=9)
    with world(tmp_path / "runs.db", grace=NEVER) as here:
        send(here, theirs, FIRST)
        assert here.store.trajectory(ID).subject == "ann"
        here.store.erase("ann")
        send(here, theirs, FIRST)
        assert (here.store.count("trajectories"), here.store.count("spans")) == (0, 0)


def test_a_trajectory_that_was_recorded_under_the_id_of_the_trace_is_not_lost(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=0.05) as here:
        here.store.put(Trajectory(task=decoded_task(), id=ID, meta={"imported": True}))
        send(here, ROOT, FIRST)
        until(lambda: here.store.trajectory(ID).steps)
        assert [each.meta for each in here.store.revisions(ID)] == [{"imported": True}]


def decoded_task() -> Any:
    return read_task(decoded(ROOT, FIRST))


def read_task(spans: list[Span]) -> Any:
    (whole,) = read_whole(spans)
    assert whole.row is not None
    from whet.record.store.codec import decode as noun

    return noun(whole.row[-1], Trajectory).task  # type: ignore[arg-type]


# -- open runs in memory --------------------------------------------------------------------------


def test_an_open_run_is_assembled_from_memory_and_the_record_is_not_read(store: Store) -> None:
    with assembling(store, grace=2.0) as assembler:
        read: list[Any] = []
        spans = store.spans
        traces = spans.traces
        spans.traces = lambda wanted: (read.extend(wanted), traces(wanted))[1]  # type: ignore[method-assign]
        store.spans.put(decoded(FIRST)).result()
        store.spans.put(decoded(ROOT, SECOND)).result()
        until(lambda: store.count("trajectories"))
        assert names(store.trajectory(ID)) == ["a", "chat 1", "chat 2"]
        assert read == []
        until(lambda: assembler.progress.open == 0)


def test_what_does_not_fit_into_memory_is_read_from_the_record(store: Store) -> None:
    with assembling(store, grace=2.0, _feed=ArrivalFeed(most=1)) as assembler:
        store.spans.put(decoded(FIRST)).result()
        store.spans.put(decoded(ROOT, SECOND)).result()
        until(lambda: store.count("trajectories"))
        assert names(store.trajectory(ID)) == ["a", "chat 1", "chat 2"]
        until(lambda: assembler.progress.after == store.spans.newest)


def test_a_span_of_another_process_reaches_the_assembler_too(store: Store) -> None:
    with assembling(store, grace=0.1), Store(store.path) as other:
        assert other.database.owner is None
        other.spans.put(decoded(ROOT, FIRST)).result()
        until(lambda: store.count("trajectories"))
        assert names(store.trajectory(ID)) == ["a", "chat 1"]


def test_of_many_traces_in_pieces_every_one_is_whole_in_the_end(store: Store) -> None:
    traces = [bytes([number]) * 16 for number in range(1, 61)]
    pieces = [
        decoded(*(part | {"traceId": trace.hex()} for part in parts))
        for parts in ((FIRST,), (SECOND, ROOT))
        for trace in traces
    ]
    with assembling(store, grace=0.1, _feed=ArrivalFeed(most=20_000), most=25):
        assembler = Assembler(store)
        for piece in pieces:
            assembler.admit(piece, read_whole(piece))
        until(lambda: store.count("trajectories") == len(traces))
        until(lambda: all(len(each.steps) == 3 for each in store.trajectories()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "record.db") as opened:
        yield opened


# -- lag, backpressure, clocks, repeated spans ----------------------------------------------------


def test_a_run_without_a_root_does_not_wait_for_the_jump_of_a_clock_that_was_set_back(store: Store) -> None:
    assembler = Assembler(store, patience=30.0)
    orphan = one("chat 1", CHAT, parent="elsewhere")
    store.spans.put(decoded(orphan)).result()
    now = time.time()
    assert assembler.step(now + 5) == 0
    back = now - 86_400
    assert assembler.step(back) == 0
    assert assembler.step(back + 31) == 1, "noted before the jump"
    other = orphan | {"traceId": bytes(range(16, 32)).hex()}
    store.spans.put(decoded(other)).result()  # stamped with a time that lies a day ahead
    assert assembler.step(back + 40) == 0
    assert assembler.step(back + 71) == 1


def test_a_span_that_is_sent_again_with_another_content_is_counted_and_the_first_is_kept(
    tmp_path: Path,
) -> None:
    with world(tmp_path / "runs.db", grace=NEVER) as here:
        send(here, ROOT, FIRST)
        send(here, ROOT, one("chat 1", CHAT, parent="invoke_agent a", at=1, lasts=2))
        assert here.get("/api/health")["conflicting"] == 1
        assert here.store.spans.traces([TRACE])[1] == decoded(FIRST)[0]
    with Store(tmp_path / "runs.db") as again:
        assert again.spans.conflicting == 1


def test_health_and_the_answer_say_how_far_assembling_is_behind(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=NEVER) as here:
        send(here, FIRST)
        until(lambda: here.get("/api/health")["open"] == 1)
        answered = send(here, SECOND)
        assert (answered.headers["x-whet-open"], answered.headers["x-whet-unassembled"]) == ("1", "0")
        health = here.get("/api/health")
        assert (health["status"], health["lag_seconds"], health["unassembled"]) == ("ok", 0.0, 0)


def test_show_says_what_waits_for_assembling_and_for_how_long(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> dict[str, Any]:
        answered = command(capsys, "show", "--store", store.path, "--json")
        return dict(json.loads(answered.stdout)["assembly"])

    assert shown() == {"open": 0, "unassembled": 0, "unread_spans": 0, "lag_seconds": 0.0}
    store.spans.put(decoded(ROOT, FIRST)).result()
    waiting = shown()
    assert waiting["unread_spans"] == 2
    assert waiting["lag_seconds"] > 0, "nobody assembles it"
    assert "unread spans" in command(capsys, "show", "--store", store.path).stdout
    Assembler(store).step()
    assert shown() == {"open": 1, "unassembled": 0, "unread_spans": 0, "lag_seconds": 0.0}
    Assembler(store).flush()
    assert shown() == {"open": 0, "unassembled": 0, "unread_spans": 0, "lag_seconds": 0.0}


def test_a_full_backlog_refuses_spans_and_reports_alike_with_a_time_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path / "runs.db") as here:
        owner = here.store.database.owner
        assert owner is not None
        text = one("chat 9", CHAT | {"note": "x" * 200_000})
        monkeypatch.setattr(durable, "WAITING", 100_000)
        with owner.mutex:  # the disk stands still
            futures = [here.store.spans.put(decoded(text))]
            until(lambda: not here.store.database.waiting)
            futures.append(here.store.spans.put(decoded(text)))
            for path, body in (
                ("/v1/traces", request(FIRST)),
                ("/api/rollouts/finish", b'{"finished": []}'),
                ("/api/trajectories", b'{"trajectories": []}'),
            ):
                refused = here.http.post(
                    path, content=body, headers={**bearer(Role.WRITE), "content-type": "application/json"}
                )
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), path
        for future in futures:
            future.result(90)
        send(here, FIRST)


def test_many_requests_at_once_are_each_acknowledged_and_each_becomes_a_trajectory(tmp_path: Path) -> None:
    traces = [bytes([number]) * 16 for number in range(1, 41)]
    with world(tmp_path / "runs.db", grace=NEVER) as here:

        def export(part: list[bytes]) -> None:
            for trace in part:
                send(here, *(span | {"traceId": trace.hex()} for span in (FIRST, SECOND, ROOT)))

        threads = [threading.Thread(target=export, args=(traces[start::4],)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert {each.id for each in here.store.trajectories()} == {trace.hex() for trace in traces}


def test_a_gateway_call_in_a_trace_that_was_whole_joins_it_later(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=0.05) as here:
        send(here, ROOT, FIRST)
        here.store.spans.put([call("of the agent", parent="chat 1", run=None)]).result()
        until(lambda: here.store.revisions(ID))
        assert len(here.store.trajectory(ID).steps) == 2, "the call is the model call's own record"
        assert named("chat 1").hex() in str(here.store.trajectory(ID).steps[1].info["span_ids"])


@pytest.mark.parametrize("seed", range(4))
def test_in_whatever_pieces_and_order_spans_arrive_the_trajectories_are_those_of_the_record(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    spans = [
        span._replace(trace=bytes([number]) * 16, run=None)
        for number in range(1, 13)
        for span in otlp_fuzzer.tree(chance)
    ]
    pieces: list[list[Span]] = []
    for trace in {span.trace for span in spans}:
        own = [span for span in spans if span.trace == trace]
        cut = chance.choice((0, 0, len(own) // 2, len(own) - 1))
        pieces += [part for part in (own[:cut], own[cut:]) if part]
        if chance.random() < 0.3:
            pieces.append(own)  # sent again
    chance.shuffle(pieces)
    with Store(tmp_path / "door.db") as door, Store(tmp_path / "record.db") as record:
        with assembling(door, grace=chance.choice((0.0, 0.02, 0.5)), patience=0.3) as assembler:
            for piece in pieces:
                together = [*piece, *chance.choice(pieces)] if chance.random() < 0.2 else piece
                admitted = assembler.admit(together, read_whole(together))
                record.spans.put(together)
        admitted.result()  # commits are in order: all before it are there
        record.spans.put([]).result()
        Assembler(record).flush()
        Assembler(door).flush()
        assert shapes(door) == shapes(record)
        assert door.count("spans") == record.count("spans")


def shapes(store: Store) -> dict[str, Any]:
    """The trajectories, but for the note that they were written before their root came."""
    return {
        each.id: (each.steps, each.task, each.output, each.outcome, each.error, each.trace_ids)
        for each in store.trajectories()
    }
