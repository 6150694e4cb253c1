"""The gateway's routes: who may use them, and that nothing an agent or an upstream sends breaks them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.models.fakes import Reply, ScriptedServer
from whet.record.store import Store
from whet.serve import Access, Role, Server, running
from whet.serve.gateway import Gateway, Upstream
from whet.types import Bundle, Version

TOKENS = {role: f"token-{role.name.lower()}" for role in Role}
CALLS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
NAMES = """role content type text tool_calls function name arguments id index delta message finish_reason
    input output tools tool_choice source image_url call_id item usage choices logprobs token_ids"""
FIELDS = """messages input system instructions tools tool_choice stream_options stop_sequences reasoning text
    max_tokens max_output_tokens return_token_ids n"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=4)
    ),
    max_leaves=12,
)
BODY = st.fixed_dictionaries(
    {"model": st.just("scripted")},
    optional=dict.fromkeys(FIELDS.split(), JSON) | {"stream": st.booleans()},
)
ANSWER = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(JSON, max_size=3) | JSON,
        "usage": JSON,
        "id": JSON,
        "prompt_token_ids": JSON,
        "output": JSON,
        "content": JSON,
        "error": JSON,
    },
)
EXAMPLES = 12
"""Each is a round trip; what they look for was looked for with 150."""
FUZZ = settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))


class Served:
    """A gateway with a Bundle that changes everything, on a scripted upstream."""

    def __init__(self, url: str, server: Server, upstream: ScriptedServer, client: httpx2.Client) -> None:
        self.url, self.server, self.upstream, self.client = url, server, upstream, client
        self.reply = Reply(answer="fine")
        self.lock = threading.Lock()

    def post(self, path: str, body: Any) -> httpx2.Response:
        raw = json.dumps(body).encode()
        return self.client.post(self.url + path, content=raw, headers={"x-whet-token": TOKENS[Role.WRITE]})


@pytest.fixture(scope="module", params=["spoken", "translated"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    speaks = ("chat",) if request.param == "translated" else ("chat", "responses", "messages")
    changed = [
        Version(resource="gateway.system_prompt", content={"text": "Be brief.", "mode": "append"}),
        Version(resource="gateway.parameters", content={"temperature": 0.1}),
    ]
    found: list[Served] = []
    with (
        Store(":memory:") as store,
        ScriptedServer(lambda _: found[0].reply, speaks=speaks) as upstream,
        httpx2.Client(verify=False, timeout=90) as client,
    ):
        store.set_live(Bundle(changed))
        end = Upstream(url=upstream.base_url, speaks=frozenset(speaks), tokens=True, idle_seconds=5)
        server = Server(Access(TOKENS), [Gateway(store, {"default": end})])
        with running(server) as url:
            found.append(Served(url, server, upstream, client))
            yield found[0]


def ask(path: str) -> dict[str, Any]:
    """A request that is in order."""
    what = {"input": "x"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "x"}]}
    return {"model": "scripted", **what}


@pytest.mark.parametrize("path", CALLS)
@FUZZ
@given(body=BODY)
def test_no_request_breaks_the_gateway(served: Served, path: str, body: dict[str, Any]) -> None:
    served.reply = Reply(answer="fine")
    answer = served.post(path, body)
    assert answer.status_code in (200, 400), answer.text
    assert served.server.bugs == 0


@pytest.mark.parametrize("path", CALLS)
@FUZZ
@given(found=ANSWER)
def test_no_answer_of_an_upstream_breaks_the_gateway(
    served: Served, path: str, found: dict[str, Any]
) -> None:
    served.reply = Reply(body=json.dumps(found).encode())
    answer = served.post(path, ask(path))
    assert answer.status_code in (200, 502), answer.text
    assert served.server.bugs == 0
    if answer.status_code == 502:
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize("path", CALLS)
@FUZZ
@given(events=st.lists(ANSWER | JSON, max_size=4))
def test_no_stream_of_an_upstream_breaks_the_gateway(served: Served, path: str, events: list[Any]) -> None:
    served.reply = Reply(events=[b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])
    answer = served.post(path, ask(path) | {"stream": True})
    assert answer.status_code in (200, 502), answer.text
    assert served.server.bugs == 0
