"""What every check.py here does: run an agent behind the gateway, and compare the record with what it did.

The agents know nothing of whet.  The model is scripted: asked about the weather it wants the tool
`weather` called, and given the tool's result it says it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.types import Usage

QUESTION = "What is the weather in Paris?"
PROMPT = "You are a kind assistant. Be brief."
ANSWER = "It is 22 degrees in Paris."
DID: dict[str, Any] = {
    "prompt": PROMPT,
    "question": QUESTION,
    "calls": [["weather", {"city": "Paris"}]],
    "results": ["22 degrees in Paris"],
    "answer": ANSWER,
    "usage": [[21, 5], [34, 6]],
}
"""What an agent of the scripted model did, as `did` says it."""
DOCS = Path(__file__).parent.parent / "docs" / "integrations.md"
LIMIT = 120
"""Seconds that one command may take."""
_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


def weather(request: ModelRequest) -> Completion:
    """The scripted model."""
    results = [result for message in request.messages for result in tool_results(message)]
    if results:
        text = f"It is {results[-1]}."
        return Completion(text=text, usage=Usage(prompt_tokens=34, output_tokens=6))
    call = ToolCall(name="weather", arguments='{"city": "Paris"}', id="call_weather")
    used = Usage(prompt_tokens=21, output_tokens=5)
    return Completion(tool_calls=[call], usage=used, finish="tool_calls")


def tool_results(message: Mapping[str, Any]) -> list[str]:
    """The results of tools in a message: chat's has one, Anthropic's user turns have any number."""
    if message["role"] == "tool":
        return [message["content"]]
    blocks = message["content"] if isinstance(message.get("content"), list) else []
    return [block["content"] for block in blocks if block.get("type") == "tool_result"]


def environment(python: str | None = None, **more: str) -> dict[str, str]:
    """That of a user's shell: a key, no settings of ours, and the client's Python first on the path."""
    kept = {name: text for name, text in os.environ.items() if name not in _OURS}
    if python is not None:
        kept["PATH"] = f"{Path(python).parent}{os.pathsep}{kept['PATH']}"
    return kept | {"OPENAI_API_KEY": "sk-test", "ANTHROPIC_API_KEY": "sk-test"} | more


def done(command: Sequence[str], *, environ: Mapping[str, str], folder: Path) -> str:
    """What a command printed.

    Raises:
        AssertionError: it failed; says what it wrote.
    """
    ended = subprocess.run(
        command, env=dict(environ), cwd=folder, capture_output=True, text=True, timeout=LIMIT
    )
    assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def record(
    command: Sequence[str], upstream: ScriptedServer, folder: Path, *, run: str, options: Sequence[str] = ()
) -> tuple[str, list[dict[str, Any]]]:
    """What a program printed behind `whet run`, and what `whet show trajectories` then shows of its run."""
    whet = [sys.executable, "-m", "whet"]
    address = ["--store", "runs.db", "--upstream", upstream.base_url, "--run-id", run, *options]
    printed = done([*whet, "run", *address, "--", *command], environ=environment(), folder=folder)
    show = [*whet, "show", "trajectories", "--store", "runs.db", "--run", run, "--json"]
    return printed, lines(done(show, environ=environment(), folder=folder))


def lines(printed: str) -> list[dict[str, Any]]:
    """One object a line."""
    return [json.loads(line) for line in printed.splitlines()]


def did(trajectory: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent did, of what was shown: prompt, question, calls of tools, results, answer and usage."""
    models = [step for step in trajectory["steps"] if step["kind"] == "llm"]
    messages = models[-1]["input_messages"]

    def said(role: str) -> list[str]:
        return [message["text"] for message in messages if message["role"] == role]

    calls = [call for step in models for call in step["output"].get("tool_calls", ())]
    assert [step["error"] for step in models] == [None] * len(models), models
    return {
        "prompt": (said("system") or said("developer") or [None])[0],
        "question": said("user")[0],
        "calls": [[call["name"], call["arguments"]] for call in calls],
        "results": said("tool"),
        "answer": models[-1]["output"].get("text"),
        "usage": [[step["usage"]["input"], step["usage"]["output"]] for step in models],
    }


