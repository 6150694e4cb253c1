"""Bodies that are small on the wire and large in memory, each sent to its door; prints the answers and what each took.

Run in a process of its own, whose highest memory is measured: `python hostile_bodies.py`.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import httpx2
import server_world
from server_world import TOKENS, bearer

from whet.models.fakes import ScriptedServer
from whet.record.store.protobuf import write_field
from whet.serve import Role
from whet.serve.gateway import Upstream

MANY = 600_000
JSON, PROTOBUF = {"content-type": "application/json"}, {"content-type": "application/x-protobuf"}
IDS = b'"traceId":"%b","spanId":"%b"' % (b"ab" * 16, b"cd" * 8)
HEAD = write_field(1, b"\1" * 16) + write_field(2, b"\2" * 8)
PAIR = write_field(1, b"k") + write_field(2, b"\x18\1")


def exported(attributes: bytes = b"[]", resource: bytes = b"[]", scope: bytes = b"[]") -> bytes:
    span = b'{%b,"name":"a","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":%b}' % (
        IDS,
        attributes,
    )
    scoped = b'{"scope":{"attributes":%b},"spans":[%b]}' % (scope, span)
    return b'{"resourceSpans":[{"resource":{"attributes":%b},"scopeSpans":[%b]}]}' % (resource, scoped)


def packed(span: bytes = b"", resource: bytes = b"") -> bytes:
    return write_field(1, resource + write_field(2, write_field(2, HEAD + span)))


def listed(name: str, item: bytes, count: int) -> bytes:
    return b'{"%b":[%b]}' % (name.encode(), b",".join([item] * count))


TRACES, LOGS = "/v1/traces", "/v1/logs"
MODEL = "/run/r1/TOKEN/v1/"


def bodies() -> dict[str, tuple[str, bytes, dict[str, str]]]:
    """Name → path, body and headers."""
    keys = b"{%b}" % b",".join(b'"k%d":1' % number for number in range(MANY))
    pairs = b"[%b]" % b",".join(
        b'{"key":"k%d","value":{"intValue":"1"}}' % number for number in range(MANY // 4)
    )
    nested = b'[{"key":"a","value":{"kvlistValue":{"values":%b}}}]' % pairs
    string = json.dumps(keys.decode()).encode()
    packed_map = write_field(
        9, write_field(1, b"a") + write_field(2, write_field(6, write_field(1, PAIR) * MANY))
    )
    return {
        "attributes": (TRACES, exported(pairs), JSON),
        "nested attributes": (TRACES, exported(nested), JSON),
        "attributes of a resource": (TRACES, exported(resource=pairs), JSON),
        "attributes of a scope": (TRACES, exported(scope=pairs), JSON),
        "an attribute of JSON": (
            TRACES,
            exported(b'[{"key":"a","value":{"stringValue":%b}}]' % string),
            JSON,
        ),
        "fields of another protocol": (TRACES, b'{"x":%b}' % keys, JSON),
        "empty spans": (
            TRACES,
            b'{"resourceSpans":[{"scopeSpans":[%b]}]}' % listed("spans", b"{}", MANY),
            JSON,
        ),
        "packed attributes": (TRACES, packed(write_field(9, PAIR) * MANY), PROTOBUF),
        "packed and nested": (TRACES, packed(packed_map), PROTOBUF),
        "packed, of a resource": (
            TRACES,
            packed(resource=write_field(1, write_field(1, PAIR) * MANY)),
            PROTOBUF,
        ),
        "packed and empty resources": (TRACES, b"\x0a\x00" * (10 * MANY), PROTOBUF),
        "packed and empty spans": (
            TRACES,
            write_field(1, write_field(2, b"\x12\x00" * (10 * MANY))),
            PROTOBUF,
        ),
        "zipped zeros": (TRACES, gzip.compress(bytes(300 << 20), 1), PROTOBUF | {"content-encoding": "gzip"}),
        "zipped attributes": (
            *(TRACES, gzip.compress(packed(write_field(9, PAIR) * (2 * MANY)), 1)),
            PROTOBUF | {"content-encoding": "gzip"},
        ),
        "a log record": (
            LOGS,
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{%b,"timeUnixNano":"1","body":{"kvlistValue":{"values":%b}}}]}]}]}'
            % (IDS, pairs),
            JSON,
        ),
        "a trajectory": (
            "/api/trajectories",
            b'{"trajectories":[{"task":{"id":"a"},"output":%b}]}' % keys,
            JSON,
        ),
        "trajectories": ("/api/trajectories", listed("trajectories", b'{"task":{"id":"a"}}', 95_000), JSON),
        "a task": ("/api/tasks", b'{"tasks":[{"instruction":"a","x":%b}]}' % keys, JSON),
        "tasks": ("/api/tasks", listed("tasks", b'{"instruction":"a"}', 190_000), JSON),
        "rollouts": ("/api/rollouts", listed("rollouts", b'{"task":{"id":"a"}}', 190_000), JSON),
        "a report": (
            "/api/rollouts/finish",
            b'{"finished":[{"id":"a","fence":1,"trajectory":%b}]}' % keys,
            JSON,
        ),
        "a report of the old protocol": ("/rollout", b'{"rollout_id":"a:1","x":%b}' % keys, JSON),
        "feedback": ("/api/feedback", listed("feedback", b'{"run":"r","value":1}', 95_000), JSON),
        "a person": ("/api/subjects", b'{"subjects":[{"id":"a","meta":%b}]}' % keys, JSON),
        "a Bundle": (
            "/api/bundles",
            b'{"resources":%b}' % keys[:2_000_000].rpartition(b",")[0] + b"}}",
            JSON,
        ),
        "a model call": (
            MODEL + "chat/completions",
            b'{"model":"scripted","messages":[],"x":%b}' % keys,
            JSON,
        ),
        "messages": (
            MODEL + "messages",
            listed("messages", b'{"role":"user","content":"a"}', MANY // 2)[:-1]
            + b',"max_tokens":9,"model":"scripted"}',
            JSON,
        ),
        "a result of a tool": (
            MODEL + "chat/completions",
            b'{"model":"scripted","messages":[{"role":"tool","tool_call_id":"a","content":%b}]}' % string,
            JSON,
        ),
    }


def highest() -> float:
    """MB that this process has taken at most since it was last asked."""
    taken = next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    )
    Path("/proc/self/clear_refs").write_text("5")
    return taken / 1_024


def main() -> None:
    sent = {}
    with (
        ScriptedServer(lambda _: "fine", speaks=("chat",)) as upstream,
        server_world.world(
            grace=0.0, open_legacy=True, upstreams={"default": Upstream(url=upstream.base_url)}
        ) as here,
        httpx2.Client(base_url=here.url, timeout=90) as http,
    ):
        for name, (path, body, headers) in bodies().items():
            highest()
            before = highest()
            given = {**bearer(Role.ADMIN), **headers}
            answered = http.post(path.replace("TOKEN", TOKENS[Role.ADMIN]), content=body, headers=given)
            time.sleep(0.1)
            sent[name] = {
                "status": answered.status_code,
                "sent": len(body) / 1e6,
                "took": highest() - before,
                "said": answered.text[:120],
            }
    print(json.dumps(sent))


if __name__ == "__main__":
    main()
