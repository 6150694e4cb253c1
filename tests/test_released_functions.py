"""A released function runs in ordinary code that asks for it, and in no other; a rollback takes it back."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import whet as whet_command
from server_world import TOKENS, world

import whet
from whet.errors import InputError
from whet.record.store import Store
from whet.record.tracing import flush, using
from whet.serve import Role
from whet.types import Bundle, Version

RATE = 10


@pytest.fixture(autouse=True)
def no_search_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nothing was searched: a search has candidates of functions run in its sandbox."""
    monkeypatch.setattr(sys.modules["whet.record.tracing.resources"], "_loaders", {})


@whet.evolve(live=True)
def released_price(weight: int) -> int:
    return weight * RATE


@whet.evolve
def unasked_price(weight: int) -> int:
    return weight * RATE


@whet.evolve(live=True)
async def released_later(weight: int) -> int:
    return weight


@whet.evolve(live=True)
def released_parts(weight: int) -> Iterator[int]:
    yield weight


class Scale:
    tare = 1

    def __init__(self) -> None:
        self.__offset = 100

    def net(self, weight: int) -> int:
        return weight - self.tare


class Fine(Scale):
    def __init__(self) -> None:
        super().__init__()
        self.__offset = 7

    @whet.evolve("released_net", live=True)
    def net(self, weight: int) -> int:
        return super().net(weight) + self.__offset * 0

    @whet.evolve("released_static", live=True)
    @staticmethod
    def of(weight: int) -> int:
        return weight


def released(store: Store, **texts: str) -> Bundle:
    bundle = Bundle([Version(resource=name, content=text, kind="function") for name, text in texts.items()])
    store.release(bundle, unproven=True)
    return bundle


def under(store: Store, call: Any) -> Any:
    """What a call gives inside a run that is traced to this store."""
    return whet.trace(store)(call)()


def test_a_released_function_runs_where_it_is_asked_for_until_it_is_rolled_back() -> None:
    with Store(":memory:") as store:
        agent = whet.trace(store)(lambda weight: released_price(weight))
        assert agent(2) == 20
        bundle = released(store, released_price="def released_price(weight):\n    return weight * RATE + 5\n")
        assert agent(2) == 25
        assert flush()
        newest = list(store.trajectories())[-1]
        assert newest.versions == {"released_price": bundle["released_price"].id}
        assert newest.steps[0].action == 25
        store.rollback()
        assert agent(2) == 20
        assert released_price.resource.function(2) == 20  # type: ignore[attr-defined]


def test_it_is_of_the_functions_kind_and_in_its_class() -> None:
    async def later() -> int:
        return await released_later(4)

    with Store(":memory:") as store:
        released(
            store,
            released_later="import asyncio\n\nasync def released_later(weight):\n"
            "    await asyncio.sleep(0)\n    return weight * 2\n",
            released_parts="HALF = 2\n\ndef released_parts(weight):\n    yield weight // HALF\n    yield HALF\n",
            released_net="class Fine:\n    def net(self, weight):\n"
            "        return super().net(weight) + self.__offset\n",
            released_static="class Fine:\n    def of(weight):\n        return -weight\n",
        )
        assert asyncio.run(whet.trace(store)(later)()) == 8
        assert under(store, lambda: list(released_parts(9))) == [4, 2]
        assert under(store, lambda: Fine().net(10)) == 16
        assert under(store, lambda: (Fine.of(3), Fine().of(3))) == (-3, -3)
        assert not hasattr(sys.modules[__name__], "HALF"), "nothing is bound in the program's module"


def test_left_unasked_it_runs_as_in_the_source_and_says_once_how_to_ask() -> None:
    with Store(":memory:") as store:
        released(store, unasked_price="def unasked_price(weight):\n    return 0\n")
        with pytest.warns(UserWarning, match=r"live=True.*git apply whet_output/agent\.patch") as told:
            assert [under(store, lambda: unasked_price(2)) for _ in range(3)] == [20, 20, 20]
        assert len(told) == 1


def test_what_was_recorded_or_tried_but_not_released_is_not_run() -> None:
    text = "def released_price(weight):\n    return 0\n"
    posted = Bundle([Version(resource="released_price", content=text, kind="function")])
    with Store(":memory:") as store:
        store.put_bundle(posted)
        assert under(store, lambda: released_price(2)) == 20
        with using(posted), pytest.warns(UserWarning, match="no loader"):
            assert released_price(2) == 20


SERVED = """
import os, warnings, whet
@whet.evolve(live=True)
def price(weight):
    return weight
@whet.trace
def agent(weight):
    return price(weight)
if __name__ == "__main__":
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        print([agent(3), agent({3})], *(one.message for one in told))
"""