def documented(name: str) -> list[list[str]]:
    """The commands of docs/integrations.md in the section that links to this folder."""
    sections = DOCS.read_text(encoding="utf-8").split("\n## ")
    (section,) = [each for each in sections if f"](../integrations/{name})" in each]
    _, block = section.split("```bash\n")
    return [shlex.split(line, comments=True) for line in block.partition("```")[0].splitlines()]


def as_documented(
    name: str, agent: Path, python: str, upstream: ScriptedServer, folder: Path
) -> dict[str, Any]:
    """The one trajectory that the documented commands show of an agent, run as they stand.

    Args:
        python: the client's; `whet` is ours.
    """
    place = folder / "documented"
    place.mkdir()
    shutil.copy(agent, place)
    address = upstream.base_url
    environ = environment(OPENAI_BASE_URL=address, ANTHROPIC_BASE_URL=address.removesuffix("/v1"))
    ours = [str(Path(python).parent), str(Path(sys.executable).parent), environ["PATH"]]
    environ["PATH"] = os.pathsep.join(ours)
    printed = [done(command, environ=environ, folder=place) for command in documented(name)]
    (trajectory,) = lines(printed[-1])
    return trajectory


@dataclass(frozen=True)
class Wired:
    """A copy of a repository after `whet init`, `git apply` and the command that init proposed."""

    copy: Path
    proposed: dict[str, Any]
    """What init said."""
    printed: str
    trajectory: dict[str, Any]
    """What `whet show trajectories` says of it."""
    findings: list[dict[str, str]]
    """What doctor then said."""

    def says(self, level: str, words: str) -> dict[str, str]:
        """The finding of doctor with these words."""
        found = [one for one in self.findings if one["level"] == level and words in one["what"]]
        assert len(found) == 1, (level, words, self.findings)
        return found[0]


def wire(
    repo: Path, python: str, folder: Path, *, model: Callable[[ModelRequest], Completion] = weather
) -> Wired:
    """Do with a repository what a user does in the first minutes.

    Args:
        python: of an environment that has the repository's framework and whet.
        model: stands behind the gateway.
    """
    copy = folder / repo.parent.name
    shutil.copytree(repo, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with ScriptedServer(model, models=("gpt-4o-mini",)) as upstream:
        environ = environment(python, OPENAI_BASE_URL=upstream.base_url)

        def user(command: Sequence[str]) -> str:
            return done(command, environ=environ, folder=copy)

        proposed = json.loads(user(["whet", "init", "--json"]))
        assert proposed["changed_lines"] <= 3, proposed
        # What the documentation says, as it stands: it may promise nothing else than init proposes.
        commands = documented(repo.parent.name)
        assert (["git", "apply", ".whet/wiring.patch"] in commands) == bool(proposed["diff"]), commands
        *_, printed, shown = [(command, user(command)) for command in commands]
        assert printed[0] == proposed["command"].split(), (commands, proposed)
    doctor = subprocess.run(
        ["whet", "doctor", "--json"], env=environ, cwd=copy, capture_output=True, text=True, timeout=LIMIT
    )
    (trajectory,) = lines(shown[1])
    return Wired(copy, proposed, printed[1], trajectory, json.loads(doctor.stdout))


def wired_as_usual(wired: Wired, framework: str) -> None:
    """What holds for every repository whose answering function is traced.

    Raises:
        AssertionError: something else was proposed, printed or recorded.
    """
    assert (wired.proposed["framework"], wired.proposed["changed_lines"]) == (framework, 2), wired.proposed
    assert wired.printed.splitlines()[-1] == ANSWER, wired.printed
    shown = wired.trajectory
    # The traced function and the model calls that the gateway saw in it are one.
    assert (shown["meta"]["function"], shown["output"], shown["error"]) == ("answer", ANSWER, None), shown
    # The gateway saw the tool's call and its result in the messages.
    assert [step["kind"] for step in shown["steps"]] == ["llm", "tool", "llm"], shown
    wired.says("ok", f"{framework} is wired")
    wired.says("ok", "`whet serve` and `whet run` can start")
