"""Candidates of an agent that keeps its network are forked from one process that has the agent's packages imported."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import alive, until

from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.leading import leading_imports
from whet.learn.evolution.agents.networked import Networked
from whet.sandbox import CallResult, Local, Pool

ENTRY = "desk.clerk:answer"
STATE = """
import asyncio, gc, os, random, sys, threading
import counted

PROMPT = "as it came"


async def answer(question: str) -> dict:
    await asyncio.sleep(0)
    main = sys.modules["__main__"]
    return {
        "prompt": PROMPT,
        "package": counted.PID != os.getpid(),
        "cwd": os.getcwd(),
        "path": sys.path,
        "variables": {name: text for name, text in os.environ.items()},
        "argv": sys.argv[:1] + sys.argv[2:],
        "main": sorted(vars(main)),
        "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "threads": len(os.listdir("/proc/self/task")),
        "held": sorted(os.readlink(f"/proc/self/fd/{each}").partition(":")[0].partition(" (")[0].rpartition("/")[0]
                       for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")),
        "stderr": os.fstat(2).st_ino == os.fstat(sys.stderr.fileno()).st_ino,
        "signals": open("/proc/self/status").read().split("SigCgt:")[1].split()[0],
        "collecting": gc.isenabled(),
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "main thread": threading.current_thread() is threading.main_thread(),
    }
"""
"""An agent that tells all that it can see of its process."""


def agent_in(folder: Path, text: str = STATE, package: str = "", **modules: str) -> RepositoryAgent:
    """An agent, and beside it a folder of packages with `counted`, which notes the process that imports it.

    Args:
        package: what else `counted` does when it is imported.
        modules: further files of the agent.
    """
    library = folder / "library"
    library.mkdir()
    noted = f"with open({str(folder / 'imported')!r}, 'a') as file:\n    file.write(str(os.getpid()) + ' ')\n"
    (library / "counted.py").write_text(f"import os\nPID = os.getpid()\n{noted}{package}\n")
    root = folder / "agent"
    (root / "desk").mkdir(parents=True)
    for name, content in {"__init__": "", "clerk": text, **modules}.items():
        (root / "desk" / f"{name}.py").write_text(textwrap.dedent(content))
    return RepositoryAgent(root, ["desk.clerk:PROMPT"], entry_name=ENTRY, network=True)


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / "library"), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def imported(folder: Path) -> list[str]:
    """Processes that imported the package."""
    return (folder / "imported").read_text().split()


def answers(network: Networked, prompts: Sequence[str], *, together: bool = False) -> list[CallResult]:
    """The answer of one candidate for each prompt."""
    agent = network.agent
    assert agent.entry is not None
    target, part = agent.target(agent.entry, []), agent.pieces[0].part

    async def one(prompt: str) -> CallResult:
        program = agent.start.with_part(part, prompt)
        async with network.open(target, program) as caller:
            called: CallResult = await caller.call(target.arguments("?"))
            return called

    async def all_of_them() -> list[CallResult]:
        if together:
            return list(await asyncio.gather(*map(one, prompts)))
        return [await one(prompt) for prompt in prompts]

    try:
        return asyncio.run(all_of_them())
    finally:
        network.end()


def told(result: CallResult) -> dict[str, Any]:
    """What the agent told, with the folder of its copy in words."""
    assert result.failure is None, result.failure
    text = json.dumps(result.value).replace(result.value["cwd"], "COPY")
    read: dict[str, Any] = json.loads(text)
    return read


def network_of(agent: RepositoryAgent) -> Networked:
    return Networked(agent, Pool(Local()), seconds=60)


def alone(agent: RepositoryAgent, reason: str = "by itself") -> Networked:
    """One whose candidates each start by themselves."""
    network = network_of(agent)
    network.zygote.refused = reason
    return network


def test_what_an_agent_imports_is_imported_once_for_all_its_candidates(tmp_path: Path) -> None:
    network = network_of(agent_in(tmp_path))
    results = answers(network, ["one", "two", "three"])
    assert [told(each)["prompt"] for each in results] == ["one", "two", "three"]
    assert network.zygote.refused == ""
    assert len(imported(tmp_path)) == 1
    assert all(told(each)["package"] for each in results)


def test_candidates_that_start_at_once_share_one_import(tmp_path: Path) -> None:
    prompts = [f"prompt {number}" for number in range(6)]
    results = answers(network_of(agent_in(tmp_path)), prompts, together=True)
    assert [told(each)["prompt"] for each in results] == prompts
    assert len(imported(tmp_path)) == 1


def test_a_fork_cannot_be_told_from_a_process_of_its_own(tmp_path: Path) -> None:
    agent = agent_in(tmp_path)
    forked, started = (told(answers(network, ["p"])[0]) for network in (network_of(agent), alone(agent)))
    assert len(imported(tmp_path)) == 2
    assert (forked.pop("package"), started.pop("package")) == (True, False)
    assert forked == started


def test_what_a_recorded_agent_loads_of_whet_is_loaded_once(tmp_path: Path) -> None:
    text = f"""
    import counted
    import whet

    PROMPT = ""


    @whet.trace({str(tmp_path / "agent.db")!r})
    def answer(question: str) -> str:
        return PROMPT
    """
    agent = agent_in(tmp_path, text)
    (agent.root / "whet.json").write_text("{}")  # a name like a module's, and none of the agent's own
    network = network_of(agent)
    results = answers(network, ["one", "two"])
    assert [each.value for each in results] == ["one", "two"]
    assert network.zygote.refused == ""
    statements = network.copies.imports(agent.root).splitlines()
    assert statements == ["import counted", "import whet", "from whet import trace"]


def test_forks_draw_different_numbers(tmp_path: Path) -> None:
    text = """
    import random
    import counted

    PROMPT = ""


    def answer(question: str) -> float:
        return random.random()
    """
    agent = agent_in(tmp_path, text, package="import random\nFIRST = random.random()")
    assert len({result.value for result in answers(network_of(agent), "abcd")}) == 4


def test_a_package_that_keeps_the_current_folder_has_each_candidates(tmp_path: Path) -> None:
    text = """
    import os
    import counted

    PROMPT = ""


    def answer(question: str) -> list:
        return [counted.HERE == os.getcwd(), os.path.exists(counted.BELOW), counted.BELOW]
    """
    package = "HERE = os.getcwd()\nBELOW = os.path.abspath('desk/clerk.py')"
    agent = agent_in(tmp_path, text, package=package)
    network = network_of(agent)
    results = [result.value for result in answers(network, "ab")]
    assert network.zygote.refused == ""
    assert [value[:2] for value in results] == [[True, True]] * 2
    assert results[0][2] != results[1][2]


DOUBTS = {
    "an import started a thread": """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
    "an import started a process": "import subprocess\nCHILD = subprocess.Popen(['sleep', '60'])",
    "open": "HELD = open(__file__)",
    "/desk/clerk.py": "import pathlib\nTEXT = pathlib.Path('desk/clerk.py').read_text()",
    "counted asks for the current folder": "HELD = [os.getcwd()]",
    "an import changed the current folder": "os.chdir('/')",
    "RuntimeError: not today": "if os.path.exists('desk'): raise RuntimeError('not today')",
    "sitecustomize is the agent's own": "",
    "an import reads /": "import settings",
    "it ended": """
with open(os.path.join(os.path.dirname(__file__), '..', 'imported')) as file:
    if len(file.read().split()) == 1:
        os._exit(3)
""",
}


