"""Permissions at the gateway: denied tool calls never reach the agent, in any API, streamed or not."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from gateway_world import HELLO, TOKEN, http, world
from processes import until

import whet
from whet.errors import PermissionDenied
from whet.models import Completion, ToolCall
from whet.models.fakes import Reply, ScriptedServer
from whet.record.permissions.enforcement import Enforcement
from whet.record.permissions.rules import PermissionRule, Permissions
from whet.record.tracing.assemble import Assembler
from whet.serve import Access, Role, Server, running, standard
from whet.serve.gateway import Upstream
from whet.serve.gateway.moderation import endpoint_moderation

LOOK, ERASE = (
    ToolCall(id="c1", name="look", arguments='{"path": "a.txt"}'),
    ToolCall(id="c2", name="erase", arguments='{"path": "../all"}'),
)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look", "erase")
]
LOOKS = PermissionRule(decision="allow", tool="look", reason="looking is harmless")


def held(**options: Any) -> Enforcement:
    return Enforcement(Permissions(rules=[LOOKS], **options))


def answers(*calls: ToolCall, text: str = "Let me see. ") -> ScriptedServer:
    return ScriptedServer([Completion(text=text, tool_calls=calls, finish="tool_calls")])


def chat(client: Any, *, stream: bool) -> tuple[str, list[str], str]:
    """Text, called tools and finish reason, as OpenAI's client reads them."""
    with client:
        return _chat(client, stream=stream)


def _chat(client: Any, *, stream: bool) -> tuple[str, list[str], str]:
    answer = client.chat.completions.create(model="scripted", messages=HELLO, tools=TOOLS, stream=stream)
    if not stream:
        (choice,) = answer.choices
        calls = [call.function.name for call in choice.message.tool_calls or ()]
        return choice.message.content or "", calls, choice.finish_reason
    text, calls, finish = "", [], ""
    for chunk in answer:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += [call.function.name for call in choice.delta.tool_calls or () if call.function.name]
            finish = choice.finish_reason or finish
    return text, calls, finish


