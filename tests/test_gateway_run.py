"""`whet run -- CMD`: a program is recorded without being changed, and behaves as it would without."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from processes import python, until

from whet.errors import InputError
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.serve.gateway.launch import ANTHROPIC, OPENAI, child_environment, run_child, upstreams_of

AGENT = """
import json, os, sys, urllib.request
def post(base, path, body, **headers):
    headers = {"content-type": "application/json"} | {n.replace("_", "-"): v for n, v in headers.items()}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))
said = post(os.environ["OPENAI_BASE_URL"], "/chat/completions",
    {"model": "scripted", "messages": [{"role": "user", "content": sys.argv[1]}]},
    authorization="Bearer " + os.environ["OPENAI_API_KEY"])
print(said["choices"][0]["message"]["content"])
other = post(os.environ["ANTHROPIC_BASE_URL"], "/v1/messages",
    {"model": "scripted", "max_tokens": 9, "messages": [{"role": "user", "content": sys.argv[1]}]},
    x_api_key=os.environ["ANTHROPIC_API_KEY"])
print(other["content"][0]["text"])
span = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "agent",
    "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
name, _, value = os.environ["OTEL_RESOURCE_ATTRIBUTES"].partition("=")
resource = {"attributes": [{"key": name, "value": {"stringValue": value}}]}
header, _, token = os.environ["OTEL_EXPORTER_OTLP_HEADERS"].partition("=")
post(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], "/v1/traces",
    {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}, **{header: token})
