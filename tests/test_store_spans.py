"""Spans in the record: kept as they came, once, across segments, processes and restarts."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import python

from whet.errors import StoreError
from whet.record.store import Store
from whet.record.store.database import DatabaseReader
from whet.record.store.group_commit import Value
from whet.record.store.spans import BloomFilter, Spans
from whet.types import Span


def span(number: int, *, trace: int = 0, context: bytes = b"service", run: str | None = None) -> Span:
    return Span(
        trace=hashlib.md5(b"trace%d" % trace).digest(),
        id=number.to_bytes(8, "big"),
        parent=b"",
        started=1_000 + number,
        ended=2_000 + number,
        name=f"chat {number}",
        body=b"\x0a\x00body %d" % number,
        encoding="span",
        context=context,
        run=run,
    )


def test_spans_come_back_as_they_came_in_order_of_their_start() -> None:
    first = span(1)._replace(started=5)
    late = span(2)._replace(started=3, parent=first.id, ended=0, encoding="span+json", body=b"{}", run="r")
    same_start = span(0)._replace(started=5, context=b"")
    with Store(":memory:") as store:
        store.spans.put([first, late]).result()
        store.spans.put([same_start, span(9, trace=1)]).result()
        assert store.spans.trace(first.trace) == [late, same_start, first]
        assert store.spans.run("r") == [late]
        assert store.spans.trace(b"unknown") == store.spans.run("unknown") == []
        assert store.count("spans") == 4


def test_a_repeated_span_is_kept_once_in_its_segment_and_the_next(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db", segment=10) as store, Store(tmp_path / "runs.db") as client:
        old = [span(n) for n in range(10)]
        store.spans.put(old).result()
        store.spans.put([*old, span(10)]).result()  # opens the next segment
        client.spans.put(old[:3]).result()  # through the owner's socket
        store.spans.put(
            [span(4)._replace(encoding="log")]
        ).result()  # a log record of that span: another thing
        assert store.count("spans") == 12
        assert len(store.spans.trace(span(0).trace)) == len(client.spans.trace(span(0).trace)) == 12


def test_what_commits_together_is_kept_once_and_as_it_came_first() -> None:
    with Store(":memory:") as store:
        futures = [
            store.spans.put([span(n)._replace(body=b"first"), span(n + 1)._replace(body=b"again")])
            for n in range(300)
        ]
        for future in futures:
            future.result()
        kept = store.spans.trace(span(0).trace)
        assert [each.id for each in kept] == [span(n).id for n in range(301)]
        assert [each.body for each in kept] == [b"first", *[b"again"] * 300]


def test_the_window_of_recognition_is_two_segments_and_no_more(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db", segment=5) as store:
        for start in range(0, 20, 5):
            store.spans.put([span(n) for n in range(start, start + 5)]).result()
        store.spans.put([span(12)]).result()  # two segments back: stored again by design
        store.spans.put([span(17)]).result()
        assert store.count("spans") == 21


def test_what_is_put_twice_at_once_is_kept_once() -> None:
    with Store(":memory:") as store:
        store.spans.put([span(1), span(1), span(2)]).result()
        assert store.count("spans") == 2


def test_segments_go_on_after_a_restart_and_traces_are_found_across_them(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for life in range(4):
        with Store(path, segment=7) as store:
            for n in range(6):
                store.spans.put([span(life * 6 + n, trace=n % 2, run="r" if n == 5 else None)]).result()
    with Store(path) as store:
        assert [each.id[-1] for each in store.spans.trace(span(0).trace)] == list(range(0, 24, 2))
        assert [each.id[-1] for each in store.spans.run("r")] == [5, 11, 17, 23]
        assert store.count("spans") == 24
    with sqlite3.connect(path) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name LIKE 'spans__'"
        ).fetchone()[0]
        assert tables == 5  # four filled ones and the empty one before the first
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_context_is_stored_once_per_distinct_value(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path, segment=10) as store:
        store.spans.put([span(n, context=b"%d" % (n % 3)) for n in range(30)]).result()
        store.spans.put([span(n, context=b"%d" % (n % 3)) for n in range(30, 60)]).result()
        assert {each.context for each in store.spans.trace(span(0).trace)} == {b"0", b"1", b"2"}
        assert store.database.rows("SELECT count(*) FROM contexts") == [(3,)]


def test_a_cursor_sees_every_touched_trace_once_per_read_and_misses_none() -> None:
    with Store(":memory:", segment=8) as store:
        store.spans.put([span(n, trace=n % 3) for n in range(20)]).result()
        touched = store.spans.touched(0)
        assert [each.trace for each in touched] == [span(0, trace=n).trace for n in (2, 0, 1)]
        assert [each.seq for each in touched] == [18, 19, 20]
        assert store.spans.touched(touched[-1].seq) == []
        store.spans.put([span(99, trace=1, run="r")]).result()
        (again,) = store.spans.touched(touched[-1].seq)
        assert (again.trace, again.run) == (span(0, trace=1).trace, "r")
        assert again.arrived >= touched[-1].arrived


def test_reading_by_small_pages_reaches_the_same_traces() -> None:
    with Store(":memory:", segment=8) as store:
        store.spans.put([span(n, trace=n * n % 11) for n in range(40)]).result()
        seen, cursor = set(), 0
        while page := store.spans.touched(cursor, limit=2):
            assert len(page) <= 2
            seen |= {each.trace for each in page}
            assert page[-1].seq > cursor
            cursor = page[-1].seq
        assert cursor == 40
        assert seen == {span(0, trace=n * n % 11).trace for n in range(40)}


def test_a_batch_with_a_bad_span_is_refused_whole_and_the_next_ones_are_kept() -> None:
    with Store(":memory:", segment=4) as store:
        store.spans.put([span(0)]).result()
        bad = store.spans.put([span(1), span(2)._replace(name=None)])  # type: ignore[arg-type]
        good = store.spans.put([span(3)])
        with pytest.raises(StoreError, match="NOT NULL"):
            bad.result()
        good.result()
        assert [each.id[-1] for each in store.spans.trace(span(0).trace)] == [0, 3]
        assert store.count("spans") == 2
        assert store.spans.touched(0)[-1].seq == store.database.rows("SELECT max(last) FROM segments")[0][0]


def test_a_client_cannot_send_a_span_of_the_wrong_shape_or_a_queue_statement(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store, Store(tmp_path / "runs.db") as client:
        for writes in (
            [("span", [(b"short",)])],
            [("rollout_state", [("[]",)])],
            [("counter", [("fence", 9)])],
        ):
            with pytest.raises(StoreError, match="refused"):
                client.database.write(writes).result()  # type: ignore[arg-type]
        client.spans.put([span(1)]).result()
        assert store.count("spans") == 1


class Listening(DatabaseReader):
    """A file of a store that writes down its queries."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.queries: list[str] = []

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        self.queries.append(query)
        return super().rows(query, values)


