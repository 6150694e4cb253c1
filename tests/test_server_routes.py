"""Every route that is served: who may call it, what the document says of it, what nonsense does to it."""

from __future__ import annotations

import http.client
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from server_world import TOKENS, bearer, world

from whet.record.store import Store
from whet.serve import Access, HttpRoute, Role, Server, standard
from whet.serve.gateway import Upstream
from whet.serve.http import without_paths
from whet.serve.openapi import operation_id

OPEN = {"/healthz"}
"""What is served without a token; with --open-legacy, the routes of the old protocol too."""
NOWHERE = {"default": Upstream(url="http://127.0.0.1:9/v1")}
"""Nothing listens there."""
LEGACY = {"/task", "/resources/latest", "/resources/{id}", "/rollout"}


A_FEW = settings(
    max_examples=3,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def routes(*, open_legacy: bool = False) -> list[HttpRoute]:
    with Store(":memory:") as store:
        parts = standard(store, open_legacy=open_legacy, upstreams=NOWHERE)
        served = Server(Access(TOKENS), parts).routes
    return [route for route in served if route.path not in OPEN]


def path_of(route: HttpRoute, id: str = "some-id") -> str:
    return re.sub(r"\{\w+\}", id, route.path)


@pytest.mark.parametrize("route", routes(), ids=operation_id)
def test_a_route_is_closed_to_whom_it_is_not_for(route: HttpRoute) -> None:
    assert route.role is not None, "only /healthz is open"
    with world(upstreams=NOWHERE) as here:
        for role, status in ((None, 401), *((role, 403) for role in Role if role < route.role)):
            refused = here.http.request(route.method, path_of(route), headers=bearer(role), content=b"{}")
            assert refused.status_code == status, role
            assert refused.json()["error"]["message"]
        allowed = here.http.request(
            route.method,
            path_of(route),
            headers={**bearer(route.role), "content-type": "application/json"},
            content=b"{}",
        )
        assert allowed.status_code not in (401, 403)
        wrong = here.http.request(route.method, path_of(route), headers={"authorization": "Bearer wrong"})
        assert wrong.status_code == 401


def test_a_filter_that_no_list_has_is_refused() -> None:
    """It listed everything, as if nobody had asked for less."""
    with world() as here:
        lists = [route for route in here.server.routes if isinstance(route, HttpRoute) and route.query]
        assert len(lists) >= 8
        for route in lists:
            refused = here.http.get(f"{path_of(route)}?subjct=ann", headers=bearer(Role.ADMIN))
            assert refused.status_code == 400, route.path
            said = refused.json()["error"]["message"]
            assert said.startswith("there is no query parameter 'subjct' here; there are ")
            assert all(name in said for name in route.query)
        assert here.get("/api/trajectories?subject=ann&limit=1") == {"trajectories": []}


@pytest.mark.parametrize(
    ("method", "path", "role", "status"),
    [
        ("POST", "/api/tasks", None, 401),
        ("POST", "/nothing", Role.ADMIN, 404),
        ("GET", "/api/tasks", Role.ADMIN, 200),
        ("GET", "/healthz", None, 200),
    ],
)
def test_a_body_that_nobody_reads_does_not_cost_the_connection(
    method: str, path: str, role: Role | None, status: int
) -> None:
    with world() as here:
        for length, sent, kept in ((2, b"{}", True), (2, b"", False), (1_000_000, b"{}", False)):
            connection = http.client.HTTPConnection("127.0.0.1", here.server.port, timeout=90)
            connection.putrequest(method, path)
            for name, value in {**bearer(role), "content-length": str(length)}.items():
                connection.putheader(name, value)
            connection.endheaders()
            time.sleep(0.1)  # the head arrives alone
            connection.send(sent)
            answered = connection.getresponse()
            assert answered.status == status
            assert answered.read()
            assert (answered.getheader("connection") != "close") is kept
            held = connection.sock
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            assert (connection.sock is held) is kept
            connection.close()


def test_what_writes_needs_more_than_the_role_read() -> None:
    claims = [route for route in routes() if route.path == "/task"]
    for route in routes():
        if route.method != "GET" or route in claims:
            assert route.role is not None
            assert route.role >= Role.WRITE, route.path


def test_open_legacy_opens_its_own_four_routes_and_no_other() -> None:
    opened = {route.path for route in routes(open_legacy=True) if route.role is None}
    assert opened == LEGACY
    assert all(route.local_only for route in routes(open_legacy=True) if route.role is None)
    with world(open_legacy=True) as here:
        assert here.http.get("/task").json() == {"is_available": False, "task": None}
        assert here.http.get("/api/rollouts").status_code == 401
        assert here.http.get("/task", headers={"host": "evil.example"}).status_code == 403
        assert here.http.get("/task", headers={"origin": "http://evil.example"}).status_code == 403
    with world() as here:
        assert here.http.get("/task").status_code == 401


def test_the_document_names_every_route_and_no_other() -> None:
    with world() as here:
        document = here.get("/openapi.json")
        named = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
        served = {(route.method, route.path) for route in here.server.routes}
        assert named == served
        ids = [item["operationId"] for path in document["paths"].values() for item in path.values()]
        assert len(ids) == len(set(ids))
        assert "/v1/traces" in document["paths"]


def test_requests_made_up_from_the_document_never_break_the_server() -> None:
    import schemathesis  # a second to import
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance

    with world(upstreams=NOWHERE) as here:
        document = here.get("/openapi.json")
        for item in document["paths"].values():
            for operation in item.values():
                operation.pop("security", None)
        schema: Any = schemathesis.openapi.from_dict(document)
        schema.config.base_url = here.url
        schema.config.update(base_url=here.url)
        tried = 0
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path == "/api/rollouts/claim":
                continue  # waits for as long as it is told to; its own tests are in test_server_queue.py
            if "of the upstream" in operation.definition.raw["summary"]:
                continue  # 502 with nothing behind it; its own tests are in test_gateway_routes.py

            @A_FEW
            @given(case=operation.as_strategy())
            def check(case: Any) -> None:
                nonlocal tried
                tried += 1
                case.call_and_validate(
                    headers={"x-whet-token": TOKENS[Role.ADMIN]},
                    checks=[not_a_server_error, response_schema_conformance],
                )

            check()
        assert tried > 50


NONSENSE = [
    b"",
    b"x",
    b"[]",
    b"null",
    b"\xff",
    b'{"seconds": "x"}',
    b'{"a": "\\ud83d"}',
    b"[" * 200 + b"]" * 200,
]
ODD = ["%E2%98%83", "%ff", "a%00b", "a%2F..%2Fb", "%2e%2e", "%20", "x" * 300]


@pytest.mark.parametrize("route", routes(), ids=operation_id)
def test_nonsense_is_answered_by_every_route_and_breaks_none(route: HttpRoute) -> None:
    behind = "of the upstream" in route.summary
    with world(upstreams=NOWHERE) as here:
        for body, id in [*((body, "some-id") for body in NONSENSE), *((b"{}", id) for id in ODD)]:
            answered = here.http.request(
                route.method,
                path_of(route, id),
                headers={**bearer(Role.ADMIN), "content-type": "application/json"},
                content=body,
            )
            assert answered.status_code < 500 or (behind and answered.status_code == 502), (id, body)


RAW = [
    b"GET\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/rollouts/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: evil\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 1_000_000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_broken_http_is_refused_and_the_server_goes_on(raw: bytes) -> None:
    with world() as here:
        with socket.create_connection(("127.0.0.1", here.server.port), timeout=90) as connection:
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                answered = connection.recv(100)
            except OSError:  # it was cut off at once
                answered = b""
            assert not answered or answered.split(b" ")[1][:1] == b"4", answered
        assert here.http.get("/healthz").status_code == 200


def test_a_head_that_is_repeated_a_thousand_times_does_not_matter() -> None:
    with world() as here:
        connection = http.client.HTTPConnection("127.0.0.1", here.server.port, timeout=90)
        connection.putrequest("GET", "/healthz", skip_host=True)
        connection.putheader("Host", "localhost")
        for number in range(60):
            connection.putheader(f"X-{number}", "x")
        connection.endheaders()
        assert connection.getresponse().status == 200
        connection.close()


WAITING = {"/api/rollouts/claim", "/api/gateway/pause", "/api/gateway/drain"}
"""What holds this request or the next ones for as long as it is told to."""
BODIES = (b"{}", b"[]", b"nonsense", b'{"x": 1}')


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_no_error_names_a_path_of_the_host(tmp_path: Path, closed: bool) -> None:
    with world(tmp_path / "runs.db", upstreams=NOWHERE) as here:
        if closed:  # each route that reads or writes then fails, and the error is the store's
            here.store.close()
        named = 0
        for route in routes():
            if route.path in WAITING or (closed and "/v1" in route.path):
                continue  # model calls wait for a record that cannot be written; tests of it are elsewhere
            for body in BODIES[:2] if closed else BODIES:
                for id in ("some-id", "..%2F..%2Fetc%2Fpasswd"):
                    answered = here.http.request(
                        route.method,
                        path_of(route, id),
                        headers={**bearer(Role.ADMIN), "content-type": "application/json"},
                        content=body,
                    )
                    assert str(tmp_path) not in answered.text, (route.method, route.path)
                    assert not re.search(r"/(?:tmp|home|root|usr|var)/\w", answered.text), answered.text
                    named += "runs.db" in answered.text
        assert named or not closed, "the file is named, without its folder"


def test_a_path_of_the_host_is_told_from_a_path_of_the_server() -> None:
    shown = without_paths(
        "/tmp/a b is no /usr/lib/python3/thing.py; POST /api/tasks, not /v1/x, 'https://h/usr/y/z'"
    )
    assert shown == "a b is no thing.py; POST /api/tasks, not /v1/x, 'https://h/usr/y/z'"
