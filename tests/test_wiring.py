"""`whet init` and `whet doctor` on small repositories of five kinds, and on what is no agent at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from whet.errors import InputError
from whet.repository.diagnose import diagnose
from whet.repository.propose import LINES, installation, propose, source
from whet.repository.scan import scan

OPENAI = '''"""Answers questions about orders."""
import json
from openai import OpenAI

SYSTEM = """You answer questions about orders.
Be brief."""
LOOKUP = {"name": "lookup", "parameters": {"type": "object", "properties": {"order": {"type": "string"}}}}
client = OpenAI()


def lookup(order: str) -> str:
    return {"17": "shipped"}.get(order, "unknown")


def ask(messages):
    return client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=[
        {"type": "function", "function": LOOKUP}
    ])


def answer(question: str) -> str:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return ask(messages).choices[0].message.content


def main():
    print(answer(input("> ")))


if __name__ == "__main__":
    main()
'''
LANGGRAPH = '''from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def weather(city: str):
    agent = create_react_agent(ChatOpenAI(model="x"), [get_weather], prompt="You are a weather agent. Be brief.")
    return agent.invoke({"messages": [("user", city)]})["messages"][-1].content


if __name__ == "__main__":
    print(weather("Paris"))
'''
CREWAI = """from crewai import Agent, Crew, Task

researcher = Agent(role="researcher", goal="Find what is new in a field", backstory="You have read everything twice.")


def research(topic: str) -> str:
    task = Task(description=f"Research {topic}", expected_output="a list", agent=researcher)
    return Crew(agents=[researcher], tasks=[task]).kickoff().raw
"""
AUTOGEN = """import asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def add(a: int, b: int) -> int:
    return a + b


async def solve(task: str) -> str:
    agent = AssistantAgent(
        "solver", OpenAIChatCompletionClient(model="x"), tools=[add], system_message="Solve sums step by step."
    )
    result = await agent.run(task=task)
    return result.messages[-1].content


asyncio.run(solve("1 + 1")) if __name__ == "__main__" else None
"""
SMOLAGENTS = '''from smolagents import CodeAgent, OpenAIModel, tool


@tool
def price(item: str) -> float:
    """Price of an item.

    Args:
        item: its name.
    """
    return 3.0


agent = CodeAgent(tools=[price], model=OpenAIModel("x"), instructions="Answer with a number and nothing else.")
print(agent.run("What do two apples cost?"))
'''
REPOSITORIES = {
    "OpenAI": ("app/orders.py", OPENAI),
    "LangGraph": ("weather.py", LANGGRAPH),
    "CrewAI": ("src/crew/research.py", CREWAI),
    "AutoGen": ("solver.py", AUTOGEN),
    "smolagents": ("shop.py", SMOLAGENTS),
}


def repository(root: Path, kind: str) -> Path:
    name, source = REPOSITORIES[kind]
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    hidden = root / ".venv" / "lib" / "crewai.py"
    hidden.parent.mkdir(parents=True)
    hidden.write_text("import crewai\nPROMPT = 'this belongs to somebody else entirely'\n")
    return path


@pytest.mark.parametrize(
    ("kind", "entries", "prompts", "tools"),
    [
        ("OpenAI", ["answer"], ["SYSTEM"], ["lookup"]),
        ("LangGraph", ["weather"], ["prompt"], ["get_weather"]),
        ("CrewAI", ["research"], ["goal", "backstory"], []),
        ("AutoGen", ["solve"], ["system_message"], ["add"]),
        ("smolagents", [], ["instructions"], ["price"]),
    ],
)
def test_framework_entry_points_prompts_and_tools_are_found(
    tmp_path: Path, kind: str, entries: list[str], prompts: list[str], tools: list[str]
) -> None:
    repository(tmp_path, kind)
    found = scan(tmp_path)
    assert found.framework == kind
    assert [one.name for one in found.entry_points] == entries
    assert sorted(one.name for one in found.prompts) == sorted(prompts)
    assert [one.name for one in found.tools] == tools
    assert found.files == 1, "a virtual environment was read"


def test_a_function_that_asks_by_a_method_of_a_class_is_the_entry_point(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(
        """from openai import OpenAI


class Desk:
    def say(self, question):
        return self.sent(question).output_text

    def sent(self, question):
        return OpenAI().responses.create(model="m", instructions="Be brief.", input=question)

    def close(self):
        pass


def ask(question):
    return Desk().say(question)


def tidy(desk):
    desk.close()
