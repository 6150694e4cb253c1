"""Calling code that we did not write: one input in, JSON out, and what goes wrong is data."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from processes import alive, until

from whet.cli.sandbox import run as run_script
from whet.errors import InputError, SandboxError
from whet.sandbox import CallResult, Limits, Local, Pool, Sandbox, exact, process
from whet.sandbox.inside.zygote import READY_SECONDS, READY_TRIES
from whet.types import Fault

MIB = 1 << 20


def within(
    use: Callable[[Pool], Awaitable[Any]], sandbox: Sandbox | Local | Limits | None = None, **options: Any
) -> Any:
    """What `use` makes of a pool that lives as long as it."""

    async def run() -> Any:
        async with Pool(sandbox, **options) as pool:
            return await use(pool)

    return asyncio.run(run())


def called(source: Any, entry: str = "f", *args: Any, **options: Any) -> CallResult:
    """One call in a pool of its own."""
    return within(lambda pool: pool.call(source, entry, args), **options)


def test_a_function_is_called_on_one_input_and_answers_in_json() -> None:
    result = called(
        "def f(x, y):\n    print('heard')\n    return {'sum': x + y, 'all': [x, None, True]}", "f", 1, 2.5
    )
    assert exact(result.value, {"sum": 3.5, "all": [1, None, True]})
    assert (result.ok, result.promotable, result.stdout, result.killed_by) == (True, True, "heard\n", None)
    assert 0 < result.cpu_seconds < 10
    assert 0 < result.seconds < 10


def test_modules_that_were_asked_for_are_there_and_the_files_of_a_folder_too(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from .inner import f\n")
    (tmp_path / "package" / "inner.py").write_text(
        "import numpy, pathlib\n"
        "def f(x):\n"
        "    words, raw = pathlib.Path('data/words.txt').read_text(), pathlib.Path('b').read_bytes()\n"
        "    return [int(numpy.sum(x)), words, list(raw)]\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("übermut")
    (tmp_path / "b").write_bytes(b"\xff\x00")
    result = called(tmp_path, "package:f", [1, 2], modules=("numpy",))
    assert result.value == [3, "übermut", [255, 0]]


def test_async_functions_and_methods_are_called_too() -> None:
    source = (
        "import asyncio\nclass Agent:\n    @staticmethod\n    async def act(x):\n"
        "        await asyncio.sleep(0)\n        return x"
    )
    assert called(source, "candidate:Agent.act", "hello").value == "hello"


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        ("{'when': (1, 2)}", r"value\['when'\] is a tuple"),
        ("[1, {2}]", r"value\[1\] is a set"),
        ("{1: 2}", "the key 1, a int"),
        ("float('nan')", "is nan"),
        ("b'x'", "is a bytes"),
        ("__import__('collections').OrderedDict(a=1)", "collections.OrderedDict"),
        ("__import__('enum').IntEnum('E', 'A').A", "candidate.E"),
        ("object()", "is a object"),
        ("'\\ud800'", "cannot be written as JSON"),
        ("(lambda a: (a.append(a), a)[1])([])", "too deep, or contains itself"),
    ],
)
def test_what_json_would_change_is_refused_with_the_place_and_the_type(
    pool: Callable[..., CallResult], returned: str, named: str
) -> None:
    result = pool(f"def f(): return {returned}")
    assert result.failure is not None
    assert result.failure.type == "CannotCross"
    assert re.search(named, result.failure.message), result.failure.message


@pytest.fixture(scope="module")
def pool() -> Any:
    """Calls in one pool that all tests of this module share."""
    loop = asyncio.new_event_loop()
    shared = Pool()
    loop.run_until_complete(shared.__aenter__())

    def call(source: Any, entry: str = "f", *args: Any, **options: Any) -> CallResult:
        return loop.run_until_complete(shared.call(source, entry, args, **options))

    yield call
    shared.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_an_argument_that_cannot_cross_is_refused_before_anything_runs(
    pool: Callable[..., CallResult],
) -> None:
    with pytest.raises(InputError, match=r"args\[0\]\['when'\] is a datetime.date"):
        pool("def f(x): return x", "f", {"when": date(2026, 1, 1)})
    with pytest.raises(InputError, match=r"args\[0\] is a tuple"):
        pool("def f(x): return x", "f", (1, 2))


@pytest.mark.parametrize("name", ["../out.py", "/etc/x", "", "a/../../b"])
def test_a_staged_file_cannot_leave_its_folder(pool: Callable[..., CallResult], name: str) -> None:
    with pytest.raises(InputError, match="relative path"):
        pool({name: "x = 1"}, "candidate:f")


@pytest.mark.parametrize("entry", ["os:system('x')", "a b", "1:f", "m:f()", ":f"])
def test_an_entry_is_a_name_and_nothing_else(pool: Callable[..., CallResult], entry: str) -> None:
    with pytest.raises(InputError, match="module:function"):
        pool("def f(): pass", entry)


def test_an_exception_is_data_with_its_place(pool: Callable[..., CallResult]) -> None:
    result = pool("def f(x):\n    return g(x)\ndef g(x):\n    raise KeyError(x)", "f", "k")
    assert result.failure is not None
    assert (result.failure.fault, result.failure.type) == (Fault.AGENT, "KeyError")
    assert result.failure.message == "'k' (candidate.py:4 in g)"
    assert not result.promotable


@pytest.mark.parametrize(
    ("source", "type_"),
    [
        ("def f(:", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("def f(): raise SystemExit(0)", "SystemExit"),
        ("import os\ndef f(): os._exit(0)", "Ended"),
        ("import os\ndef f(): os.abort()", "Killed"),
        ("import ctypes\ndef f(): ctypes.string_at(0)", "Killed"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\ndef f(): raise E", "E"),
    ],
)
def test_every_way_of_breaking_is_told_apart(
    pool: Callable[..., CallResult], source: str, type_: str
) -> None:
    result = pool(source)
    assert result.failure is not None
    assert result.failure.fault is Fault.AGENT
    assert result.failure.type == type_, result


def test_a_hang_costs_its_timeout_and_nothing_to_the_next_evaluation() -> None:
    async def use(pool: Pool) -> None:
        hung = await pool.call("def f():\n    while True: pass", "f", seconds=0.4)
        assert (hung.killed_by, hung.failure and hung.failure.type) == ("wall", "Timeout")
        assert 0.4 <= hung.seconds < 5
        for _ in range(3):
            assert (await pool.call("def f(): return 1", "f")).value == 1

    within(use)


def test_two_programs_are_open_at_the_same_time_with_two_workers() -> None:
    source = "n = 0\ndef f(x):\n    global n\n    n += x\n    return n"

    async def use(pool: Pool) -> None:
        async with pool.open(source, "f") as one, pool.open(source, "f") as other:
            said = [
                (await each.call([x])).value for each, x in ((one, 1), (other, 10), (one, 2), (other, 20))
            ]
        assert said == [1, 10, 3, 30]

    within(use, workers=2)


def test_each_limit_is_named_by_what_it_killed() -> None:
    limits = Limits(memory=64 * MIB, cpu_seconds=1, wall_seconds=60, output_bytes=200_000, file_bytes=MIB)

    async def use(pool: Pool) -> None:
        memory = await pool.call("def f(): return len(b'x' * (80 << 20))", "f")
        assert memory.killed_by == "memory"
        spin = await pool.call("def f():\n    while True: pass", "f")
        assert spin.killed_by == "cpu"
        assert 1 <= spin.cpu_seconds < 2.5
        assert (await pool.call("def f():\n    while True: print('x' * 999)", "f")).killed_by == "output"
        assert (await pool.call("def f(): return 'x' * 300_000", "f")).killed_by == "output"
        full = await pool.call("def f(): open('big', 'wb').write(b'x' * (2 << 20))", "f")
        assert full.failure is not None
        assert full.failure.type == "OSError"

    within(use, limits)


def test_memory_is_limited_over_all_processes_together() -> None:
    source = (
        "import os, time\n"
        "def f(share):\n"
        "    for _ in range(3):\n"
        "        if os.fork() == 0:\n"
        "            held = b'x' * share\n"
        "            time.sleep(60)\n"
        "    time.sleep(wait)\n"
        "    return 'enough'\n"
    )

    async def use(pool: Pool) -> None:
        allowed = await pool.call(source.replace("wait", "0.5"), "f", [15 * MIB])
        assert allowed.value == "enough"
        refused = await pool.call(source.replace("wait", "60"), "f", [50 * MIB])
        assert (refused.killed_by, refused.failure and refused.failure.type) == ("memory", "MemoryLimit")

    within(use, Limits(memory=64 * MIB, wall_seconds=30))


@pytest.mark.parametrize("ends", ["return 'child'", "raise ValueError('child')", "raise SystemExit(3)"])
def test_a_forked_child_does_not_answer_for_its_parent(pool: Callable[..., CallResult], ends: str) -> None:
    source = f"""