@pytest.mark.parametrize(
    ("where", "text", "printed", "warned"),
    [
        ("file", "return 0", "[0, {3}]", "set"),
        ("file", f"import os\n    return os.path.exists({__file__!r})", "[False, {3}]", "price"),
        ("file", "return {weight}", "[3, {3}]", "price"),
        ("command", "return 0", "[3, {3}]", "has no source file"),
    ],
    ids=["runs", "sees nothing", "answers what cannot cross", "without source"],
)
def test_what_a_server_sends_runs_in_the_sandbox_and_nowhere_else(
    tmp_path: Path, where: str, text: str, printed: str, warned: str
) -> None:
    (tmp_path / "program.py").write_text(SERVED)
    program = ["program.py"] if where == "file" else ["-c", SERVED]
    body = f"def price(weight):\n    {text}\n"
    with world(tmp_path / "runs.db") as here:
        bundle = Bundle([Version(resource="price", content=body, kind="function")])
        here.store.release(bundle, unproven=True, new_names=True)
        words = ("run", "--url", here.url, "--", sys.executable, *program)
        done = whet_command(*words, folder=tmp_path, WHET_TOKEN=TOKENS[Role.WRITE])
        assert done.stdout.startswith(printed), done.stderr + done.stdout
        assert "The function runs as it stands in the source" in done.stdout
        assert warned in done.stdout
        ran = [run.versions["price"] == bundle["price"].id for run in here.store.trajectories()]
        # What was called with a set ran as in the source, and is recorded so.
        assert ran == [not printed.startswith("[3"), False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def released_price(weight, more):\n    return 0\n", "other parameters"),
        ("async def released_price(weight):\n    return 0\n", "kind"),
        ("def price(weight):\n    return 0\n", "does not define"),
        ("def released_price(weight)", "not Python"),
        ("1 / 0\n\ndef released_price(weight):\n    return 0\n", "ZeroDivisionError"),
    ],
)
def test_a_text_that_cannot_take_the_functions_place_is_not_run_and_that_is_said(
    text: str, reason: str
) -> None:
    with Store(":memory:") as store:
        released(store, released_price=text)
        with pytest.warns(UserWarning, match=reason) as told:
            assert [under(store, lambda: released_price(2)) for _ in range(2)] == [20, 20]
        assert len(told) == 1
        assert flush()
        assert list(store.trajectories())[-1].versions == {
            "released_price": released_price.resource.version.id
        }  # type: ignore[attr-defined]


def test_a_text_that_was_changed_in_the_record_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        bundle = released(store, released_price="def released_price(weight):\n    return 1\n")
    with sqlite3.connect(path) as file:
        changed = file.execute(
            "UPDATE versions SET body = CAST(replace(CAST(body AS TEXT), 'return 1', 'return 2') AS BLOB) WHERE id = ?",
            [bundle["released_price"].id],
        )
        assert changed.rowcount == 1
    with pytest.warns(UserWarning, match="record was changed"):
        assert whet.trace(str(path))(lambda: released_price(2))() == 20


def test_the_mark_stands_directly_above_the_function() -> None:
    with pytest.raises(InputError, match="directly above the def"):

        @whet.evolve(live=True)
        @whet.step(kind="tool", effect="write")
        def pay(amount: int) -> int:
            return amount

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @whet.step(kind="tool")
        @whet.evolve(live=True)
        def paid(amount: int) -> int:
            return amount

        assert paid(3) == 3


def test_a_file_released_under_a_functions_name_is_a_function(tmp_path: Path) -> None:
    """By the shell, in processes of their own: the program ran once, so the record knows what the name is."""
    program, text, path = tmp_path / "shop.py", tmp_path / "price.py", tmp_path / "runs.db"
    program.write_text(
        "import whet\n\nRATE = 10\n\n\n@whet.evolve(live=True)\ndef price(weight):\n    return weight * RATE\n\n\n"
        "@whet.trace\ndef agent(weight):\n    return price(weight)\n\n\nprint(agent(2))\n"
    )
    text.write_text("def price(weight):\n    return weight * RATE + 5\n")
    environment = {**os.environ, "WHET_STORE": str(path)}

    def shell(*words: object) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert shell(program) == "20"
    ids = json.loads(shell("-m", "whet", "release", "price", text, "--unproven", "--json"))
    assert shell(program) == "25"
    with Store(path) as opened:
        assert opened.version(ids["price"]).kind == "function"
        assert list(opened.trajectories())[-1].versions == ids
    shell("-m", "whet", "rollback", "--store", path)
    assert shell(program) == "20"
