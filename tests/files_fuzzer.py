"""A fuzzer of every kind of file that a command reads: damaged samples, for as long as one likes.

    python tests/files_fuzzer.py SECONDS [SEED]

Each round damages one valid file and runs the command that reads it, in this process.  A command must end by itself
within `SLOW`, with an exit code of `whet.errors` and without an exception that nobody foresaw; the file it was
given stays as it was, and a store that it wrote to can be read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from results_read import FILES, METRICS, side

from whet.cli import main
from whet.record.store import Store
from whet.record.tracing import save_bundle
from whet.types import Bundle, Outcome, Step, Task, Tokens, Trajectory, Version

SLOW = 60.0
"""Seconds of processor time in which a command of these sizes ends; the first one imports torch."""
CODES = frozenset(range(10)) | {124, 137}
"""Those of `whet.errors`, and of the sandbox's limits."""
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**70, 1e308, -0.0, "", " ", "\x00", "\ud83d", "a" * 5000, "\x1b]0;x\x07", "\u202e"),
    *([], {}, [[]], {"": None}, "NaN", float("nan"), float("inf"), "../../../etc/passwd", "2026-02-30", "é"),
)
PROGRAM = '''"""A program."""

# whet: evolve
LIMIT = 5


def sized(text, least=0):
    """long or short."""
    return "long" if len(text) > LIMIT else "short"
'''


@dataclass(frozen=True)
class Reader:
    """A command and the file that it reads.

    Args:
        name: of the kind of file.
        file: the name under which it lies, from the folder of the round.
        sample: the file as it should be.
        words: the command; `{}` is the folder.
    """

    name: str
    file: str
    sample: bytes
    words: tuple[str, ...]
    store: bytes = b""
    """The store that lies beside it."""


