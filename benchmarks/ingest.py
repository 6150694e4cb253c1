"""What goes through the door and comes out as trajectories, beside raw SQLite.  Run: python benchmarks/ingest.py

    python benchmarks/ingest.py [--seconds S] [--repeat N] [--connections C] [--split SHARE]
                                [--readers N] [--folder FOLDER] [--json]

`whet serve` as a user starts it, redaction and assembling on, and a process that exports traces of ten spans in the
GenAI conventions (an agent, five model calls with their messages, four tools; about ten attributes a span), OTLP
protobuf, ten traces a request, ids at random.  SHARE of the traces come in two requests, as long runs do.  Every
connection waits for its answer, and sends the next.  By turns with it, the rows that the server writes of the same
requests go into one table of SQLite, `synchronous=FULL`, a commit for each request: the disk's and SQLite's own limit.
Each repetition begins with an empty store and deletes it.

What is measured begins when the server's processes run.  `spans/s` are those acknowledged, until the last of their
trajectories can be read; `lag` is the time from the acknowledgement of a trace's last span until its trajectory is in
the file, sampled every quarter of a second.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from server import PROTOBUF, WORDS, Link, Whet, cpu, resident, serving

from whet.record.store.protobuf import FIXED64, write_field, write_number
from whet.record.tracing.otlp import decode

TRACES, SPANS = 10, 10
"""Traces in a request, and spans in a trace."""
POOL = 64
"""Requests that are made ahead; each is sent with fresh trace ids."""
SAMPLE = 0.25
SETTLED = 3.0
"""Seconds without another process after which a server has started all that it wants."""
PATIENCE = 120.0
"""Seconds after the last answer in which trajectories may still come."""
SPLIT_AT = 6
"""Spans of a trace that comes in two requests that are in the first one."""
_TRACE, _SPAN, _SESSION = b"\xfe" + b"\xfd" * 13, b"\xee" + b"\xed" * 5, b"A SESSION OF "
"""What stands for an id in a request that is made ahead: with two bytes, for a session three, its place."""
_MARKS = re.compile(
    rb"(%b..|%b..|%b...)" % (re.escape(_TRACE), re.escape(_SPAN), re.escape(_SESSION)), re.DOTALL
)

Value = str | int | list[str]


class Server(Whet):
    """`whet serve` with processes that read for it."""

    def __init__(self, readers: int | None) -> None:
        self._readers = readers

    def command(self, folder: Path, port: int) -> list[str]:
        chosen = [] if self._readers is None else ["--readers", str(self._readers)]
        return [*super().command(folder, port), *chosen]


def attribute(name: str, value: Value) -> bytes:
    """An OTLP KeyValue."""
    if isinstance(value, list):
        held = write_field(5, b"".join(write_field(1, write_field(1, text.encode())) for text in value))
    else:
        held = write_field(1, value.encode()) if isinstance(value, str) else write_number(3, value)
    return write_field(1, name.encode()) + write_field(2, held)


def span(
    trace: bytes, id: bytes, parent: bytes, name: str, began: int, ended: int, attributes: dict[str, Value]
) -> bytes:
    """A span, in the order in which the exporters write its fields."""
    return b"".join(
        (
            write_field(1, trace),
            write_field(2, id),
            write_field(4, parent) if parent else b"",
            write_field(5, name.encode()),
            write_number(6, 3),
            write_number(7, began, FIXED64),
            write_number(8, ended, FIXED64),
            *(write_field(9, attribute(key, value)) for key, value in attributes.items()),
            write_field(15, b""),
        )
    )


def prose(words: int) -> str:
    return " ".join(random.choices(WORDS, k=words))


def token(length: int = 12) -> str:
    return random.randbytes(length // 2).hex()


def agent_run(number: int) -> list[bytes]:
    """Ten spans of an agent that looks for something with a tool four times, then answers; the root last.

    Args:
        number: of the trace in its request, 0 to 99; its ids are marks.
    """
    trace = _TRACE + number.to_bytes(2, "big")
    ids = [_SPAN + (number * SPANS + place).to_bytes(2, "big") for place in range(SPANS)]
    spans: list[bytes] = []
    now = time.time_ns()
    asked = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o-mini"}
    messages = [{"role": "user", "parts": [{"type": "text", "content": prose(16)}]}]
    answers: list[dict[str, object]] = []
    for turn in range(5):
        last, call, arguments = turn == 4, f"call_{token()}", {"query": prose(2), "days": 3}
        part = {"type": "tool_call", "id": call, "name": "search_mail", "arguments": arguments}
        parts = [{"type": "text", "content": prose(20)}] if last else [part]
        reason = "stop" if last else "tool_calls"
        answers = [{"role": "assistant", "parts": parts, "finish_reason": reason}]
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            **asked,
            "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
            "gen_ai.response.id": f"chatcmpl-{token(20)}",
            "gen_ai.response.finish_reasons": [reason],
            "gen_ai.usage.input_tokens": 200 + turn * 60,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps(answers),
            "server.address": "api.openai.com",
        }
        spans.append(
            span(trace, ids[len(spans)], ids[-1], "chat gpt-4o-mini", now, now + 9 * 10**8, attributes)
        )
        now += 10**9
        messages.append({"role": "assistant", "parts": parts})
        if not last:
            result = prose(30)
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search_mail",
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call,
                "gen_ai.tool.description": "Search the mailbox for a text",
                "gen_ai.tool.call.arguments": json.dumps(arguments),
                "gen_ai.tool.call.result": result,
                "gen_ai.agent.name": "assistant",
            }
            name = "execute_tool search_mail"
            spans.append(span(trace, ids[len(spans)], ids[-1], name, now, now + 5 * 10**7, attributes))
            now += 6 * 10**7
            answered = {"type": "tool_call_response", "id": call, "response": result}
            messages.append({"role": "tool", "parts": [answered]})
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        **asked,
        "gen_ai.agent.name": "assistant",
        "gen_ai.agent.id": "asst_1",
        "gen_ai.conversation.id": f"{_SESSION.decode()}{number:03}",
        "gen_ai.usage.input_tokens": 1600,
        "gen_ai.usage.output_tokens": 100,
        "gen_ai.input.messages": json.dumps(messages[:1]),
        "gen_ai.output.messages": json.dumps(answers),
    }
    spans.append(
        span(trace, ids[-1], b"", "invoke_agent assistant", now - 6 * 10**9, now + 10**6, attributes)
    )
    return spans


def request(spans: Sequence[bytes]) -> bytes:
    """An ExportTraceServiceRequest of one resource and scope."""
    named = {"service.name": "benchmark", "telemetry.sdk.language": "python", "telemetry.sdk.version": "1.39"}
    resource = write_field(1, b"".join(write_field(1, attribute(key, value)) for key, value in named.items()))
    scope = write_field(1, write_field(1, b"opentelemetry.instrumentation.openai") + write_field(2, b"0.1"))
    return write_field(1, resource + write_field(2, scope + b"".join(write_field(2, one) for one in spans)))


class Template:
    """A request that is sent again and again, each time with other ids in the places of its marks."""

    def __init__(self, body: bytes) -> None:
        self._pieces = _MARKS.split(body)
        self.marks = frozenset(self._pieces[1::2])

    def filled(self, ids: dict[bytes, bytes]) -> bytes:
        pieces = self._pieces[:]
        pieces[1::2] = [ids[mark] for mark in self._pieces[1::2]]
        return b"".join(pieces)


def fresh(*templates: Template | None) -> dict[bytes, bytes]:
    """An id at random for each mark of requests that belong together."""
    marks = frozenset().union(*(template.marks for template in templates if template is not None))
    return {mark: _fresh(mark) for mark in marks}


def _fresh(mark: bytes) -> bytes:
    return random.randbytes(8).hex().encode() if mark.startswith(_SESSION) else random.randbytes(len(mark))


def templates(split: float) -> list[tuple[Template, Template | None]]:
    """The pool: a request, and the one that has the rest of its traces that come in two."""
    pool = []
    for _ in range(POOL):
        first: list[bytes] = []
        rest: list[bytes] = []
        for number in range(TRACES):
            spans = agent_run(number)
            if random.random() < split:
                first += spans[:SPLIT_AT]
                rest += spans[SPLIT_AT:]
            else:
                first += spans
        pool.append((Template(request(first)), Template(request(rest)) if rest else None))
    return pool


# -- the process that exports -----------------------------------------------------------------


def export(url: str, seconds: float, connections: int, split: float) -> None:
    """Send for `seconds`; prints, every `SAMPLE`, the time and the traces and spans acknowledged so far."""
    pool, stop = templates(split), threading.Event()
    counts = [[0, 0] for _ in range(connections)]
    errors: list[str] = []

    def connection(number: int) -> None:
        link, count = Link(url), counts[number]
        try:
            while not stop.is_set():
                first, rest = random.choice(pool)
                ids = fresh(first, rest)
                link.post("/v1/traces", first.filled(ids), PROTOBUF)
                if rest is not None:
                    link.post("/v1/traces", rest.filled(ids), PROTOBUF)
                count[0] += TRACES
                count[1] += TRACES * SPANS
        except (OSError, RuntimeError, ValueError, IndexError) as exception:
            errors.append(f"{type(exception).__name__}: {exception}")

    threads = [threading.Thread(target=connection, args=(number,)) for number in range(connections)]
    print("ready", flush=True)
    began = time.time()
    for thread in threads:
        thread.start()
    while time.time() < began + seconds and not errors:
        time.sleep(SAMPLE)
        print(time.time(), sum(count[0] for count in counts), sum(count[1] for count in counts), flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    print(time.time(), sum(count[0] for count in counts), sum(count[1] for count in counts), flush=True)
    if errors:
        sys.exit(errors[0])


# -- what is measured -------------------------------------------------------------------------


def children(process: int) -> list[int]:
    """A process and those that it started, from whichever of its threads."""
    started: list[int] = []
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended since
            started += map(int, listed.read_text().split())
    return [process, *(inner for child in started for inner in children(child))]


def work(process: int) -> float:
    """CPU seconds of a process and those that it started, so far."""
    spent = 0.0
    for one in children(process):
        with contextlib.suppress(OSError):
            spent += cpu(one)
    return spent


def warmed(process: int, url: str, folder: Path) -> int:
    """Have the server start the processes that read, which it does at the first request; the trajectories so far."""
    link, template = (
        Link(url),
        Template(request([span for number in range(TRACES) for span in agent_run(number)])),
    )
    running, since, sent = 0, time.time(), 0
    while time.time() < since + SETTLED:
        link.post("/v1/traces", template.filled(fresh(template)), PROTOBUF)
        sent += TRACES
        if (count := len(children(process))) != running:
            running, since = count, time.time()
        time.sleep(SAMPLE)
    while trajectories(folder / "runs.db") < sent:
        time.sleep(SAMPLE)
    return sent


def through_the_door(folder: Path, given: argparse.Namespace) -> dict[str, float]:
    """One repetition of ours."""
    with serving(Server(given.readers), folder) as (process, url, _):
        first = warmed(process, url, folder)
        before = work(process)
        command = [sys.executable, __file__, "--export", url]
        options = [str(given.seconds), str(given.connections), str(given.split)]
        exporter = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        assert exporter.stdout is not None
        exporter.stdout.readline()
        began = time.time()
        acknowledged: list[tuple[float, int, int]] = []

        def follow() -> None:
            assert exporter.stdout is not None
            for line in exporter.stdout:
                moment, traces, spans = line.split()
                acknowledged.append((float(moment), int(traces), int(spans)))

        follower = threading.Thread(target=follow)
        follower.start()
        visible: list[tuple[float, int]] = []
        health = Link(url)
        lags: list[float] = []
        ended = 0.0
        while True:
            visible.append((time.time(), trajectories(folder / "runs.db") - first))
            lags.append(json.loads(health.get("/api/health"))["lag_seconds"])
            if not follower.is_alive():
                ended = ended or time.time()
                done = visible[-1][1] >= acknowledged[-1][1]
                if done or time.time() - ended > PATIENCE or exporter.poll() not in (None, 0):
                    break
            time.sleep(SAMPLE)
        follower.join()
        exporter.wait()
        spent = work(process) - before
        traces, spans = acknowledged[-1][1:]
        measured = waits(acknowledged, visible)
        return {
            "spans": spans,
            "trajectories": visible[-1][1],
            "missing": traces - visible[-1][1],
            "accepted": spans / (acknowledged[-1][0] - began),
            "visible": visible[-1][1] * SPANS / (visible[-1][0] - began),
            "lag_median": statistics.median(measured),
            "lag_max": max(measured),
            "reported_lag_max": max(lags),
            "cpu": spent / spans * 1e6,
            "memory": sum(resident(one) for one in children(process)),
        }


def waits(
    acknowledged: Sequence[tuple[float, int, int]], visible: Sequence[tuple[float, int]]
) -> list[float]:
    """For each sample of acknowledged traces, the seconds until as many were visible."""
    counts = [count for _, count in visible]
    seconds = []
    for moment, traces, _ in acknowledged:
        place = bisect.bisect_left(counts, traces)
        seconds.append(max(0.0, visible[min(place, len(visible) - 1)][0] - moment))
    return seconds


def trajectories(path: Path) -> int:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return int(
            connection.execute(
                "SELECT rows + coalesce((SELECT max(seq) FROM trajectories), 0) - upto FROM totals "
                "WHERE name = 'trajectories'"
            ).fetchone()[0]
        )
    finally:
        connection.close()


def raw(folder: Path, given: argparse.Namespace) -> dict[str, float]:
    """Rows a second of SQLite alone, for as long; their bytes are those of the spans, and nothing is decoded."""
    prepared = []
    for first, rest in templates(given.split):
        for template in (first, rest):
            if template is not None:
                body = template.filled(fresh(template))
                prepared.append(decode(body, json=False, logs=False).spans)
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE spans (seq INTEGER PRIMARY KEY, trace BLOB, id BLOB, parent BLOB, started INTEGER, "
        "ended INTEGER, name TEXT, encoding TEXT, run TEXT, body BLOB)"
    )
    connection.execute("CREATE UNIQUE INDEX spans_id ON spans (trace, id)")
    count, began, spent = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < given.seconds:
        spans = random.choice(prepared)
        trace = random.randbytes(8)
        rows = [(trace + one[0][8:], *one[1:6], one[7], one[9], one[6]) for one in spans]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO spans (trace, id, parent, started, ended, name, encoding, run, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        connection.execute("COMMIT")
        count += len(rows)
    took = time.perf_counter() - began
    connection.close()
    return {"raw": count / took, "raw_cpu": (time.process_time() - spent) / count * 1e6}


LINES = (
    ("raw", "raw SQLite, rows/s", "{:,.0f}"),
    ("accepted", "spans/s acknowledged", "{:,.0f}"),
    ("visible", "spans/s visible as trajectories", "{:,.0f}"),
    ("ratio", "  raw SQLite is faster by", "{:.2f} times"),
    ("trajectories", "trajectories visible", "{:,.0f}"),
    ("missing", "  missing", "{:,.0f}"),
    ("lag_median", "lag, median", "{:.2f} s"),
    ("lag_max", "lag, longest", "{:.2f} s"),
    ("reported_lag_max", "  as the server reports it, longest", "{:.2f} s"),
    ("cpu", "server CPU a span", "{:.1f} µs"),
    ("memory", "server memory at the end", "{:,.0f} MB"),
    ("raw_cpu", "raw SQLite's CPU a span", "{:.1f} µs"),
)


def repetitions(given: argparse.Namespace) -> Iterator[dict[str, float]]:
    for _ in range(given.repeat):
        figures: dict[str, float] = {}
        for measure in (raw, through_the_door):
            with tempfile.TemporaryDirectory(dir=given.folder, ignore_cleanup_errors=True) as folder:
                figures |= measure(Path(folder), given)
        yield figures | {"ratio": figures["raw"] / figures["visible"]}


def main() -> None:
    if sys.argv[1:2] == ["--export"]:
        url, seconds, connections, split = sys.argv[2:6]
        assert urlsplit(url).hostname
        return export(url, float(seconds), int(connections), float(split))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each side, in each repetition")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--split", type=float, default=0.2, help="share of traces that come in two requests")
    parser.add_argument("--readers", type=int, help="processes that read for the server")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = list(repetitions(given))
    if given.json:
        print(json.dumps(found))
        return None
    print(f"{given.seconds:g} s a side, {given.connections} connections, load {os.getloadavg()[0]:.1f}")
    for key, name, form in LINES:
        print(f"{name:38}" + "".join(f"{form.format(figures[key]):>16}" for figures in found))
    return None


if __name__ == "__main__":
    main()
