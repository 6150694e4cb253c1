"""The real openai and anthropic clients, with only their base URL changed, behind every kind of upstream."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from gateway_world import HELLO, World, world

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import Reply, ScriptedServer
from whet.models.scripted import Answer
from whet.types import Usage

ALL = frozenset({"chat", "responses", "messages"})
CHAT_ONLY = frozenset({"chat"})
MESSAGES_ONLY = frozenset({"messages"})
CALLS = [
    ToolCall(name="weather", arguments='{"city":"Paris","days":2}', id="call_a"),
    ToolCall(name="time", arguments='{"zone":"CET"}', id="call_b"),
]
ANSWERS = {
    "use the tools": CALLS,
    "talk and use a tool": Completion(
        text="Let me look.", tool_calls=CALLS[:1], finish="tool_calls", usage=Usage(7, 9, calls=1)
    ),
    "too long": Completion(text="and so on", finish="length", usage=Usage(3, 3, calls=1)),
    "22 degrees": "It is 22 degrees in Paris.",
    "hello": "Good day to you.",
}


def script(request: ModelRequest) -> Answer:
    last = str(request.messages[-1])  # a tool's result is no text of the Messages API's
    return next(answer for words, answer in ANSWERS.items() if words in last)


CHAT_TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Weather", "parameters": {"type": "object"}},
    }
]
RESPONSES_TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
MESSAGES_TOOLS = [{"name": "weather", "description": "Weather", "input_schema": {"type": "object"}}]


@pytest.fixture(
    scope="module", params=[ALL, CHAT_ONLY, MESSAGES_ONLY], ids=["spoken", "to chat", "to messages"]
)
def served(request: pytest.FixtureRequest) -> Iterator[World]:
    """A gateway whose upstream speaks all three APIs, and such as speak chat or Messages only."""
    speaks: frozenset[str] = request.param
    with (
        ScriptedServer(script, speaks=tuple(speaks)) as upstream,
        world(upstream, options={"speaks": speaks}) as made,
    ):
        yield made


def turn(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_openai_chat(served: World) -> None:
    with served.openai("chat") as client:
        said = client.chat.completions.create(model="scripted", messages=HELLO)
    assert said.choices[0].message.content == "Good day to you."
    assert said.usage is not None
    call = served.call("chat")
    assert call["request"]["messages"] == HELLO
    assert call["response"]["choices"][0]["message"]["content"] == "Good day to you."
    assert call["usage"] == {"input": 1, "output": 4, "cached_input": 0, "reasoning": 0}
    assert (call["status"], call["error"], call["api"], call["model"]) == (200, None, "chat", "scripted")


def test_openai_chat_streamed(served: World) -> None:
    with served.openai("chat-stream") as client:
        stream = client.chat.completions.create(model="scripted", messages=HELLO, stream=True)
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Good day to you."
    assert all(chunk.choices for chunk in chunks), "usage was not asked for and must not be told"
    call = served.call("chat-stream")
    assert call["response"]["choices"][0]["message"]["content"] == text
    assert call["usage"]["output"] == 4
    assert 0 < call["first_event"] <= call["latency"]


def test_openai_chat_streamed_with_usage(served: World) -> None:
    with served.openai("chat-usage") as client:
        options = {"include_usage": True}
        chunks = list(
            client.chat.completions.create(
                model="scripted", messages=HELLO, stream=True, stream_options=options
            )
        )
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_openai_chat_tools(served: World) -> None:
    with served.openai("chat-tools") as client:
        said = client.chat.completions.create(
            model="scripted", messages=turn("use the tools"), tools=CHAT_TOOLS
        )
        calls = said.choices[0].message.tool_calls
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            (call.name, call.arguments) for call in CALLS
        ]
        with client.chat.completions.stream(
            model="scripted", messages=turn("use the tools"), tools=CHAT_TOOLS
        ) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls
    assert [call.function.arguments for call in streamed] == [call.arguments for call in CALLS]
    plain, assembled = served.calls("chat-tools")
    for call in (plain, assembled):
        made = call["response"]["choices"][0]["message"]["tool_calls"]
        assert [each["function"]["arguments"] for each in made] == [each.arguments for each in CALLS]
        assert [each["id"] for each in made] == ["call_a", "call_b"]


def test_openai_responses(served: World) -> None:
    with served.openai("responses") as client:
        said = client.responses.create(model="scripted", input="hello", instructions="Be kind.")
    assert said.output_text == "Good day to you."
    assert said.status == "completed"
    assert said.usage is not None
    assert said.usage.output_tokens == 4
    call = served.call("responses")
    assert (call["api"], call["request"]["instructions"]) == ("responses", "Be kind.")
    assert call["response"]["output"][0]["content"][0]["text"] == "Good day to you."
    assert call["usage"]["output"] == 4


def test_openai_responses_streamed(served: World) -> None:
    with (
        served.openai("responses-stream") as client,
        client.responses.stream(model="scripted", input="hello") as stream,
    ):
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == "Good day to you."
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds.count("response.output_text.delta") == 4
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert served.call("responses-stream")["response"]["status"] == "completed"


def test_openai_responses_tools_and_their_results(served: World) -> None:
    with served.openai("responses-tools") as client:
        first = client.responses.create(
            model="scripted", input=turn("talk and use a tool"), tools=RESPONSES_TOOLS
        )
        assert [item.type for item in first.output] == ["message", "function_call"]
        made = first.output[1]
        assert (made.name, made.arguments, made.call_id) == ("weather", CALLS[0].arguments, "call_a")
        result = {"type": "function_call_output", "call_id": made.call_id, "output": "22 degrees"}
        history = [*turn("talk and use a tool"), *[item.model_dump() for item in first.output], result]
        second = client.responses.create(model="scripted", input=history, tools=RESPONSES_TOOLS)
        assert second.output_text == "It is 22 degrees in Paris."
        with client.responses.stream(
            model="scripted", input=turn("use the tools"), tools=RESPONSES_TOOLS
        ) as stream:
            streamed = [item.arguments for item in stream.get_final_response().output]
    assert streamed == [call.arguments for call in CALLS]


def test_openai_responses_that_ran_out_of_room(served: World) -> None:
    with served.openai() as client:
        said = client.responses.create(model="scripted", input="too long")
        assert said.status == "incomplete"
        assert said.incomplete_details is not None
        assert said.incomplete_details.reason == "max_output_tokens"
        events = list(client.responses.create(model="scripted", input="too long", stream=True))
    assert events[-1].type == "response.incomplete"
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_anthropic_messages(served: World) -> None:
    with served.anthropic("messages") as client:
        said = client.messages.create(model="scripted", max_tokens=50, system="Be kind.", messages=HELLO)
    assert said.content[0].text == "Good day to you."
    assert (said.stop_reason, said.usage.output_tokens) == ("end_turn", 4)
    call = served.call("messages")
    assert (call["api"], call["request"]["system"]) == ("messages", "Be kind.")
    assert call["response"]["content"] == [{"type": "text", "text": "Good day to you."}]
    assert call["usage"]["output"] == 4


def test_anthropic_messages_streamed(served: World) -> None:
    with (
        served.anthropic("messages-stream") as client,
        client.messages.stream(model="scripted", max_tokens=50, messages=HELLO) as stream,
    ):
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "Good day to you."
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 4)
    call = served.call("messages-stream")
    assert call["response"]["content"] == [{"type": "text", "text": text}]
    assert call["response"]["stop_reason"] == "end_turn"


def test_anthropic_tools_and_their_results(served: World) -> None:
    ask = turn("talk and use a tool")
    with served.anthropic("messages-tools") as client:
        first = client.messages.create(model="scripted", max_tokens=50, messages=ask, tools=MESSAGES_TOOLS)
        assert [block.type for block in first.content] == ["text", "tool_use"]
        used = first.content[1]
        assert (first.stop_reason, used.name, used.input) == (
            "tool_use",
            "weather",
            {"city": "Paris", "days": 2},
        )
        result = {"type": "tool_result", "tool_use_id": used.id, "content": "22 degrees"}
        history = [
            *ask,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [result, {"type": "text", "text": "22 degrees, then"}]},
        ]
        second = client.messages.create(
            model="scripted", max_tokens=50, messages=history, tools=MESSAGES_TOOLS
        )
        assert second.content[0].text == "It is 22 degrees in Paris."
        with client.messages.stream(
            model="scripted", max_tokens=50, messages=turn("use the tools"), tools=MESSAGES_TOOLS
        ) as stream:
            blocks = stream.get_final_message().content
    assert [block.input for block in blocks] == [{"city": "Paris", "days": 2}, {"zone": "CET"}]
    assert served.calls("messages-tools")[2]["response"]["content"][1]["input"] == {"zone": "CET"}


def test_async_clients_side_by_side_are_never_mixed(served: World) -> None:
    async def ask(number: int) -> None:
        run = f"side-{number}"
        async with served.async_openai(run) as openai, served.async_anthropic(run) as anthropic:
            plain = openai.chat.completions.create(model="scripted", messages=turn(f"hello {number}"))
            item = openai.responses.create(model="scripted", input=f"hello {number}")
            message = anthropic.messages.create(
                model="scripted", max_tokens=9, messages=turn(f"hello {number}")
            )
            stream = await openai.chat.completions.create(
                model="scripted", messages=turn(f"hello {number}"), stream=True
            )
            async for _ in stream:
                pass
            await asyncio.gather(plain, item, message)

    async def everyone() -> None:
        await asyncio.gather(*(ask(number) for number in range(4)))

    asyncio.run(everyone())
    for number in range(4):
        calls = served.calls(f"side-{number}")
        assert sorted(call["api"] for call in calls) == ["chat", "chat", "messages", "responses"]
        for call in calls:
            assert f"hello {number}" in str(call["request"])


def test_the_models_of_the_upstream_are_listed(served: World) -> None:
    with served.openai() as client:
        assert [model.id for model in client.models.list()] == ["scripted"]


def test_two_samples_of_one_prompt_are_both_kept() -> None:
    with ScriptedServer(["one", "two", "three", "four"]) as upstream, world(upstream) as served:
        with served.openai() as client:
            said = client.chat.completions.create(model="scripted", messages=HELLO, n=2)
            chunks = list(client.chat.completions.create(model="scripted", messages=HELLO, n=2, stream=True))
        assert [choice.message.content for choice in said.choices] == ["one", "two"]
        streamed = {choice.index for chunk in chunks for choice in chunk.choices}
        assert streamed == {0, 1}
        plain, assembled = served.calls()
        for call, words in ((plain, ["one", "two"]), (assembled, ["three", "four"])):
            assert [choice["message"]["content"] for choice in call["response"]["choices"]] == words


def test_the_same_request_twice_is_two_calls() -> None:
    with ScriptedServer(["first", "second"]) as upstream, world(upstream) as served:
        with served.openai() as client:
            for _ in range(2):
                client.chat.completions.create(model="scripted", messages=HELLO)
        said = [call["response"]["choices"][0]["message"]["content"] for call in served.calls()]
        assert said == ["first", "second"]


def test_an_event_is_passed_on_before_the_next_one_exists() -> None:
    seen = threading.Event()
    in_time: list[bool] = []

    def events() -> Iterator[bytes]:
        yield b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
        in_time.append(seen.wait(90))
        yield b'data: {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]}\n\n'
        yield b"data: [DONE]\n\n"

    with (
        ScriptedServer([Reply(events=events())]) as upstream,
        world(upstream) as served,
        served.openai() as client,
    ):
        text = ""
        for chunk in client.chat.completions.create(model="scripted", messages=HELLO, stream=True):
            text += chunk.choices[0].delta.content or ""
            seen.set()
    assert (text, in_time) == ("ab", [True])