"""
    )
    assert [one.name for one in scan(tmp_path).entry_points] == ["ask"]


@pytest.mark.parametrize(
    ("source", "entries"),
    [
        (  # The path stands in the call.
            "class Desk:\n"
            "    async def ask(self, http, said):\n"
            '        return await http.post("/v1/messages", json={"model": "m", "messages": said})\n\n'
            "    async def answer(self, question):\n"
            '        return await self.ask(httpx.AsyncClient(), [{"role": "user", "content": question}])\n\n\n'
            "async def serve(question):\n    return await Desk().answer(question)\n",
            ["serve"],
        ),
        (  # The address is a constant.
            'URL = "https://api.openai.com/v1/chat/completions"\n\n\n'
            "def said(body):\n    return requests.post(URL, json=body).json()\n\n\n"
            "def answer(question):\n    return said(make(question))\n",
            ["answer"],
        ),
        (  # The address is nobody's that is known, and the body is a model's.
            "def answer(question):\n"
            '    body = {"model": MODEL, "input": question, "instructions": "Be brief."}\n'
            "    request = urllib.request.Request(ADDRESS, json.dumps(body).encode())\n"
            "    return json.load(urllib.request.urlopen(request))\n",
            ["answer"],
        ),
        (  # A client of its own, which the scan has never heard of.
            "async def answer(question):\n"
            '    return await litellm.acompletion(model="m", messages=[{"role": "user", "content": question}])\n',
            ["answer"],
        ),
        (
            'def answer(letter):\n    return InferenceClient().chat_completion(chat(letter), model="m")\n',
            ["answer"],
        ),
        ("def made(chat):\n    return Asked(model=MODEL, messages=chat)\n", []),
        (  # A chat of people has messages, too.
            "def tell(channel, text):\n"
            '    return requests.post(f"https://discord.com/api/channels/{channel}/messages", json={"text": text})\n',
            [],
        ),
        (  # An order names the model of a car.
            'def order(car):\n    return requests.post(SHOP, json={"model": car, "colour": "red"})\n',
            [],
        ),
    ],
)
def test_an_agent_that_asks_its_model_by_any_client_or_over_plain_http_is_found(
    tmp_path: Path, source: str, entries: list[str]
) -> None:
    (tmp_path / "desk.py").write_text(f"import httpx, json, requests, urllib.request\n\n{source}")
    assert [one.name for one in scan(tmp_path).entry_points] == entries


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_the_proposal_is_at_most_three_lines_that_git_takes_and_python_accepts(
    tmp_path: Path, kind: str
) -> None:
    path = repository(tmp_path, kind)
    before = path.read_text()
    proposal = propose(scan(tmp_path))
    assert proposal.added_lines <= LINES
    assert path.read_text() == before
    if kind == "smolagents":
        assert proposal.diff == ""
        assert proposal.command.startswith("whet run ")
        return
    (tmp_path / "wiring.patch").write_text(proposal.diff)
    subprocess.run(["git", "apply", "wiring.patch"], cwd=tmp_path, check=True)
    after = path.read_text()
    compile(after, str(path), "exec")
    assert "\nimport whet\n" in after
    name = REPOSITORIES[kind][0]
    function = scan(tmp_path).entry_points[0].name
    assert f'@whet.trace(".whet/whet.db")\n{"async " * (kind == "AutoGen")}def {function}(' in after, name
    assert scan(tmp_path).wired
    assert propose(scan(tmp_path)).diff == "", "it is wired already"


@pytest.mark.parametrize(
    ("source", "wired"),
    [
        ("from whet.models.fakes import ScriptedServer\n", False),
        ("import whet\n\n\ndef worth(run: whet.Trajectory) -> float:\n    return 1.0\n", False),
        ("import whet as w\n\nanswer = w.trace(print)\n", True),
        # A handle around an agent marks nothing of it.
        ("import whet as w\n\nwith w.run():\n    pass\n", False),
        ("from whet import trace\n", True),
    ],
)
def test_a_file_that_only_takes_something_from_whet_wires_nothing(
    tmp_path: Path, source: str, wired: bool
) -> None:
    repository(tmp_path, "OpenAI")
    (tmp_path / "beside.py").write_text(source)
    found = scan(tmp_path)
    assert found.wired == ("beside.py" if wired else "")
    assert bool(propose(found).diff) is not wired


def test_a_prompt_that_is_read_at_import_is_named_with_the_fix(tmp_path: Path) -> None:
    repository(tmp_path, "CrewAI")
    found = scan(tmp_path)
    assert [one.at_import for one in found.prompts] == [True, True]
    assert sum("would not reach" in note for note in propose(found).notes) == 2
    said = [one for one in diagnose(found) if "is read when its module is imported" in one.what]
    assert len(said) == 2
    assert "gateway" in said[0].fix
    other = tmp_path / "other"
    other.mkdir()
    repository(other, "LangGraph")
    assert not any(one.at_import for one in scan(other).prompts)


def test_what_is_no_agent_is_refused_with_help(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no Python file.*whet run -- COMMAND.*whet demo"):
        propose(scan(tmp_path))
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    with pytest.raises(InputError, match=r"none of the 1 Python files.*@whet.trace"):
        propose(scan(tmp_path))
    with pytest.raises(InputError, match="is not a folder"):
        scan(tmp_path / "nowhere")


def test_nothing_that_exists_is_written_over(tmp_path: Path) -> None:
    repository(tmp_path, "OpenAI")
    (tmp_path / "whet.json").write_text('{"store": "mine.db"}')
    (tmp_path / ".github").mkdir()
    made = propose(scan(tmp_path)).write()
    assert (tmp_path / "whet.json").read_text() == '{"store": "mine.db"}'
    assert made == [".whet/.gitignore", ".github/workflows/whet-check.yml"]


def installed(root: Path, name: str, version: str, *requires: str) -> metadata.Distribution:
    """A distribution as pip leaves it behind: a real metadata folder."""
    folder = root / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (folder / "METADATA").write_text(
        "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), "", ""])
    )
    return metadata.Distribution.at(folder)


def test_an_instrumentor_that_excludes_what_is_installed_is_called_broken_with_both_versions(
    tmp_path: Path,
) -> None:
    there = [
        installed(tmp_path, "openai", "3.1.0"),
        installed(
            tmp_path,
            "opentelemetry-instrumentation-openai",
            "0.40.0",
            'openai<2,>=1.0; extra == "instruments"',
        ),
        installed(
            tmp_path, "openinference-instrumentation-openai", "0.1.66", 'openai>=1.69; extra == "instruments"'
        ),
    ]
    repository(tmp_path / "repo", "OpenAI")
    said = diagnose(scan(tmp_path / "repo"), installed=there, environment={})
    (broken,) = [one for one in said if one.level == "error" and "cannot work" in one.what]
    assert "opentelemetry-instrumentation-openai 0.40.0" in broken.what
    assert "openai 3.1.0" in broken.what
    assert any(one.level == "ok" and "openinference" in one.what for one in said)
    assert any("nothing that exports its spans" in one.what for one in said)
    exporter = installed(tmp_path, "opentelemetry-exporter-otlp-proto-http", "1.45.2")
    said = diagnose(scan(tmp_path / "repo"), installed=[*there, exporter], environment={})
    assert any("spans go nowhere" in one.what for one in said)


@pytest.mark.parametrize(
    ("told", "step"),
    [
        (None, "pip install whet"),
        (
            {"url": "https://example.org/whet.git", "vcs_info": {"vcs": "git", "commit_id": "abc1"}},
            "pip install 'whet @ git+https://example.org/whet.git@abc1'",
        ),
        ({"url": "https://example.org/w.whl"}, "pip install 'whet @ https://example.org/w.whl'"),
    ],
    ids=["index", "repository", "wheel"],
)
def test_continuous_integration_installs_whet_from_where_it_was_installed(
    tmp_path: Path, told: dict[str, Any] | None, step: str
) -> None:
    installed(tmp_path, "whet", "0.1.0")
    if told is not None:
        (tmp_path / "whet-0.1.0.dist-info" / "direct_url.json").write_text(json.dumps(told))
    assert installation(source([str(tmp_path)])) == step


def test_a_folder_of_this_machine_is_asked_for_and_not_written_into_the_step(tmp_path: Path) -> None:
    installed(tmp_path, "whet", "0.1.0")
    folder = {"url": "file:///home/me/whet", "dir_info": {"editable": True}}
    (tmp_path / "whet-0.1.0.dist-info" / "direct_url.json").write_text(json.dumps(folder))
    step = installation(source([str(tmp_path)]))
    assert "home/me" not in step
    command, _, environment = step.partition("\n")
    assert environment.split() == ["env:", "WHET_SOURCE:", "${{", "vars.WHET_SOURCE", "}}"]
    unset = {"PATH": os.environ["PATH"], "WHET_SOURCE": ""}
    done = subprocess.run(["sh", "-c", command], env=unset, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "set the repository variable WHET_SOURCE" in done.stderr


def whet(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whet", *words], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_init_and_doctor_as_a_user_runs_them(tmp_path: Path) -> None:
    empty = whet(tmp_path, "init")
    assert empty.returncode == 2
    assert "holds no Python file" in empty.stderr
    repository(tmp_path, "LangGraph")
    found = json.loads(whet(tmp_path, "init", "--json").stdout)
    assert (found["framework"], found["changed_lines"]) == ("LangGraph", 2)
    assert found["written"] == ["whet.json", ".whet/.gitignore", ".whet/whet-check.yml"]
    subprocess.run(["git", "apply", ".whet/wiring.patch"], cwd=tmp_path, check=True)
    said = whet(tmp_path, "doctor")
    assert said.returncode in (0, 1), said.stderr
    assert "LangGraph is wired" in said.stdout
    assert "the record .whet/whet.db can be written" in said.stdout
    (tmp_path / "whet.json").write_text("{")
    assert whet(tmp_path, "doctor").returncode == 1


def test_a_record_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    repository(tmp_path, "OpenAI")
    (tmp_path / "taken").write_text("")
    (tmp_path / "whet.json").write_text('{"store": "taken/whet.db"}')
    (said,) = [one for one in diagnose(scan(tmp_path)) if one.level == "error"]
    assert "is a file where the folder" in said.what


def test_doctor_names_the_patch_once_it_is_written_and_init_where_to_take_it(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.mkdir()
    repository(agent, "OpenAI")
    assert "whet init, or: whet run -- COMMAND" in [one.fix for one in diagnose(scan(agent))]
    said = whet(tmp_path, "init", "agent").stdout
    assert "git -C agent apply .whet/wiring.patch" in said
    assert "Then record it (in agent): whet run" in said
    assert "git apply .whet/wiring.patch, or: whet run -- COMMAND" in [
        one.fix for one in diagnose(scan(agent))
    ]
    subprocess.run(["git", "-C", "agent", "apply", ".whet/wiring.patch"], cwd=tmp_path, check=True)
    assert "OpenAI is wired: app/orders.py records with whet" in [one.what for one in diagnose(scan(agent))]


def test_a_caller_that_opens_runs_of_whet_is_not_taken_for_the_agent(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(
        "from openai import OpenAI\n\n\ndef answer(question):\n"
        "    return OpenAI().chat.completions.create(model='m', messages=[question])\n"
    )
    (tmp_path / "ask.py").write_text(
        "import whet\n\nfrom desk import answer\n\n\ndef main(question):\n    with whet.run() as run:\n"
        "        answer(question)\n    whet.feedback(run.id, 1.0)\n\n\nmain('Are you open?')\n"
    )
    proposal = propose(scan(tmp_path))
    assert [(entry.path, entry.name) for entry in proposal.traced] == [("desk.py", "answer")]
    assert proposal.diff.startswith("--- a/desk.py")
    assert proposal.command.endswith("-- python ask.py"), "whoever calls the agent is the program"


def test_an_agent_that_is_a_class_is_marked_at_its_method(tmp_path: Path) -> None:
    agent = """import asyncio