import os
def f():
    child = os.fork()
    if child == 0:
        {ends}
    os.waitpid(child, 0)
    return "parent"
"""
    assert pool(source, "f").value == "parent"


def test_a_child_that_is_forked_while_a_program_is_loaded_takes_no_request(
    pool: Callable[..., CallResult],
) -> None:
    source = "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\ndef f(): return os.getpid() and child > 0"
    assert pool(source, "f").value is True


def test_a_script_ends_with_its_own_code_and_not_with_that_of_a_forked_child() -> None:
    source = b"import os\nchild = os.fork()\nif child == 0: raise ValueError\nos.waitpid(child, 0)\nprint('parent')\n"
    done = within(lambda pool: pool.script({"script.py": source}, "script.py"))
    assert done.value == 0
    assert "parent" in done.stdout


def test_what_has_served_a_pair_serves_no_program_that_is_judged_from_outside() -> None:
    async def use(pool: Pool) -> None:
        evaluator = "SECRET = 'answer'\ndef evaluate(path): return 1"
        await pool.pair("", evaluator)
        (first,) = pool._all  # what was started with the pool had served nothing
        await pool.call("def f(): return 1", "f")
        assert [one.co_resident for one in pool._all if one is not first] == [False]
        both = set(pool._all)
        for _ in range(2):
            await pool.call("def f(): return 1", "f")
            await pool.pair("", evaluator)
        assert pool._all == both
        assert first.co_resident is True

    within(use)


def test_evaluations_do_not_see_each_other() -> None:
    async def use(pool: Pool) -> None:
        leave = (
            "import json, os\ndef f():\n    open('/box/tmp/note', 'w').write('x')\n    json.loads = None\n"
            "    os.environ['A'] = 'b'"
        )
        assert (await pool.call(leave, "f")).ok
        look = (
            "import json, os\ndef f(): return [os.listdir('/box/tmp'), json.loads is None, 'A' in os.environ]"
        )
        assert (await pool.call(look, "f")).value == [[], False, False]

    within(use)


def test_a_session_keeps_its_program_loaded_until_it_dies() -> None:
    source = (
        "import os\nn = 0\ndef f(x):\n    global n\n    n += 1\n"
        "    return [x, n] if x != 'die' else 1 / 0 if n == 2 else os._exit(3)"
    )

    async def use(pool: Pool) -> None:
        async with pool.open(source, "f") as session:
            assert (await session.call(["a"])).value == ["a", 1]
            raised = await session.call(["die"])
            assert raised.failure is not None
            assert raised.failure.type == "ZeroDivisionError"
            assert (await session.call(["b"])).value == ["b", 3]
            for _ in range(2):
                ended = await session.call(["die"])
                assert ended.failure is not None
                assert ended.failure.type == "Ended"
        assert (await pool.call(source, "f", ["c"])).value == ["c", 1]

    within(use)


def test_a_fraction_of_a_second_is_held_by_the_programs_own_clock() -> None:
    """The kernel counts whole seconds, by ticks that run ahead of what was used on a busy machine."""

    async def use(pool: Pool) -> None:
        spin = await pool.call("def f():\n    while True: pass", "f")
        assert spin.killed_by == "cpu"
        assert 0.5 <= spin.cpu_seconds < 1.4

    within(use, Limits(cpu_seconds=0.5, wall_seconds=60))


def test_a_cancelled_call_leaves_the_pool_usable() -> None:
    async def use(pool: Pool) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await pool.call("import time\ndef f(): time.sleep(60); return 'late'", "f")
        assert (await pool.call("def f(): return 'next'", "f")).value == "next"

    within(use)


def test_the_pool_survives_the_death_of_its_process() -> None:
    async def use(pool: Pool) -> None:
        for zygote in pool._all:
            zygote.kill()
        assert (await pool.call("def f(): return 1", "f")).value == 1

    within(use)


def test_a_pair_is_marked_co_resident_and_cannot_be_promoted() -> None:
    evaluator = (
        "import importlib.util\n"
        "import numpy\n"
        "from openevolve.evaluation_result import EvaluationResult\n"
        "def evaluate(path):\n"
        "    spec = importlib.util.spec_from_file_location('program', path)\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n"
        "    metrics = {'combined_score': numpy.float64(module.f(2)), 'bad': float('inf')}\n"
        "    return EvaluationResult(metrics, {'note': 1})\n"
    )
    result = within(lambda pool: pool.pair("def f(x): return x * 3", evaluator), modules=("numpy",))
    assert result.value == {"metrics": {"combined_score": 6.0, "bad": None}, "artifacts": {"note": "1"}}
    assert result.ok
    assert result.co_resident
    assert not result.promotable


def test_an_evaluator_imports_other_parts_of_openevolve_where_it_is_installed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "openevolve" / "utils").mkdir(parents=True)
    (tmp_path / "openevolve" / "__init__.py").write_text("raise SystemError('slow to load')\n")
    (tmp_path / "openevolve" / "utils" / "__init__.py").write_text("def better(x):\n    return x + 1.0\n")
    evaluator = (
        "from openevolve.evaluation_result import EvaluationResult\n"
        "from openevolve.utils import better\n"
        "def evaluate(path):\n    return EvaluationResult({'combined_score': better(1)})\n"
    )
    result = within(lambda pool: pool.pair("x = 1", evaluator), Sandbox(paths=[str(tmp_path)]))
    assert result.value == {"metrics": {"combined_score": 2.0}, "artifacts": {}}
    missing = within(lambda pool: pool.pair("x = 1", evaluator))
    assert "openevolve.utils" in missing.failure.message


def test_trusted_code_runs_without_a_sandbox_and_is_marked(tmp_path: Path) -> None:
    (tmp_path / "seen.txt").write_text("seen")
    source = "def f(path): return open(path).read()"

    async def use(pool: Pool) -> None:
        result = await pool.call(source, "f", [str(tmp_path / "seen.txt")])
        assert (result.value, result.trusted_only, result.promotable) == ("seen", True, False)
        hung = await pool.call("import time\ndef f(): time.sleep(60)", "f", seconds=0.2)
        assert (hung.killed_by, hung.trusted_only) == ("wall", True)

    within(use, Local())
    refused = within(lambda pool: pool.call(source, "f", [str(tmp_path / "seen.txt")]))
    assert refused.failure.type == "FileNotFoundError"


def test_trusted_code_ends_with_its_pool_and_leaves_no_folder(tmp_path: Path) -> None:
    source = (
        "import os, time\ndef f(path):\n    open(path, 'w').write(str(os.getpid()))\n"
        "    while True: time.sleep(0.01)\n"
    )

    async def use() -> set[str]:
        async with Pool(Local()) as pool:
            call = asyncio.create_task(pool.call(source, "f", [str(tmp_path / "pid")]))
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                await asyncio.sleep(0.01)
            folders = {one._scratch for one in pool._all}
            call.cancel()
        return folders

    folders = asyncio.run(use())
    assert folders
    assert not any(os.path.exists(one) for one in folders)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not alive(pid))


def test_further_paths_can_be_read_and_imported_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("answer = 42\n")
    os.chmod(tmp_path, 0o777)
    source = "import mine\ndef f(path):\n    try: open(path, 'w')\n    except OSError: return mine.answer"
    result = called(source, "f", str(tmp_path / "new"), sandbox=Sandbox(paths=(str(tmp_path),)))
    assert result.value == 42
    assert os.listdir(tmp_path) == ["mine.py"]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (
            "import multiprocessing as m\ndef g(x): return x * x\ndef f():\n"
            "    with m.get_context('fork').Pool(2) as p: return p.map(g, [1, 2, 3])",
            [1, 4, 9],
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor\ndef f():\n"
            "    with ThreadPoolExecutor(4) as p: return list(p.map(abs, [1, -2]))",
            [1, 2],
        ),
        (
            "import subprocess, sys\ndef f():\n"
            "    done = subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True)\n"
            "    return done.stdout",
            "42\n",
        ),
        (
            "import os, tempfile\ndef f():\n"
            "    with tempfile.NamedTemporaryFile() as t, open(os.path.expanduser('~/x'), 'w') as h:\n"
            "        return t.write(b'ab') + h.write('c')",
            3,
        ),
    ],
    ids=["processes", "threads", "a subprocess", "temporary files"],
)
def test_what_ordinary_programs_do_works(pool: Callable[..., CallResult], source: str, value: Any) -> None:
    result = pool(source)
    assert result.value == value, result


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, 1.5, "9"])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="memory"):
        Limits(memory=value)


def test_a_module_that_is_missing_is_named_with_what_to_do() -> None:
    with pytest.raises(SandboxError, match=r"no_such_thing.*Install the module"):
        called("def f(): pass", modules=("no_such_thing",))


def test_exact_looks_at_types() -> None:
    assert exact({"a": [1, None, "x"]}, {"a": [1, None, "x"]})
    for value, wanted in (
        (1, True),
        (1, 1.0),
        ([1], [1.0]),
        ({"a": 0}, {"a": False}),
        (None, 0),
        ([1], [1, 2]),
    ):
        assert not exact(value, wanted)


def test_a_program_can_be_let_go_of_with_its_last_call() -> None:
    source = "n = 0\ndef f():\n    global n\n    n += 1\n    return n"

    async def use(pool: Pool) -> list[Any]:
        async with pool.open(source, "f") as session:
            said = [(await session.call()).value, (await session.call(last=True)).value]
            with pytest.raises(InputError, match="open a new one"):
                await session.call()
        async with pool.open(source, "f") as session:
            said.append((await session.call()).value)
        async with pool.open(source, "f"):
            pass  # never called: nothing was started for it
        return [*said, (await pool.call(source, "f")).value]

    assert within(use) == [1, 2, 1, 1]


@pytest.mark.parametrize(
    "last", ["import os; os._exit(3)", "while True: pass", "raise ValueError(x)", "return x"]
)
def test_inputs_sent_together_have_the_results_of_calls_one_by_one(last: str) -> None:
    source = (
        f"n = 0\ndef f(x):\n    global n\n    n += 1\n    if x == 'last':\n        {last}\n    return [x, n]"
    )
    inputs: list[list[Any]] = [["a"], ["b" * 300_000], ["c"], ["last"], ["d"], ["e" * 300_000]]

    async def use(pool: Pool) -> list[list[tuple[Any, str]]]:
        async with pool.open(source, "f") as session:
            apart = [await session.call(args) for args in inputs]
        async with pool.open(source, "f") as session:
            together = [*await session.calls(inputs[:2]), *await session.calls(inputs[2:])]
        return [[(r.value, r.failure.message if r.failure else "") for r in ran] for ran in (apart, together)]

    apart, together = within(use, Limits(wall_seconds=30.0, cpu_seconds=0.5))
    assert together == apart
    assert together[2] == (["c", 3], "")


def test_a_sandbox_lost_among_inputs_sent_together_is_nobodys_fault() -> None:
    async def use(pool: Pool) -> list[CallResult]:
        async with pool.open("import time\ndef f(x):\n    time.sleep(x)\n    return x", "f") as session:
            asyncio.get_running_loop().call_later(2.0, pool.close)
            return await session.calls([[0], [60], [0]])

    first, second, third = within(use)
    assert first.value == 0
    assert {second.failure.type, third.failure.type} == {"SandboxLost"}  # type: ignore[union-attr]


@pytest.mark.parametrize("given", [{"seconds": -1.0}, {"seconds": float("nan")}, {"memory": 0}])
def test_a_script_is_refused_a_limit_by_the_name_of_its_option(tmp_path: Path, given: dict[str, Any]) -> None:
    script = tmp_path / "script.py"
    script.write_text("print(1)\n")
    with pytest.raises(InputError, match=f"--{next(iter(given))}"):
        run_script(script, **given)


def test_a_zygote_that_waits_as_long_as_it_may_does_not_count_as_lost() -> None:
    """It may try twice to shut an evaluation in; the time out here has to hold both, and the imports of a start."""
    assert READY_TRIES * READY_SECONDS < process._GRACE
    assert process._START_SECONDS > process._GRACE