def test_what_is_noted_of_older_segments_changes_no_answer(tmp_path: Path) -> None:
    dice = random.Random(0)
    with Store(tmp_path / "runs.db", segment=20) as store:
        knowing = Spans(store.database)
        for start in range(0, 400, 7):
            runs = [None if dice.random() < 0.3 else f"run {dice.randrange(60)}" for _ in range(7)]
            store.spans.put(
                [span(start + n, trace=dice.randrange(50), run=run) for n, run in enumerate(runs)]
            ).result()
            if dice.random() < 0.3:
                knowing.note_older()
            traces = [span(0, trace=dice.randrange(60)).trace for _ in range(5)]
            asked = [f"run {dice.randrange(70)}" for _ in range(5)]
            assert knowing.traces(traces) == store.spans.traces(traces)
            assert sorted(knowing.named(asked)) == sorted(store.spans.named(asked))
            assert [knowing.run(run) for run in asked] == [store.spans.run(run) for run in asked]


def test_a_trace_or_run_is_known_once_it_has_a_span_in_any_segment(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db", segment=10) as store:
        for number in range(35):
            store.spans.put([span(number, trace=number, run=f"run-{number}")]).result()
        while store.spans.note_older():
            pass
        for number in (0, 12, 34):
            assert store.spans.known(run=f"run-{number}")
            assert store.spans.known(trace=span(0, trace=number).trace)
        assert not store.spans.known(run="run-35")
        assert not store.spans.known(trace=span(0, trace=35).trace)


def test_older_segments_are_searched_for_what_they_hold_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db", segment=10) as store:
        for n in range(100):
            store.spans.put([span(n, trace=n, run=f"run {n}")]).result()
        heard = Listening(store.path)
        spans = Spans(heard)
        while spans.note_older():
            pass
        heard.queries.clear()
        assert spans.trace(span(0, trace=99).trace) == [span(99, trace=99, run="run 99")]
        assert spans.run("nobody's") == []
        assert not any("spans_1 " in query for query in heard.queries)
        assert spans.trace(span(0, trace=3).trace) == [span(3, trace=3, run="run 3")]
        assert any("spans_1 " in query for query in heard.queries)


def test_an_older_segment_is_noted_in_little_memory(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db", segment=6_000) as store:
        store.spans.put([span(n, trace=n, run=f"run {n}") for n in range(6_000)]).result()
        store.spans.put([span(6_000)]).result()
        store.spans._older.add(["the filter's own memory"])
        tracemalloc.start()
        assert store.spans.note_older()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert store.spans.known(run="run 5999")
        assert most < 400_000


def test_a_filter_that_is_far_too_small_still_misses_nothing() -> None:
    older = BloomFilter(bits=64)
    assert "anything" not in older
    older.add(f"run {n}" for n in range(100))
    assert all(f"run {n}" in older for n in range(100))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
def test_memory_does_not_grow_with_the_number_of_segments(tmp_path: Path) -> None:
    grown = python("-c", _SEGMENTS_IN_MEMORY, tmp_path / "runs.db")
    after_two, after_twelve = map(int, grown.stdout.split())
    # KiB: 900, and 3,000 where statements for full segments are kept.
    assert after_twelve - after_two < 2_000, grown.stderr


_SEGMENTS_IN_MEMORY = """
import random, re, sys
from pathlib import Path
from whet.record.store import Store
from whet.record.store.schema import LENGTHS
from whet.types import Span

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

path = Path(sys.argv[1])
with Store(path, segment=sum(LENGTHS)) as store:
    for segment in range(13):
        for length in LENGTHS:
            spans = [
                Span(trace=random.randbytes(16), id=random.randbytes(8), parent=b"", started=1, ended=2, name="chat",
                     body=b"", encoding="span", context=b"", run=None)
                for _ in range(length)
            ]
            store.spans.put(spans).result()
        if segment in (2, 12):
            print(resident())
"""
