"""`whet improve` takes on the prompts and the functions that an agent declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import python
from server_world import TOKENS, world

from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.serve import Role
from whet.types import Rollout, Task, Trajectory

SHOP = """
import json
import os
import sys
import urllib.request

import whet

TONE = whet.resource("tone", default="You are a clerk.")
MOTTO = whet.resource("motto", default="Ever onward.")


@whet.evolve("discount")
def discount(price: int) -> int:
    return price


@whet.evolve("rate", live=True)
def rate(weight: int) -> int:
    return weight * 3


def model(prompt: str) -> str:
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "greet"}]
    body = json.dumps({"model": "scripted", "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


@whet.trace
def quote(weight: int) -> str:
    return f"{model(str(TONE))}: {rate(int(weight))}"


def right(trajectory: whet.Trajectory) -> float:
    greeting, _, price = str(trajectory.output).partition(": ")
    weight = int(trajectory.task.instruction)
    return 0.5 * (greeting == "good day") + 0.5 * (price == str(weight * 4))


if __name__ == "__main__":
    for weight in range(1, int(sys.argv[1]) + 1):
        print(quote(weight))
"""
EDIT = "<<<<<<< SEARCH\n{}\n=======\n{}\n>>>>>>> REPLACE"


def scripted(request: ModelRequest) -> str:
    """The agent's model, which is as kind as its prompt; and the one that proposes."""
    text = " ".join(str(each["content"]) for each in request.messages)
    if text.endswith("greet"):
        return "good day" if "polite" in text else "hm"
    if "weight * 4" in text and "You are a clerk." in text:
        return EDIT.format("You are a clerk.", "You are a polite clerk.")
    return EDIT.format("    return weight * 3", "    return weight * 4")


class Shop:
    """A folder with the shop, and a shell in it."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        self.environment = {"WHET_STORE": "runs.db", "OPENAI_BASE_URL": base_url}
        (folder / "shop.py").write_text(SHOP)

    def __call__(self, *words: object, **environment: str) -> str:
        done = python(*words, folder=self.folder, **{**self.environment, **environment})
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def worked(self, id: str) -> Trajectory:
        """What a worker makes of one rollout that the server's queue gives it."""
        with world(self.folder / "runs.db") as here:
            here.store.add_rollouts(Rollout(id=id, task=Task(instruction="5")))
            words = ("-m", "whet", "work", "shop:quote", "--url", here.url, "--limit", 1)
            self(*words, WHET_TOKEN=TOKENS[Role.WRITE])
            return here.store.trajectory(id)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with ScriptedServer(scripted) as server:
        yield Shop(tmp_path, server.base_url)


def test_what_improve_made_of_a_prompt_and_a_function_is_live_until_it_is_rolled_back(shop: Shop) -> None:
    """From the shell: record, improve, prove, release; seen by traced code and by a worker; and back."""
    assert shop("shop.py", 40).splitlines()[:2] == ["hm: 3", "hm: 6"]
    words = ("-m", "whet", "improve", "shop:quote", "--reward", "shop:right", "--rollouts", 400)
    model = ("--model", "scripted", "--base-url", shop.environment["OPENAI_BASE_URL"])
    told = shop(*words, *model, "--release")
    assert "evolve: leaves motto, discount out, which none of 24 recorded runs has read" in told
    assert "evolve: tone, rate on 24 train tasks" in told
    assert "PROMOTE: shown to be better" in told
    assert "+You are a polite clerk." in told
    assert "+    return weight * 4" in told
    assert shop("shop.py", 2).splitlines() == ["good day: 4", "good day: 8"]
    with Store(shop.folder / "runs.db") as store:
        live = store.live()
        assert live is not None
        assert list(store.trajectories())[-1].versions == live.ids
    worked = shop.worked("released")
    assert worked.output == "good day: 20"
    assert worked.versions == live.ids
    assert "as it came" in shop("-m", "whet", "rollback", "--store", "runs.db")
    assert shop("shop.py", 1) == "hm: 3\n"
    worked = shop.worked("rolled back")
    assert worked.output == "hm: 15"
    assert not set(worked.versions.values()) & set(live.ids.values())