print("bye", file=sys.stderr)
sys.exit(7)
"""


KEYS = {"OPENAI_API_KEY": "sk-mine", "ANTHROPIC_API_KEY": "sk-mine"}


def whet(*words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "whet", *words]


def ran(*words: object, **given: Any) -> subprocess.CompletedProcess[str]:
    return python("-W", "error", "-m", "whet", *words, **given)


def test_a_program_is_recorded_and_its_output_and_exit_code_are_its_own(tmp_path: Path) -> None:
    agent, store = tmp_path / "agent.py", tmp_path / "runs.db"
    agent.write_text(AGENT)
    with ScriptedServer("fine", speaks=("chat",)) as upstream:
        command = ("run", "--store", store, "--upstream", upstream.base_url, "--run-id", "first")
        done = ran(*command, "--", sys.executable, agent, "--hello", **KEYS)
    assert (done.returncode, done.stdout) == (7, "fine\nfine\n"), done.stderr
    assert done.stderr.startswith("bye\n")
    assert "2 model calls recorded" in done.stderr
    assert f"whet show trajectories --store {store} --run first" in done.stderr
    assert {received.headers["authorization"] for received in upstream.requests} == {"Bearer sk-mine"}
    shown = ran("show", "trajectories", "--store", store, "--run", "first", "--json")
    assert shown.returncode == 0, shown.stderr
    steps = [step for line in shown.stdout.splitlines() for step in json.loads(line)["steps"]]
    assert [step["output"]["text"] for step in steps if step["kind"] == "llm"] == ["fine", "fine"]
    assert {step["input_messages"][0]["text"] for step in steps if step["kind"] == "llm"} == {"--hello"}
    with Store(store) as opened:
        spans = opened.spans.run("first")
        assert {span.encoding for span in spans} == {"call+json", "span+json"}
        assert not any(b"sk-mine" in span.body for span in spans)


@pytest.mark.parametrize("own", ["runs.db", "others.db"])
def test_a_program_that_traces_into_another_store_is_told(tmp_path: Path, own: str) -> None:
    (tmp_path / "agent.py").write_text(
        f"import whet\n@whet.trace({own!r})\ndef answer(question):\n    return question\nanswer('hello')\n"
    )
    done = ran("run", "--store", "runs.db", "--", sys.executable, "agent.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("they are not put together" in done.stderr) is (own == "others.db"), done.stderr


def test_a_signal_reaches_the_program_and_its_end_is_told(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    running = subprocess.Popen(
        whet("run", "--store", str(tmp_path / "runs.db"), "--", sys.executable, "-c", code),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(90) == 42
    finally:
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()


def test_the_end_of_a_program_is_passed_through() -> None:
    python = [sys.executable, "-c"]
    assert run_child([*python, "raise SystemExit(5)"], os.environ) == 5
    assert run_child([*python, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], os.environ) == 137


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_child([str(tmp_path / "missing")], os.environ) == 127
    assert run_child([str(tmp_path)], os.environ) == 126
    assert "cannot run" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no program was given"),
        (("--url", "http://127.0.0.1:1", "--", "true"), "no token"),
        (("--upstream", "nowhere", "--", "true"), "must look like http"),
        (("--run-id", "a,b", "--", "true"), "run id"),
    ],
    ids=["no program", "no token", "bad upstream", "bad run"],
)
def test_what_cannot_be_used_is_one_line_and_a_code(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.cli import main

    given = () if "--url" in words or not words else ("--store", str(tmp_path / "runs.db"))
    with pytest.raises(SystemExit) as caught:
        main(["run", *given, *words])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_store_that_is_served_already_can_be_reached_by_its_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.cli import main

    with Store(tmp_path / "runs.db", serve=True), pytest.raises(SystemExit) as caught:
        main(["run", "--store", str(tmp_path / "runs.db"), "--", "true"])
    assert caught.value.code == 4
    assert "whet run --url" in capsys.readouterr().err


def test_the_environment_names_the_upstreams() -> None:
    assert {name: end.url for name, end in upstreams_of({}).items()} == {
        "openai": OPENAI,
        "anthropic": ANTHROPIC,
    }
    named = upstreams_of({"OPENAI_BASE_URL": "http://a/v1", "ANTHROPIC_BASE_URL": "http://b"})
    assert [(end.url, sorted(end.speaks)) for end in named.values()] == [
        ("http://a/v1", ["chat"]),
        ("http://b/v1", ["messages"]),
    ]
    (given,) = upstreams_of({"WHET_UPSTREAM_KEY": "sk-own"}, "http://c/v1", tokens=True).values()
    assert (given.url, given.key, given.tokens) == ("http://c/v1", "sk-own", True)


def test_the_child_does_not_see_the_upstreams_key_and_keeps_its_own_attributes() -> None:
    before = {
        "WHET_UPSTREAM_KEY": "sk-own",
        "OPENAI_API_KEY": "sk-mine",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=agent",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://elsewhere",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://elsewhere",
    }
    made = child_environment(before, url="http://127.0.0.1:9", run="a b", token="t", own_key=True)
    assert "sk-own" not in made.values()
    assert (made["OPENAI_API_KEY"], made["ANTHROPIC_API_KEY"]) == ("sk-mine", "none-needed")
    assert made["OTEL_RESOURCE_ATTRIBUTES"] == "service.name=agent,whet.run=a%20b"
    assert made["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "http://127.0.0.1:9/v1/traces"
    assert "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" not in made
    assert made["OPENAI_BASE_URL"] == "http://127.0.0.1:9/run/a%20b/t/v1"
    with pytest.raises(InputError, match="run id"):
        child_environment({}, url="http://127.0.0.1:9", run="a\nb", token="t")


def test_a_running_server_can_be_used(tmp_path: Path) -> None:
    from gateway_world import TOKEN, world

    agent = tmp_path / "agent.py"
    agent.write_text(AGENT.replace('post(os.environ["OTEL', '0 and post(os.environ["OTEL'))
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        command = ("run", "--url", made.url, "--token", TOKEN, "--run-id", "far")
        done = ran(*command, "--", sys.executable, agent, "hello", **KEYS)
        assert done.returncode == 7, done.stderr
        assert sorted(call["api"] for call in made.calls("far")) == ["chat", "messages"]
    assert f"recorded by {made.url} as run far" in done.stderr


def test_a_program_is_not_started_where_nothing_would_record_it(tmp_path: Path) -> None:
    from gateway_world import TOKEN, world

    mark = tmp_path / "began"
    program = ("--", sys.executable, "-c", f"open({str(mark)!r}, 'w')")
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        refused = ran("run", "--url", made.url, "--token", "wrong", *program)
        given = ("--url", made.url, "--token", TOKEN)
    away = ran("run", *given, *program)
    assert (refused.returncode, away.returncode) == (2, 4)
    assert "refused (401)" in refused.stderr
    assert "Is `whet serve` running there?" in away.stderr
    for done in (refused, away):
        assert done.stderr.count("\n") == 1
    assert not mark.exists()


def test_what_was_said_to_be_recorded_survives_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    with ScriptedServer("fine") as upstream, httpx2.Client(verify=False, timeout=90) as client:
        command = whet("serve", "--store", str(store), "--port", "0", "--upstream", upstream.base_url)
        serving = subprocess.Popen(
            [*command, "--token", "t"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert serving.stdout is not None
            found = re.search(r"http://[\d.:]+", serving.stdout.readline())
            assert found is not None
            body = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
            for number in range(30):
                url = f"{found[0]}/run/r{number % 3}/t/v1/chat/completions"
                assert client.post(url, json=body).status_code == 200

            def gateway() -> dict[str, int]:
                headers = {"x-whet-token": "t"}
                return dict(client.get(f"{found[0]}/api/gateway", headers=headers).json())

            until(lambda: not gateway()["waiting"])
            status = gateway()
            assert (status["recorded"], status["lost"]) == (30, 0)
        finally:
            serving.kill()
            serving.wait()
            assert serving.stdout is not None
            serving.stdout.close()
    with Store(store) as opened:
        assert [len(opened.spans.run(f"r{number}")) for number in range(3)] == [10, 10, 10]