def lines(*objects: Any) -> bytes:
    """JSON Lines."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def _labels() -> bytes:
    """Answers to twelve questions, each once right and once wrong."""
    pairs = [(f"is {n} even", "yes" if n % 2 == 0 else "no", label) for n in range(12) for label in (0, 1)]
    wrong = {"yes": "no", "no": "yes"}
    return lines(
        *(
            {"input": asked, "output": right if label else wrong[right], "expected": right, "label": label}
            for asked, right, label in pairs
        )
    )


def readers() -> list[Reader]:
    """Every kind of file that a command reads, with a sample that it accepts."""
    task = {
        "id": "t1",
        "instruction": "What is the capital?",
        "answer": "Paris",
        "group": "g",
        "meta": {"a": [1]},
    }
    published = {"task_id": "t2", "natural_language_instruction": "go", "initial_state": {"x": 1}}
    tokens = Tokens((1, 2), (3, 4), (-0.5, -0.25))
    step = Step(
        kind="llm", observation=[{"role": "user", "content": "hi"}], action="hello", tokens=tokens, reward=1.0
    )
    run = Trajectory(
        task=Task(id="t3", instruction="hi"),
        steps=(step,),
        id="run-1",
        output="hello",
        outcome=Outcome.SUCCESS,
    )
    native = lines(*(msgspec.to_builtins(run, str_keys=True) for _ in range(2)))
    episode = {
        "task_id": "t2",
        "steps": [{"observation": "o", "action": "a", "reward": 0.5}],
        "success": True,
    }
    outcomes = lines(
        *({"task": f"t{n}", "success": n % 2, "group": f"g{n % 3}", "cost": 0.1} for n in range(12))
    )
    rows = lines(
        *(
            {"input": "x" * (n % 9), "expected": "long" if n % 9 > 5 else "short", "group": f"g{n}"}
            for n in range(60)
        )
    )
    labels = _labels()
    evaluator = b"def evaluate(input, output, expected):\n    return float(output == expected)\n"
    bundle = Bundle([Version(resource="system_prompt", content="Be brief.", kind="prompt")])
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(bundle, Path(folder) / "bundle.json")
        saved = (Path(folder) / "bundle.json").read_bytes()
        with Store(Path(folder) / "runs.db") as store:
            store.put(run)
        database = (Path(folder) / "runs.db").read_bytes()
    spool = msgspec.msgpack.encode([("state", [["k", 1.0, b"{}"]])])
    store_words = ("--store", "{}/runs.db")
    return [
        Reader("trajectories", "runs.jsonl", native, ("import", "{}/runs.jsonl", *store_words)),
        Reader("published episodes", "runs.jsonl", lines(episode), ("import", "{}/runs.jsonl", *store_words)),
        Reader(
            "tasks", "tasks.jsonl", lines(task, published), ("tasks", "add", "{}/tasks.jsonl", *store_words)
        ),
        Reader("outcomes", "b.jsonl", outcomes, ("verdict", "{}/a.jsonl", "{}/b.jsonl", "--json")),
        *(
            Reader(
                f"results: {file}",
                "b" + "".join(side(file, "candidate").suffixes),
                side(file, "candidate").read_bytes(),
                (
                    *(
                        "verdict",
                        str(side(file, "baseline")),
                        "{}/b" + "".join(side(file, "candidate").suffixes),
                    ),
                    *(("--metric", METRICS[file]) if file in METRICS else ()),
                ),
            )
            for file in FILES
        ),
        Reader(
            "trainable trajectories", "runs.jsonl", native, ("show", "--trainable", "--data", "{}/runs.jsonl")
        ),
        Reader(
            "prompt",
            "prompt.txt",
            b"Be brief.\n",
            ("release", "p", "{}/prompt.txt", *store_words, "--new-name", "--unproven"),
        ),
        Reader(
            "resource in JSON",
            "r.json",
            b'{"a": [1, 2]}',
            ("release", "p", "{}/r.json", *store_words, "--new-name", "--unproven"),
        ),
        Reader(
            "bundle",
            "out/bundle.json",
            saved,
            ("release", "{}/out", *store_words, "--new-name", "--unproven"),
        ),
        Reader(
            "correction",
            "c.json",
            b'{"answer": 4}',
            ("feedback", "run-1", *store_words, "--correction-file", "{}/c.json"),
            database,
        ),
        Reader(
            "rows to erase from",
            "rows/rows.jsonl",
            native,
            ("erase", "ann", *store_words, "--data", "{}/rows"),
            database,
        ),
        Reader("store", "runs.db", database, ("show", "trajectories", *store_words)),
        Reader(
            "store that is written", "runs.db", database, ("tasks", "add", "{}/a-task.jsonl", *store_words)
        ),
        Reader(
            "spool",
            "runs.db.spool-1-1",
            len(spool).to_bytes(4, "big") + spool,
            ("show", *store_words),
            database,
        ),
        Reader("repository", "repository/shop.py", PROGRAM.encode(), ("extract-targets", "{}/repository")),
        Reader(
            "evaluator and labels",
            "labels.jsonl",
            labels,
            ("audit", "{}/evaluator.py", "--labels", "{}/labels.jsonl"),
        ),
        Reader(
            "known answers",
            "rows.jsonl",
            labels,
            ("generate-evaluators", "--data", "{}/rows.jsonl", "--output", "{}/made"),
        ),
        Reader(
            "rows",
            "rows.jsonl",
            rows,
            (
                "evolve",
                "--target",
                "limit",
                "--entry",
                "size:sized",
                "--data",
                "rows.jsonl",
                "--unsafe-local",
                "--iterations",
                "2",
                "--offline",
                "--output",
                "made",
            ),
        ),
        Reader(
            "evaluator", "evaluator.py", evaluator, ("audit", "{}/evaluator.py", "--labels", "{}/good.jsonl")
        ),
    ]


def damaged(sample: bytes, chance: random.Random) -> bytes:
    """A sample with something wrong in it: its JSON, its lines, its bytes or its encoding."""
    if chance.random() < 0.6 and (changed := _changed_json(sample, chance)) is not None:
        return changed
    data = bytearray(sample)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0:
                del data[place : place + chance.randrange(1, 40)]
            case 1:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            case 2:
                data[place : place + 1] = chance.randbytes(1)
            case 3:
                data = data[:place]
            case 4:
                data[:0] = chance.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"\x00"))
            case 5:
                data[place:place] = chance.choice(
                    (b"\r\n", b"[" * 3000, b'{"a":' * 3000, b"1e999", b"9" * 5000)
                )
            case _:
                data = bytearray(sample.decode("utf-8", "replace").encode("utf-16"))
    return bytes(data)


def _changed_json(sample: bytes, chance: random.Random) -> bytes | None:
    """The sample with one value, key or line of its JSON exchanged; None if it holds none."""
    try:
        objects = [json.loads(line) for line in sample.splitlines()]
    except ValueError:
        return None
    if not objects:
        return None
    place: Any = objects
    while isinstance(place, dict | list) and place:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
            match chance.randrange(4):
                case 0:
                    del place[key]
                case 1 if isinstance(place, dict):
                    place[chance.choice(("", "id", "text", "\x00"))] = chance.choice(ODD)
                case _:
                    place[key] = chance.choice(ODD)
            break
        place = inner
    if chance.random() < 0.2:
        objects *= chance.randrange(1, 4)  # repeated lines
    return b"\n".join(json.dumps(each).encode("utf-8", "replace") for each in objects)


def run(words: list[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and all that it printed.

    Raises:
        AssertionError: it ended with an exception that the command line does not know.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main(words)
    except SystemExit as ended:
        return (ended.code if isinstance(ended.code, int) else 1), said.getvalue()
    except BaseException:
        raise AssertionError(traceback.format_exc()) from None
    return 0, said.getvalue()


def one(reader: Reader, folder: Path, content: bytes) -> int:
    """Run a reader on this content in an empty folder; its exit code."""
    for name, text in {
        "a.jsonl": lines(
            *({"task": f"t{n}", "success": n % 3 == 0, "group": f"g{n % 3}"} for n in range(12))
        ),
        "a-task.jsonl": lines({"id": "t9", "instruction": "again"}),
        "good.jsonl": _labels(),
        "runs.db": reader.store,
        "evaluator.py": b"def evaluate(input, output, expected):\n    return float(output == expected)\n",
        "size.py": PROGRAM.encode(),
    }.items():
        (folder / name).write_bytes(text)
    path = folder / reader.file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    if not reader.store and reader.file != "runs.db":
        (folder / "runs.db").unlink()
    began = time.process_time()
    with contextlib.chdir(folder):
        code, said = run([word.replace("{}", str(folder)) for word in reader.words])
    took = time.process_time() - began
    assert code in CODES, (code, said[-2000:])
    assert "Traceback" not in said, said[-3000:]
    assert took < SLOW, f"it took {took:.1f} s of CPU"
    if not reader.file.startswith("runs.db"):
        assert path.read_bytes() == content, "the file that was read was changed"
        if (folder / "runs.db").exists():
            with contextlib.closing(sqlite3.connect(folder / "runs.db")) as store:
                assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return code


def fuzz(
    *,
    seed: int,
    seconds: float = 1e9,
    rounds: int = sys.maxsize,
    among: Callable[[Reader], bool] = lambda reader: True,
) -> Counter[tuple[str, int]]:
    """Rounds done by kind of file and exit code, until `rounds` or `seconds` are over.

    Raises:
        AssertionError: with the seed and round at which a command did what it must not.
    """
    done: Counter[tuple[str, int]] = Counter()
    chosen = [reader for reader in readers() if among(reader)]
    weights: list[float] = []
    """By the time that the sample took: a cheap command is run more often, and all get some of the time."""
    end = time.monotonic() + seconds
    for number in range(rounds):
        chance = random.Random(f"{seed}:{number}")
        reader = chosen[number] if number < len(chosen) else chance.choices(chosen, weights)[0]
        # The first round of each kind is the sample itself, which has to be accepted.
        content = reader.sample if number < len(chosen) else damaged(reader.sample, chance)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="whet-files-") as folder:
            try:
                code = one(reader, Path(folder), content)
                assert number >= len(chosen) or code == 0, f"the sample was refused with {code}"
            except Exception as exception:
                kept = Path(tempfile.gettempdir()) / f"whet-fuzz-{os.getpid()}"
                kept.write_bytes(content)
                raise AssertionError(
                    f"seed {seed}, round {number}, {reader.name} ({kept}): {exception}"
                ) from exception
        done[reader.name, code] += 1
        if number < len(chosen):
            weights.append(1 / (0.2 + time.monotonic() - began))
        if time.monotonic() > end:
            break
    return done


if __name__ == "__main__":
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    counts = fuzz(seed=start, seconds=float(sys.argv[1]))
    print(f"{counts.total():,} files of {len(readers())} kinds from seed {start}, no failure")
    for (kind, exit_code), count in sorted(counts.items()):
        print(f"  {kind:28} exit code {exit_code}: {count:,}")
