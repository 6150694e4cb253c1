"""Whose fault it was that an outside agent raised: told by the real clients' own exceptions, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

import whet
from whet.errors import BudgetExceeded, EnvError, ModelError, StoreError
from whet.models.fakes import Reply, ScriptedServer
from whet.record.faults import fault_of
from whet.record.tracing import flush
from whet.types import Fault, Outcome, Task

Ask = Callable[[str], Any]
CHAT: Any = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}


def by_openai(url: str) -> Any:
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    return client.chat.completions.create(**CHAT)


def by_anthropic(url: str) -> Any:
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="k", max_retries=0)
    return client.messages.create(max_tokens=5, **CHAT)


def by_httpx(url: str) -> Any:
    return httpx2.post(f"{url}/chat/completions", json=CHAT, timeout=90).raise_for_status()


def by_urllib(url: str) -> Any:
    body = json.dumps(CHAT).encode()
    asked = urllib.request.Request(
        f"{url}/chat/completions", data=body, headers={"content-type": "application/json"}
    )
    return urllib.request.urlopen(asked)


def raised(ask: Ask, url: str) -> Exception:
    try:
        ask(url)
    except Exception as error:
        return error
    raise AssertionError(f"{ask} was answered")


@pytest.fixture
def nowhere() -> str:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    return f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize(
    ("ask", "fault"),
    [
        (by_openai, Fault.MODEL),
        (by_anthropic, Fault.MODEL),
        (by_httpx, Fault.ENVIRONMENT),
        (by_urllib, Fault.ENVIRONMENT),
    ],
)
def test_an_endpoint_that_is_busy_broken_or_gone_is_no_fault_of_the_agent(
    ask: Ask, fault: Fault, nowhere: str
) -> None:
    for status in (429, 500, 503):
        with ScriptedServer(lambda _: Reply(status=status)) as server:  # noqa: B023 - called within the loop
            assert fault_of(raised(ask, server.base_url)) is fault, status
    assert fault_of(raised(ask, nowhere)) is fault


@pytest.mark.parametrize("ask", [by_openai, by_anthropic])
def test_a_key_that_is_refused_is_no_fault_of_the_agent_and_a_request_that_is_refused_is(ask: Ask) -> None:
    for status, fault in ((401, Fault.MODEL), (403, Fault.MODEL), (400, Fault.AGENT), (422, Fault.AGENT)):
        with ScriptedServer(lambda _: Reply(status=status)) as server:  # noqa: B023 - called within the loop
            assert fault_of(raised(ask, server.base_url)) is fault, status


def test_what_a_framework_makes_of_it_is_told_by_what_it_was_raised_from(nowhere: str) -> None:
    def framework(url: str) -> None:
        try:
            by_openai(url)
        except openai.OpenAIError as error:
            raise RuntimeError("the agent could not generate") from error

    assert fault_of(raised(framework, nowhere)) is Fault.MODEL


def test_an_endpoint_that_never_answers_is_no_fault_of_the_agent_and_its_own_clock_is() -> None:
    def patient(url: str) -> None:
        urllib.request.urlopen(f"{url}/models", timeout=0.2)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = raised(patient, f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    assert type(error) is TimeoutError
    assert fault_of(error) is Fault.ENVIRONMENT

    async def impatient() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    assert fault_of(raised(lambda _: asyncio.run(impatient()), "")) is Fault.AGENT


def test_a_loop_of_causes_ends() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert fault_of(one) is Fault.AGENT


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ValueError("no such file"), Fault.AGENT),
        (TimeoutError("its own clock"), Fault.AGENT),
        (PermissionError("a file"), Fault.AGENT),
        (ConnectionResetError(), Fault.ENVIRONMENT),
        (socket.gaierror(), Fault.ENVIRONMENT),
        (ModelError("down"), Fault.MODEL),
        (BudgetExceeded("calls"), Fault.MODEL),
        (EnvError("broken"), Fault.ENVIRONMENT),
        (StoreError("disk"), Fault.STORE),
    ],
)
def test_errors_of_our_own_and_of_python(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


def test_an_outage_is_recorded_and_judged_as_one(nowhere: str, tmp_path: Any) -> None:
    """A traced call and a rollout of the same agent: neither says that the agent failed."""
    store = whet.Store(tmp_path / "runs.db")

    @whet.trace(store)
    def agent(question: str) -> str:
        return str(by_openai(nowhere))

    with pytest.raises(openai.APIConnectionError):
        agent("Capital of France?")
    assert flush()
    (recorded,) = store.trajectories()
    assert (recorded.outcome, recorded.error and recorded.error.fault) == (
        Outcome.INFRASTRUCTURE_ERROR,
        Fault.MODEL,
    )
    calls = whet.calls(agent)
    task = Task(instruction="Capital of Spain?")
    done = asyncio.run(whet.rollout(calls(), calls.policy(whet.Bundle(), 0), task, seed=0))
    assert done.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert done.error is not None
    assert done.error.fault is Fault.MODEL
    store.close()
