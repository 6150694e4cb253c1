"""Resources: read when they are used, from the Bundle that is current there and then."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import subprocess
import sys
import types
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from whet.errors import InputError, NotFoundError
from whet.record.store import Store
from whet.record.tracing import (
    attach,
    collecting,
    current_bundle,
    evolve,
    import_time_reads,
    load_bundle,
    propagate,
    register_loader,
    resource,
    resources,
    save_bundle,
    set_live_bundle,
    step,
    trace,
    using,
)
from whet.types import Bundle, Trajectory, Version


@pytest.fixture(autouse=True)
def nothing_live() -> Iterator[None]:
    set_live_bundle(None)
    yield
    set_live_bundle(None)


def bundle(**contents: Any) -> Bundle:
    return Bundle([Version(resource=name, content=content) for name, content in contents.items()])


def test_a_text_is_the_default_then_the_live_version_then_the_candidate() -> None:
    prompt = resource("prompt", default="be brief")
    assert str(prompt) == prompt.value == prompt.get() == "be brief"
    set_live_bundle(bundle(prompt="be kind"))
    assert f"{prompt}" == "be kind"
    with using(bundle(prompt="be {how}")):
        assert prompt.format(how="quick") == "be quick"
        assert prompt + "!" == "be {how}!"
        assert "how" in prompt
        assert prompt == "be {how}"
        with using(bundle(other="x")):
            assert str(prompt) == "be brief"  # a Bundle says all there is
    assert str(prompt) == "be kind"
    assert resources()["prompt"] is prompt


def test_tables_and_rows_are_read_only_views_of_the_current_version() -> None:
    rule = resource("rule", default={"missing": 1, "fields": ["a"]})
    words = resource("words", default=["re", "fw"])
    given = {"missing": 2, "fields": ["b"], "new": True}
    with using(bundle(rule=given, words=["x"])):
        assert rule["missing"] == 2
        assert dict(rule) == given == rule.get()
        assert rule.get("none", 7) == 7
        assert list(words) == ["x"]
        assert (words[0], words[-1:], "x" in words) == ("x", ["x"], True)
        rule["fields"].append("changed")
        rule.get()["missing"] = 99
        assert rule["fields"] == ["b"]
        assert rule["missing"] == 2
    assert dict(rule) == {"missing": 1, "fields": ["a"]}
    assert len(words) == 2
    with pytest.raises(TypeError):
        rule["missing"] = 3  # type: ignore[index]


def test_a_default_without_a_json_form_is_refused() -> None:
    with pytest.raises(InputError, match="JSON"):
        resource("odd", default={"x": object()})
    with pytest.raises(InputError, match="JSON"):
        resource("odd", default=object())


def test_asyncio_and_propagate_carry_the_candidate_and_a_plain_thread_does_not() -> None:
    prompt = resource("carried", default="default")

    async def read() -> str:
        await asyncio.sleep(0.001)
        return str(prompt)

    async def under(content: str) -> str:
        with using(bundle(carried=content)):
            return await asyncio.create_task(read())

    async def main() -> list[str]:
        return list(await asyncio.gather(*(under(f"c{n}") for n in range(5)), read()))

    assert asyncio.run(main()) == [*(f"c{n}" for n in range(5)), "default"]
    with ThreadPoolExecutor(1) as pool, using(bundle(carried="candidate")):
        assert propagate(pool).submit(str, prompt).result() == "candidate"
        assert pool.submit(str, prompt).result() == "default"


def test_the_versions_read_during_a_call_are_recorded_and_no_others() -> None:
    used = resource("used", default="a")
    resource("unused", default="b")
    agent = trace(lambda question: f"{question} {used}")
    candidate = bundle(used="better", unused="c")
    with collecting() as records:
        agent("q")
        with using(candidate):
            agent("q")
    default, better = records
    assert isinstance(default, Trajectory)
    assert isinstance(better, Trajectory)
    assert better.versions == {"used": candidate["used"].id}
    assert better.output == "q better"
    assert default.versions == {"used": used.default_version.id}
    assert used.default_version == Version(resource="used", content="a", kind="prompt")


def test_an_evolved_function_is_itself_until_a_bundle_has_a_version_with_a_loader() -> None:
    loads: list[str] = []

    def load(version: Version, original: Callable[..., Any]) -> Callable[..., Any]:
        loads.append(version.id)
        return lambda x: original(x) * version.content

    @evolve(kind="scaled", metric="exact")
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    register_loader("scaled", load)
    assert (double(3), double.__doc__, inspect.signature(double).parameters.keys()) == (6, "Twice.", {"x"})
    candidate = Bundle([Version(resource="double", content=10, kind="scaled")])
    agent = trace(double)
    with using(candidate), collecting() as records:
        assert [double(n) for n in range(3)] == [0, 20, 40]
        assert agent(1) == 20
    assert loads == [candidate["double"].id]  # loaded once
    assert records[0].versions == {"double": candidate["double"].id}  # type: ignore[union-attr]
    assert double(3) == 6
    assert resources()["double"].default_version.content.startswith("def double(x: int)"), "undecorated"


def test_a_version_of_a_kind_without_a_loader_is_not_used_and_that_is_said() -> None:
    @evolve
    def plain() -> str:
        return "as it stands"

    with using(Bundle([Version(resource="plain", content="import os", kind="unheard")])):
        with pytest.warns(UserWarning, match="no loader"):
            assert plain() == "as it stands"
        agent = trace(plain)
        with collecting() as records:
            agent()
    recorded = records[0].versions  # type: ignore[union-attr]
    assert recorded == {"plain": resources()["plain"].default_version.id}


def outside() -> types.ModuleType:
    module = types.ModuleType("outside")
    exec(  # an outside program that knows nothing of whet
        "RULE = {'missing': 1}\nPROMPT = 'Q: %s'\nCOUNT = 3\n"
        "def decide(n):\n    return n <= RULE['missing']\n"
        "def answer(q):\n    return (PROMPT % q, decide(2))\n",
        module.__dict__,
    )
    return module


def test_three_lines_wire_an_outside_program() -> None:
    agent = outside()
    attach(agent, "RULE", "PROMPT", "decide")
    answer = trace(agent.answer)
    with collecting() as records:
        assert answer("hi") == ("Q: hi", False)
        with using(bundle(rule={"missing": 2}, prompt="> %s")):
            assert answer("hi") == ("> hi", True)
    assert set(records[1].versions) == {"rule", "prompt", "decide"}  # type: ignore[union-attr]
    attach(agent, "RULE", "decide")  # again: nothing happens
    assert agent.decide(1) is True


def test_attach_refuses_what_is_not_there_or_cannot_be_a_resource_and_rebinds_nothing() -> None:
    agent = outside()
    with pytest.raises(InputError, match="'NOPE'"):
        attach(agent, "RULE", "NOPE")
    with pytest.raises(InputError, match="Put a number"):
        attach(agent, "RULE", "COUNT")
    assert type(agent.RULE) is dict


def test_a_read_while_importing_is_counted_and_warned_about_and_a_later_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "baked_agent.py").write_text(
        "from whet.record.tracing import resource\n"
        "PROMPT = resource('baked', default='x')\n"
        "def make():\n    return str(PROMPT)\n"
        "AGENT = make()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="baked_agent was being imported.*function"):
        import baked_agent  # type: ignore[import-not-found]
    assert import_time_reads().count("baked") == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert baked_agent.make() == "x"


def test_a_saved_bundle_comes_back_and_reaches_another_process(tmp_path: Path) -> None:
    saved = bundle(prompt="from the file", rule={"n": 1})
    save_bundle(saved, tmp_path / "bundle.json")
    assert load_bundle(tmp_path / "bundle.json") == saved
    program = "from whet.record.tracing import resource; print(resource('prompt', default='default'))"
    environment = {**os.environ, "WHET_BUNDLE": str(tmp_path / "bundle.json")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "from the file", done.stderr


def test_a_bundle_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    with pytest.raises(NotFoundError, match="no Bundle at"):
        load_bundle(path)
    path.write_text('{"cats": 3}')
    with pytest.raises(InputError, match="not a saved Bundle"):
        load_bundle(path)
    save_bundle(bundle(prompt="original"), path)
    path.write_text(path.read_text().replace("original", "tampered"))
    with pytest.raises(InputError, match="changed by hand"):
        load_bundle(path)


def test_nothing_is_current_by_default() -> None:
    assert len(current_bundle()) == 0


def passing(function: Any) -> Any:
    """A decorator of somebody else's between two of whet's."""

    @functools.wraps(function)
    def passed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return passed


STACKS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "evolve": (lambda f: evolve(f), [("function", "twice")]),
    "step above": (lambda f: step("mine", kind="action")(evolve(f)), [("action", "mine")]),
    "step below": (lambda f: evolve(step("mine", kind="tool")(f)), [("tool", "mine")]),
    "step, another, evolve": (lambda f: step("mine")(passing(evolve(f))), [("function", "mine")]),
    "evolve, another, step": (lambda f: evolve(passing(step("mine")(f))), [("function", "mine")]),
    "trace above": (lambda f: trace(Store(":memory:"))(evolve(f)), [("agent", "twice")]),
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("candidate", [False, True])
def test_a_call_of_an_evolved_function_is_one_step_whatever_else_marks_it(
    stack: str, candidate: bool
) -> None:
    decorate, expected = STACKS[stack]

    def twice(number: int) -> int:
        return 2 * number

    marked = decorate(twice)
    register_loader("thrice", lambda _version, _original: lambda number: 3 * number)
    bundle = Bundle([Version(resource="twice", content="", kind="thrice")] if candidate else [])
    with collecting() as records, using(bundle):
        assert trace(lambda: marked(2))() == (6 if candidate else 4)
    (run,) = records
    assert isinstance(run, Trajectory)
    found = [(each.kind, each.name.rpartition(".")[2]) for each in run.steps]
    assert found == expected
    assert run.steps[0].action == (6 if candidate else 4)


def test_an_evolved_function_that_calls_itself_is_a_step_each_time() -> None:
    @evolve
    def down(number: int) -> int:
        return 0 if number == 0 else 1 + down(number - 1)

    with collecting() as records:
        assert trace(lambda: down(2))() == 2
    (run,) = records
    assert isinstance(run, Trajectory)
    assert [(each.observation, each.parent) for each in run.steps] == [(2, None), (1, "0"), (0, "1")]
    assert down(1) == 1, "and outside of a traced run it records nothing"


def test_an_evolved_async_generator_is_a_step_with_what_it_yielded() -> None:
    @evolve
    async def counting(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    async def agent() -> list[int]:
        return [number async for number in counting(3)]

    with collecting() as records:
        assert asyncio.run(trace(agent)()) == [0, 1, 2]
    (run,) = records
    assert isinstance(run, Trajectory)
    assert [(each.kind, each.action) for each in run.steps] == [("function", [0, 1, 2])]


def test_a_bundle_that_the_environment_names_and_that_cannot_be_read_is_said_at_every_read(
    tmp_path: Path,
) -> None:
    program = """
import whet
from whet.errors import WhetError

tone = whet.resource("tone", default="plain")
for _ in range(2):
    try:
        print(str(tone))
    except WhetError as error:
        print(type(error).__name__)
"""
    environment = {**os.environ, "WHET_BUNDLE": str(tmp_path / "gone.json")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["NotFoundError", "NotFoundError"], done.stdout + done.stderr
