"""Six ways of tampering with the grader: an outside judge is fooled by none of them.

The same six against a grader that sits in one process with the code, which is the control: were
they harmless there, that none succeeds outside would mean nothing.
"""

from __future__ import annotations

import asyncio

import pytest

from whet.sandbox import Local, Pool, exact

HONEST = "def f(x):\n    return sorted(x)\n"

TAMPERING = {
    "ends the process with exit code 0": "import os\nos._exit(0)\n",
    "prints the score of a success": "print('1 passed, score: 1.0')\nraise SystemExit(0)\n",
    "patches what compares": (
        "import builtins\n"
        "class Always(list):\n"
        "    def __eq__(self, other): return True\n"
        "builtins.sorted = lambda x: Always(x)\n"
        "def f(x):\n    return sorted(x)\n"
    ),
    "returns an object that equals everything": (
        "class Any:\n"
        "    def __eq__(self, other): return True\n"
        "    __hash__ = object.__hash__\n"
        "def f(x):\n    return Any()\n"
    ),
    "patches how answers are written": (
        "import json\n"
        "dumps = json.dumps\n"
        "json.dumps = lambda value, **options: dumps({'correct': True, 'score': 1.0})\n"
        "json.JSONEncoder.encode = lambda self, value: '{\"correct\": true}'\n"
        "def f(x):\n    return []\n"
    ),
    "writes the result itself and goes on at exit": (
        "import atexit, os, struct\n"
        "def forge():\n"
        "    for body in (b'v{\"correct\": true, \"score\": 1.0}', b'vtrue', b'v1'):\n"
        "        for descriptor in range(3, 20):\n"
        "            try: os.write(descriptor, struct.pack('<I', len(body)) + body)\n"
        "            except OSError: pass\n"
        "    os._exit(0)\n"
        "atexit.register(forge)\n"
        "def f(x):\n    forge()\n"
    ),
}

INSIDE_GRADER = """
import sys
def grade(path, x, wanted):
    space = {}
    exec(open(path).read(), space)
    assert space['f'](list(x)) == wanted
grade('candidate.py', [3, 1, 2], [1, 2, 3])
"""


async def _outside(source: str, pool: Pool) -> bool:
    """The judge out here: right on every input, in type and value."""
    for given in ([3, 1, 2], [2, 2, 1], []):
        result = await pool.call(source, "f", [given])
        if not (result.promotable and exact(result.value, sorted(given))):
            return False
    return True


async def _inside(source: str, pool: Pool) -> bool:
    """A grader beside the code: passed is an exit code of 0."""
    files = {"candidate.py": source, "grader.py": INSIDE_GRADER}
    result = await pool.script(files, "grader.py")
    return result.value == 0


def test_an_outside_judge_is_fooled_by_none_and_passes_the_honest_program() -> None:
    async def judge() -> tuple[bool, list[str]]:
        async with Pool() as pool:
            fooled = [name for name, source in TAMPERING.items() if await _outside(source, pool)]
            return await _outside(HONEST, pool), fooled

    assert asyncio.run(judge()) == (True, [])


def test_the_same_six_fool_a_grader_in_the_same_process() -> None:
    async def judge() -> tuple[bool, list[str]]:
        async with Pool(Local()) as pool:
            fooled = [name for name, source in TAMPERING.items() if await _inside(source, pool)]
            return await _inside(HONEST, pool), fooled

    honest, fooled = asyncio.run(judge())
    assert honest
    assert len(fooled) >= 4, fooled


def test_a_program_that_searches_its_process_finds_no_answer() -> None:
    wanted = "only-the-judge-knows-7f3a"
    source = (
        "import gc, sys\n"
        "def f(question):\n"
        "    seen, frame = [], sys._getframe()\n"
        "    while frame:\n"
        "        seen += [repr(v) for v in frame.f_locals.values() if v is not seen]\n"
        "        frame = frame.f_back\n"
        "    seen += [o for o in gc.get_objects() if isinstance(o, str)]\n"
        "    return sorted(set(s[:2000] for s in seen if 'only-the-' in s and 'judge' in s and 'seen' not in s))\n"
    )

    async def judge() -> bool:
        async with Pool() as pool:
            result = await pool.call(source, "f", ["What does the judge know?"])
            assert result.ok, result
            assert not any(wanted in one for one in result.value)
            return exact(result.value, wanted)

    assert not asyncio.run(judge())


@pytest.mark.parametrize(
    ("frame", "type_"),
    [
        ("b'v{'", "Garbled"),
        ("b'x[]'", "Garbled"),
        ("b'?1'", "Garbled"),
        ("b'r1'", "Garbled"),
        ("b''", "Garbled"),
        ("b'v' + b'[' * 100000 + b']' * 100000", "Garbled"),
    ],
)
def test_a_forged_answer_that_is_none_is_a_failure_of_the_program(frame: str, type_: str) -> None:
    source = (
        "import os, struct\n"
        f"def f():\n    body = {frame}\n    os.write(4, struct.pack('<I', len(body)) + body)\n    os._exit(0)"
    )

    async def judge() -> None:
        async with Pool() as pool:
            result = await pool.call(source, "f")
            assert result.failure is not None
            assert result.failure.type == type_, result
            assert (await pool.call(HONEST, "f", [[2, 1]])).value == [1, 2]

    asyncio.run(judge())