@pytest.mark.parametrize("reason", DOUBTS)
def test_what_a_fork_might_not_have_as_a_process_of_its_own_is_not_forked(
    tmp_path: Path, reason: str
) -> None:
    agent = agent_in(tmp_path, package=DOUBTS[reason])
    for name in ("settings", *(["sitecustomize"] if reason.startswith("sitecustomize") else [])):
        (agent.root / f"{name}.py").write_text("VALUE = 1\n")
    network = network_of(agent)
    results = answers(network, ["one", "two"])
    assert reason in network.zygote.refused
    assert len(imported(tmp_path)) == 3
    if "not today" in reason:
        assert {each.failure.type for each in results if each.failure} == {"RuntimeError"}
    elif "changed" not in reason:
        assert [each.value["prompt"] for each in results] == ["one", "two"]
    # The next search of this agent knows it.
    answers(network_of(agent), ["three"])
    assert len(imported(tmp_path)) == 4


def test_another_environment_than_the_zygotes_is_not_forked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = network_of(agent_in(tmp_path))
    agent = network.agent
    assert agent.entry is not None
    target = agent.target(agent.entry, [])

    async def two() -> list[CallResult]:
        found = []
        for region in ("here", "there"):
            monkeypatch.setenv("REGION", region)
            program = agent.start.with_part(agent.pieces[0].part, region)
            async with network.open(target, program) as caller:
                found.append(await caller.call(target.arguments("?")))
        return found

    try:
        results = asyncio.run(two())
    finally:
        network.end()
    assert [each.value["variables"]["REGION"] for each in results] == ["here", "there"]
    assert len(imported(tmp_path)) == 2