from openai import AsyncOpenAI


class Desk:
    def __init__(self, client=None):
        self.client = client or AsyncOpenAI()

    async def _asked(self, messages):
        return await self.client.chat.completions.create(model="m", messages=messages)

    async def answer(self, question: str) -> str:
        said = await self._asked([{"role": "user", "content": question}])
        return said.choices[0].message.content


async def main():
    print(await Desk().answer(input("> ")))


if __name__ == "__main__":
    asyncio.run(main())
"""
    (tmp_path / "desk.py").write_text(agent)
    (entry,) = scan(tmp_path).entry_points
    assert (entry.name, entry.parameters, entry.is_async) == ("Desk.answer", ("question",), True)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    proposal = propose(scan(tmp_path))
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=proposal.diff, text=True, check=True)
    marked = (tmp_path / "desk.py").read_text()
    assert '    @whet.trace(".whet/whet.db")\n    async def answer(self, question: str)' in marked
    compile(marked, "desk.py", "exec")
    # A function that takes the input stands above the methods that it calls.
    above = "async def reply(question: str) -> str:\n    return await Desk().answer(question)\n"
    (tmp_path / "desk.py").write_text(f"{agent}\n\n{above}")
    assert "reply" in [entry.name for entry in scan(tmp_path).entry_points]
