"""Results as other programs write them: how many commands to the first verdict, and what becomes of damaged files.

The files are those of `tests/results`, which each product wrote itself of the same sums.

- *Commands* are typed as a newcomer types them, with what each error says to do.
- *Broken rows* are three rows of the candidate's made unreadable: their count has to be said, and the place.
- *Damaged* are copies of the candidate's file with bytes turned, cut, doubled or put in at random.  A copy is refused
  with one error, or compared; silent is a comparison of fewer tasks than the whole files have, without a word about it.
  Beside it stands the plain rule of pairing whatever both files still have.
- *The null* is the baseline against itself; it has to be dropped, as have the two sides exchanged.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import re
import shlex
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from newcomers_shell import Noted

from whet.cli import main
from whet.errors import WhetError
from whet.prove.answers import answer
from whet.prove.formats import read_rows
from whet.prove.formats.file import ResultFile
from whet.prove.gate import compare
from whet.prove.results import TaskResult

FILES: dict[str, tuple[str, ...] | None] = {
    "dspy/{}.csv": None,
    "dspy/{}.json": (),
    "inspect/{}.eval": None,
    "inspect/{}.json.gz": ("samples",),
    "junit/{}_node.xml": None,
    "junit/{}_pytest.xml": None,
    "langfuse/{}_items.json": ("data",),
    "langfuse/{}_results.json": (),
    "lm_eval/{}.jsonl": None,
    "mlflow/{}_results_table.json": ("data",),
    "mlflow/{}_traces.jsonl": None,
    "opik/{}.json": ("items",),
    "promptfoo/{}.json.gz": ("results", "results"),
    "strands/{}.json": ("cases",),
}
"""File → where its rows lie, in one JSON document."""
RESULTS = Path(__file__).resolve().parents[2] / "tests" / "results"
DAMAGED, BROKEN, COMMANDS = 200, 3, 3
DRAWN, PAIRS = 1_000, 120
_SAID = re.compile(r"could not be read|without a result in|were skipped|left out")
_ADVICE = re.compile(r"--metric ('[^']+'|\S+)\Z")


def measure(data: Path, folder: Path) -> list[Noted]:
    """A trial for each file."""
    results = data / "results" if (data / "results").is_dir() else RESULTS
    trials = [_trial(file, rows, results, folder) for file, rows in FILES.items()]
    return [*trials, *(_answers(gain) for gain in (0.0, 0.1, 0.2))]


def _answers(gain: float) -> Noted:
    """What `DRAWN` candidates that are so much better are told on `PAIRS` pairs, successes independent at a half."""
    rng = random.Random(f"answers:{gain}")
    words: Counter[str] = Counter()
    for _ in range(DRAWN):
        sides = (
            [
                TaskResult(task=str(task), scores={"success": float(rng.random() < 0.5 + more)})
                for task in range(PAIRS)
            ]
            for more in (0.0, gain)
        )
        verdict = compare(next(sides), next(sides), regime="exchangeable")
        words[answer(verdict, candidate="B").word] += 1
    name = "no better" if not gain else f"{gain:.0%} better"
    told = ", ".join(f"{word} {words[word]}" for word in ("keep", "more", "drop"))
    lines = {} if gain else {"at most 5 % of what is no better is kept": words["keep"] <= 0.05 * DRAWN}
    return Noted(f"{DRAWN:,} candidates, {name}, on {PAIRS} pairs", {"answers": told}, lines)


def _trial(file: str, rows: tuple[str, ...] | None, results: Path, folder: Path) -> Noted:
    chance = random.Random(file)
    a, b = (results / file.format(name) for name in ("baseline", "candidate"))
    words, commands, said = _first_verdict(a, b)
    options = words[3:]
    null, exchanged = (_ran(["verdict", *map(str, pair), *options])[1] for pair in ((a, a), (b, a)))
    pairs = _pairs(said)
    told, broken_said = _broken(file, a, b, rows, options, folder, chance)
    outcomes, plain, first_bad = _damage(a, b, options, pairs, folder, chance)
    return Noted(
        file.format("*"),
        {
            "commands": str(commands),
            "better": said.partition(":")[0],
            "exchanged": exchanged.partition(":")[0],
            "null": null.partition(":")[0],
            f"{BROKEN} broken rows said": told,
            f"{DAMAGED} damaged: refused": str(outcomes["refused"]),
            "compared": str(outcomes["compared"]),
            "tracebacks": str(outcomes["traceback"]),
            "silent": str(outcomes["silent"]),
            "silent, pairing what is there": str(plain),
        },
        {
            f"a verdict within {COMMANDS} commands": commands <= COMMANDS,
            "what is better is kept": said.startswith("KEEP"),
            "the exchanged and the null are dropped": exchanged.startswith("DROP")
            and null.startswith("DROP"),
            "broken rows are told by place and count": told.startswith("yes"),
            "no traceback": not outcomes["traceback"],
            "no silent loss": not outcomes["silent"],
        },
        "\n".join([said, null, exchanged, broken_said, first_bad]),
    )


def _ran(words: list[str]) -> tuple[int, str]:
    """Exit code and what was printed; 99 and the traceback where it ended in an exception that nobody foresaw."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main(words)
        except SystemExit as ended:
            return int(ended.code or 0), printed.getvalue()
        except Exception:
            return 99, traceback.format_exc()
    return 0, printed.getvalue()