@pytest.mark.parametrize("stream", [False, True])
def test_a_denied_call_is_replaced_by_a_sentence_and_the_others_stay(stream: bool) -> None:
    with answers(LOOK, ERASE) as upstream, world(upstream, enforcement=held(when_denied="tell")) as here:
        text, calls, finish = chat(here.openai(), stream=stream)
        record = here.call()

    assert calls == ["look"]
    assert text.startswith("Let me see. ")
    assert text.count("Let me see.") == 1
    assert "this call was not made" in text
    assert finish == "tool_calls"
    assert [refused["name"] for refused in record["refused"]] == ["erase"]
    assert "erase" not in str(record["response"]["choices"][0]["message"].get("tool_calls"))
    assert record["error"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_where_the_rules_end_a_run_no_call_is_left_and_the_run_is_blocked(stream: bool) -> None:
    store = whet.Store(":memory:")
    with answers(LOOK, ERASE) as upstream, world(upstream, store=store, enforcement=held()) as here:
        text, calls, finish = chat(here.openai(), stream=stream)
        here.call()
    Assembler(store, grace=0).flush()
    (run,) = store.trajectories()

    assert (calls, finish) == ([], "stop")
    assert "erase" in text
    assert run.outcome is whet.Outcome.BLOCKED


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_whose_calls_are_allowed_is_the_upstreams_to_the_byte(stream: bool) -> None:
    body = {"model": "scripted", "messages": HELLO, "tools": TOOLS, "stream": stream}
    seen = []
    for enforcement in (None, held()):
        with answers(LOOK) as upstream, world(upstream, enforcement=enforcement) as here:
            seen.append(http("POST", f"{here.base()}/v1/chat/completions", json=body).content)

    assert seen[0] == seen[1]
    assert b"look" in seen[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speaks", ["messages", "chat"])
def test_messages_are_screened_whatever_the_upstream_speaks(stream: bool, speaks: str) -> None:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("look", "erase")]
    asked: dict[str, Any] = {"model": "scripted", "max_tokens": 100, "messages": HELLO, "tools": tools}
    with answers(LOOK, ERASE) as upstream:
        at = {"default": Upstream(url=upstream.base_url, speaks=frozenset({speaks}))}
        with world(at, enforcement=held(when_denied="tell")) as here, here.anthropic() as client:
            if stream:
                with client.messages.stream(**asked) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**asked)

    assert [block.name for block in message.content if block.type == "tool_use"] == ["look"]
    text = "".join(block.text for block in message.content if block.type == "text")
    assert "this call was not made" in text
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("stream", [False, True])
def test_responses_are_screened_too(stream: bool) -> None:
    tools = [
        {"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("look", "erase")
    ]
    with answers(LOOK, ERASE) as upstream, world(upstream, enforcement=held(when_denied="tell")) as here:
        asked: dict[str, Any] = {"model": "scripted", "input": "hello", "tools": tools}
        with here.openai() as client:
            if stream:
                with client.responses.stream(**asked) as events:
                    response = events.get_final_response()
            else:
                response = client.responses.create(**asked)

    assert [item.name for item in response.output if item.type == "function_call"] == ["look"]
    assert "this call was not made" in response.output_text


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "a", "path": "../b"}', '{"path": ', '["x"', '{"path": "../up"}', '{"path": "\\u0000"}'],
)
def test_arguments_that_may_be_read_in_two_ways_are_refused(arguments: str) -> None:
    with (
        answers(ToolCall(id="c1", name="look", arguments=arguments)) as upstream,
        world(upstream, enforcement=held()) as here,
    ):
        _, calls, _ = chat(here.openai(), stream=False)

    assert calls == []


@pytest.mark.parametrize(
    ("path", "event"),
    [
        (
            "/chat/completions",
            {"choices": [{"index": 0, "delta": {"function_call": {"name": "erase", "arguments": "{}"}}}]},
        ),
        (
            "/responses",
            {"type": "response.output_item.added", "item": {"type": "function_call", "name": "erase"}},
        ),
    ],
)
def test_a_streamed_call_that_cannot_be_screened_ends_the_answer(path: str, event: Any) -> None:
    frame = f"data: {json.dumps(event)}\n\n".encode()
    asked = {"model": "scripted", "stream": True, "messages": HELLO, "input": "hello"}
    with ScriptedServer([Reply(events=[frame])]) as upstream, world(upstream, enforcement=held()) as here:
        answer = http("POST", f"{here.base()}/v1{path}", json=asked)

    assert frame not in answer.content
    assert b"permissions" in answer.content or b"the request does not have" in answer.content
    assert b"malformed_answer" in answer.content


def test_a_person_with_the_admins_token_allows_a_call_and_an_agent_cannot() -> None:
    rules = Permissions(
        rules=[PermissionRule(decision="ask", tool="erase", reason="ask first")], ask_seconds=90
    )
    store = whet.Store(":memory:")
    answered: list[tuple[str, list[str], str]] = []
    with answers(ERASE) as upstream:
        parts = standard(store, upstreams={"default": Upstream(url=upstream.base_url)}, permissions=rules)
        tokens = {Role.ADMIN: TOKEN, Role.WRITE: "whet-token-that-may-write"}
        with running(Server(Access(tokens), parts)) as url:
            import openai

            client = openai.OpenAI(
                base_url=f"{url}/v1", api_key="k", max_retries=0, default_headers={"x-whet-token": TOKEN}
            )
            asking = threading.Thread(target=lambda: answered.append(chat(client, stream=False)))
            asking.start()
            admin, agent = {"x-whet-token": TOKEN}, {"x-whet-token": "whet-token-that-may-write"}
            approvals = f"{url}/api/approvals"
            until(lambda: http("GET", approvals, headers=admin).json()["approvals"], "nobody is asked")
            pending = http("GET", approvals, headers=admin).json()["approvals"]
            answer = {"id": pending[0]["id"], "allow": True}
            assert http("POST", f"{url}/api/approvals", headers=agent, json=answer).status_code == 403
            assert http("POST", f"{url}/api/approvals", headers=admin, json=answer).status_code == 200
            asking.join(90)
            again = http("POST", f"{url}/api/approvals", headers=admin, json=answer)

    assert pending[0]["call"] == 'erase {"path":"../all"}'
    assert answered[0][1] == ["erase"]
    assert again.status_code == 404


def test_a_call_that_nobody_answers_in_time_is_denied() -> None:
    rules = Permissions(
        rules=[PermissionRule(decision="ask", tool="erase", reason="ask first")], ask_seconds=0.2
    )
    from whet.serve.approvals import Approvals

    with answers(ERASE) as upstream, world(upstream, enforcement=Enforcement(rules, Approvals().ask)) as here:
        _, calls, _ = chat(here.openai(), stream=False)

    assert calls == []


def mask(text: str) -> str | None:
    """A moderation: masks a name, and refuses a word."""
    if "bomb" in text:
        raise PermissionDenied("we do not answer this")
    return text.replace("Ada", "[name]") if "Ada" in text else None


def test_a_moderation_masks_what_is_sent_and_what_is_recorded() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "I am Ada"}]}]
    body = {"model": "scripted", "messages": messages}
    with ScriptedServer("hello") as upstream, world(upstream, moderation=mask) as here:
        http("POST", f"{here.base()}/v1/chat/completions", json=body)
        record = here.call()

    assert "Ada" not in str(upstream.requests[0].body)
    assert "Ada" not in str(record)
    assert "[name]" in str(record["request"])


def test_a_moderation_blocks_a_prompt_before_the_upstream_is_asked() -> None:
    store = whet.Store(":memory:")
    with ScriptedServer("hello") as upstream, world(upstream, store=store, moderation=mask) as here:
        blocked = http(
            "POST",
            f"{here.base()}/v1/chat/completions",
            json={"model": "scripted", "messages": [{"role": "user", "content": "a bomb"}]},
        )
        here.calls()
    Assembler(store, grace=0).flush()
    (run,) = store.trajectories()

    assert blocked.status_code == 400
    assert "we do not answer this" in blocked.text
    assert upstream.requests == []
    assert run.outcome is whet.Outcome.BLOCKED


def test_a_moderation_that_fails_lets_nothing_through() -> None:
    def broken(text: str) -> str:
        raise RuntimeError("away")

    with ScriptedServer("hello") as upstream, world(upstream, moderation=broken) as here:
        failed = http(
            "POST", f"{here.base()}/v1/chat/completions", json={"model": "scripted", "messages": HELLO}
        )

    assert failed.status_code == 503
    assert upstream.requests == []


def test_a_moderation_endpoint_that_does_not_answer_lets_nothing_through() -> None:
    with ScriptedServer("hello") as upstream:
        moderation = endpoint_moderation(f"{upstream.base_url}/moderations")
        body = {"model": "scripted", "messages": HELLO}
        with world(upstream, moderation=moderation) as here:
            failed = http("POST", f"{here.base()}/v1/chat/completions", json=body)

    assert failed.status_code == 503
