"""`whet permissions`, and `whet run --permissions` around a real program that nobody watches."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from commands import answered, command
from processes import python

import whet
from whet.models import Completion, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.permissions.files import load_permissions
from whet.record.store import Store

RULES = {
    "rules": [
        {"decision": "deny", "path": ["**/.env"], "reason": "secrets"},
        {"decision": "allow", "tool": "bash", "command": ["ls *", "cat *"], "reason": "looking"},
        {"decision": "ask", "tool": "erase", "reason": "it is gone then"},
    ]
}
AGENT = """
import json, os, sys, urllib.request
import whet
from whet.errors import PermissionDenied

@whet.step(kind="tool")
def erase(path):
    open("erased", "w").close()
    return "erased " + path

@whet.step(kind="tool")
def unknown():
    open("called", "w").close()

request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "tidy"}],
        "tools": [{"type": "function", "function": {"name": "erase"}}]}).encode(),
    {"content-type": "application/json", "authorization": "Bearer x"})
message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
print(len(message.get("tool_calls") or []), message["content"])
for tool in (lambda: erase("a"), unknown):
    try:
        print(tool())
    except PermissionDenied as denied:
        print(denied)
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(RULES))
    return file


def test_a_file_is_tried_on_a_call(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allowed = command(capsys, "permissions", rules, "--call", "bash", "--arguments", '{"command": "ls src"}')
    denied = command(capsys, "permissions", rules, "--call", "bash", "--arguments", '{"command": "ls; rm x"}')
    looked = command(capsys, "permissions", rules)

    assert (allowed.returncode, denied.returncode, looked.returncode) == (0, 1, 0)
    assert "bash (ls src) is allowed by rule 2: looking" in allowed.stdout
    assert "bash (rm x) is denied" in denied.stdout
    assert "3 rules, else deny" in looked.stdout


def test_bad_input_says_what_to_do(rules: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, message in [
        ([], "give a rule file"),
        ([rules, "--call", "bash", "--arguments", "{"], "give an object"),
        ([tmp_path / "none.json"], "there is no rule file"),
        (["--draft", tmp_path / "new.json"], "--draft needs --store"),
        (["--draft", rules, "--store", tmp_path / "runs.db"], "does not replace rules"),
    ]:
        done = command(capsys, "permissions", *words)
        assert done.returncode == 2
        assert message in done.stderr


def recorded(path: Path) -> None:
    calls = [
        ("bash", {"command": "ls src"}),
        ("bash", {"command": "cat ../x"}),
        ("fetch", {"url": "https://a.example/x"}),
    ]
    steps = [
        whet.Step(kind="tool", name=name, observation=arguments, action="x") for name, arguments in calls
    ]
    with Store(path) as store, store.batch() as batch:
        batch.put(whet.Trajectory(task=whet.Task(instruction="q"), steps=steps))


def test_a_record_is_decided_and_rules_are_drafted_from_it(
    rules: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, draft = tmp_path / "runs.db", tmp_path / "draft.json"
    recorded(store)

    decided = answered(capsys, "permissions", "--draft", draft, "--store", store, "--json")
    counted = command(capsys, "permissions", rules, "--store", store)
    drafted = load_permissions(draft)

    assert decided["default"] == "ask"
    assert counted.returncode == 1
    assert "3 recorded tool calls: 1 allowed, 0 left to a person, 2 denied" in counted.stdout
    assert drafted.decide("bash", {"command": "ls docs"}).decision == "allow"
    assert drafted.decide("bash", {"command": "cat ../x"}).decision == "ask"
    assert drafted.decide("fetch", {"url": "https://a.example/y"}).decision == "allow"
    assert drafted.decide("bash", {"command": "ls .env"}).decision == "deny"


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": "sk-mine", "PYTHONPATH": str(Path(whet.__file__).parents[1])}


def run_words(rules: Path, tmp_path: Path, upstream: ScriptedServer) -> list[str]:
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    held = [
        "run",
        "--store",
        str(tmp_path / "runs.db"),
        "--upstream",
        upstream.base_url,
        "--permissions",
        str(rules),
    ]
    return [*held, "--", sys.executable, str(agent)]


def scripted() -> ScriptedServer:
    call = ToolCall(id="c1", name="erase", arguments='{"path": "a"}')
    return ScriptedServer([Completion(text="", tool_calls=(call,), finish="tool_calls")], speaks=("chat",))


def test_a_program_that_nobody_watches_is_held_and_asking_is_denying(rules: Path, tmp_path: Path) -> None:
    with scripted() as upstream:
        words = run_words(rules, tmp_path, upstream)
        # A session of its own has no terminal.
        done = subprocess.run(
            [sys.executable, "-m", "whet", *words],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=300,
        )

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0].startswith("0 [whet: this call was not made. erase")
    assert "it is gone then (nobody allowed it)" in done.stdout
    assert "unknown is denied: no rule matches it" in lines[-1]
    assert not (tmp_path / "erased").exists()
    assert not (tmp_path / "called").exists()


def test_a_person_at_the_terminal_allows_a_call(rules: Path, tmp_path: Path) -> None:
    with scripted() as upstream:
        words = run_words(rules, tmp_path, upstream)
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(tmp_path)
            os.execve(sys.executable, [sys.executable, "-m", "whet", *words], environment(tmp_path))
        shown = b""
        timer = threading.Timer(60, os.kill, (child, 9))
        timer.start()
        answers_given = 0
        try:
            while chunk := os.read(terminal, 4_096):
                shown += chunk
                if shown.count(b"[y/N") > answers_given:
                    answers_given += 1
                    os.write(terminal, b"y\n")
        except OSError:  # Linux says so where the other side is closed
            pass
        timer.cancel()
        os.waitpid(child, 0)
        os.close(terminal)

    assert b'the agent wants to call erase {"path":"a"}' in shown
    assert answers_given == 2  # of the model's answer, and of the program's own tool
    assert (tmp_path / "erased").exists()
    assert not (tmp_path / "called").exists()


def test_a_bad_rule_file_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text('{"rules": [{"decision": "allow"}]}')

    done = python(
        "-m", "whet", "run", "--permissions", tmp_path / "rules.json", "--", sys.executable, "-c", "print(1)"
    )

    assert done.returncode == 2
    assert "rule 1 has no reason" in done.stderr
    assert done.stdout == ""