def _first_verdict(a: Path, b: Path) -> tuple[list[str], int, str]:
    """The words that give a verdict, the number of commands until then, and what the last one printed."""
    words = ["verdict", str(a), str(b)]
    # The extra that unpacks such logs is installed first.
    commands = 2 if a.suffix == ".eval" else 1
    code, said = _ran(words)
    while code and (advice := _ADVICE.search(said.strip())) and commands < COMMANDS + 1:
        words += ["--metric", *shlex.split(advice[1])]
        commands += 1
        code, said = _ran(words)
    return words, commands, said


def _pairs(said: str) -> int:
    counted = re.search(r"^  pairs +(\d+)", said, re.MULTILINE)
    return int(counted[1]) if counted else 0


def _broken(
    file: str,
    a: Path,
    b: Path,
    rows: tuple[str, ...] | None,
    options: list[str],
    folder: Path,
    chance: random.Random,
) -> tuple[str, str]:
    """Whether three unreadable rows are said by count and place."""
    path = folder / f"broken{''.join(b.suffixes)}"
    path.write_bytes(_with_broken_rows(b, rows, chance))
    _, said = _ran(["verdict", str(a), str(path), *options])
    counted = re.search(rf"{BROKEN} of (\d+) rows could not be read: (\w+ \d+): ", said)
    return (f"yes, {counted[2]} first" if counted else "no"), said


def _with_broken_rows(path: Path, rows: tuple[str, ...] | None, chance: random.Random) -> bytes:
    body = path.read_bytes()
    if path.suffix == ".eval":
        return _repacked(path, chance)
    body = gzip.decompress(body) if path.suffix == ".gz" else body
    if rows is not None:
        document: Any = json.loads(body)
        listed = document
        for name in rows:
            listed = listed[name]
        for number in chance.sample(range(len(listed)), BROKEN):
            listed[number] = None
        return json.dumps(document).encode()
    if path.suffix == ".xml":
        cases = [match.start() for match in re.finditer(rb"<testcase ", body)]
        for place in sorted(chance.sample(cases[1:-3], BROKEN), reverse=True):
            body = body[:place] + body[place:].replace(b' name="', b' nome="', 1)
        return body
    lines = body.splitlines(keepends=True)
    for number in chance.sample(range(1, len(lines)), BROKEN):
        lines[number] = lines[number].rstrip()[:-1] + b",?,?\n"
    return b"".join(lines)


def _repacked(path: Path, chance: random.Random) -> bytes:
    """A log of Inspect with broken summaries: its own, stored without packing."""
    from whet.prove.formats import inspect_log

    packed = io.BytesIO()
    content = ResultFile(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w") as new:
        for name in ("header.json", "summaries.json"):
            text = inspect_log._entry(content, old.getinfo(name))
            if name == "summaries.json":
                listed = json.loads(text)
                for number in chance.sample(range(len(listed)), BROKEN):
                    listed[number] = None
                text = json.dumps(listed).encode()
            new.writestr(name, text)
    return packed.getvalue()


def _damage(
    a: Path, b: Path, options: list[str], pairs: int, folder: Path, chance: random.Random
) -> tuple[Counter[str], int, str]:
    """What became of the copies, in how many the plain rule loses tasks silently, and what was said of a bad one."""
    outcomes: Counter[str] = Counter()
    plain, bad = 0, ""
    body = b.read_bytes()
    whole = {row.task for row in read_rows(ResultFile(a)).rows}
    unpacked = gzip.decompress(body) if b.suffix == ".gz" else body
    path = folder / f"damaged{''.join(suffix for suffix in b.suffixes if suffix != '.gz')}"
    for _ in range(DAMAGED):
        path.write_bytes(chance.choice(DAMAGES)(unpacked, chance))
        code, said = _ran(["verdict", str(a), str(path), *options])
        if code == 99:
            kind = "traceback"
        elif code:
            kind = "refused"
        else:
            kind = "compared" if _pairs(said) == pairs or _SAID.search(said) else "silent"
        outcomes[kind] += 1
        bad = bad or (said if kind in ("traceback", "silent") else "")
        with contextlib.suppress(WhetError):
            plain += bool(whole - {row.task for row in read_rows(ResultFile(path)).rows})
    return outcomes, plain, bad


def _turned(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 5, 40))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randrange(len(body))]


def _hole(body: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(body))
    return body[:start] + body[start + chance.randrange(1, 400) :]


def _doubled(body: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(body))
    return body[:start] + body[max(0, start - chance.randrange(1, 400)) :]


def _put_in(body: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(body))
    return body[:start] + chance.choice(_ODD) + body[start:]


def _line_gone(body: bytes, chance: random.Random) -> bytes:
    lines = body.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def _value(body: bytes, chance: random.Random) -> bytes:
    """One of its words or numbers is another kind of value."""
    places = [
        match.span() for match in re.finditer(rb'\b(?:\d+\.\d+|true|false|null)\b|"[^"\n]{1,20}"', body)
    ]
    if not places:
        return _turned(body, chance)
    start, end = chance.choice(places)
    return body[:start] + chance.choice(_ODD) + body[end:]


_ODD = (
    *(
        b"\xff\xfe",
        b"\x00",
        b"NaN",
        b"1e999",
        b"-1",
        b"9" * 400,
        b"[" * 3000,
        b"{}",
        b"null",
        b'"',
        b"\n",
        b"</a>",
    ),
    *(b"<!DOCTYPE a>", b"&b;", b"\\ud83d", b",", b'"\\u0000"', "\u2028".encode(), b"true"),
)
DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_turned, _cut, _hole, _doubled, _put_in, _line_gone, _value),
)