def test_the_end_of_a_fork_is_told_with_its_code_and_what_it_printed(tmp_path: Path) -> None:
    text = """
    import os, sys
    import counted

    PROMPT = ""


    def answer(question: str) -> str:
        print("asked", PROMPT, file=sys.stderr)
        os.kill(os.getpid(), 15) if PROMPT == "killed" else sys.exit(int(PROMPT))
    """
    results = answers(network_of(agent_in(tmp_path, text)), ["7", "killed", "0"])
    assert [each.exit_code for each in results] == [7, -15, 0]
    messages = [each.failure.message if each.failure else "" for each in results]
    assert [message.rpartition(": ")[2] for message in messages] == ["asked 7", "asked killed", "asked 0"]


def test_nothing_is_left_of_a_candidate_or_of_the_zygote(tmp_path: Path) -> None:
    text = """
    import os, subprocess
    import counted

    PROMPT = ""


    def answer(question: str) -> list:
        return [os.getppid(), os.getpid(), subprocess.Popen(["sleep", "600"]).pid, os.getcwd()]
    """
    results = answers(network_of(agent_in(tmp_path, text)), "ab")
    zygotes = {each.value[0] for each in results}
    assert len(zygotes) == 1
    assert zygotes != {os.getpid()}
    for result in results:
        *processes, folder = result.value
        until(lambda processes=processes: not any(map(alive, processes)))
        assert not Path(folder).exists()


OWNER = """
import asyncio, sys
from pathlib import Path
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.networked import Networked
from whet.sandbox import Local, Pool

agent = RepositoryAgent(Path(sys.argv[1]), ["desk.clerk:PROMPT"], entry_name="desk.clerk:answer", network=True)
network = Networked(agent, Pool(Local()), seconds=600)
target = agent.target(agent.entry, [])


async def call():
    async with network.open(target, agent.start) as caller:
        await caller.call(target.arguments("?"))


asyncio.run(call())
"""


def test_the_zygote_and_its_forks_end_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    text = f"""
    import os, time
    import counted

    PROMPT = ""


    def answer(question: str) -> str:
        with open({str(tmp_path / "at work")!r}, "w") as file:
            file.write(f"{{os.getppid()}} {{os.getpid()}} ")
        time.sleep(600)
    """
    agent = agent_in(tmp_path, text)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, agent.root])
    noted = tmp_path / "at work"
    until(lambda: noted.exists() and len(noted.read_text().split(" ")) == 3)
    processes = [int(word) for word in noted.read_text().split()]
    assert all(map(alive, processes))
    owner.kill()
    owner.wait()
    until(lambda: not any(map(alive, processes)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "bot": '"""Doc."""\nfrom __future__ import annotations\nimport json, os\nX = 1\nimport openai\n'
            },
            "import json\nimport os",
        ),
        (
            {"bot": "from openai import OpenAI as O\nimport lang.graph as g\nclient = O()\n"},
            "from openai import OpenAI as O\nimport lang.graph as g",
        ),
        (
            {
                "bot": "import json\nimport tools\nimport openai\n",
                "tools": "import httpx\nY = 1\nimport late\n",
            },
            "import json\nimport httpx",
        ),
        ({"bot": "import tools\nimport openai\n", "tools": "import httpx\n"}, "import httpx\nimport openai"),
        (
            {"bot": "import bot\nimport tools\nimport openai\n", "tools": "import bot, httpx\n"},
            "import httpx\nimport openai",
        ),
        ({"bot": "if True:\n    import json\nimport openai\n"}, ""),
        ({"bot": "try:\n    import json\nexcept ImportError:\n    pass\n"}, ""),
        ({"bot": "import json\nthis is no Python\n"}, ""),
        ({"other": ""}, ""),
    ],
)
def test_a_program_begins_with_its_imports_of_other_packages(
    tmp_path: Path, files: Mapping[str, str], expected: str
) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert leading_imports("bot", [tmp_path]) == expected


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ("", "import httpx\nimport yaml\nimport openai"),
        ("import msgspec\n", "import msgspec\nimport httpx\nimport yaml\nimport openai"),
        ("VERSION = 1\n", ""),
        ("from . import bot\n", "import httpx\nimport yaml\nimport openai"),
    ],
)
def test_packages_around_a_module_run_first(tmp_path: Path, around: str, expected: str) -> None:
    package = tmp_path / "shop"
    (package / "tools").mkdir(parents=True)
    (package / "__init__.py").write_text(around)
    (package / "tools" / "__init__.py").write_text("import yaml\n")
    (package / "wire.py").write_text("import httpx\n")
    (package / "bot.py").write_text("from .wire import get\nfrom .tools import *\nimport openai\nX = get()\n")
    assert leading_imports("shop.bot", [tmp_path]) == expected
