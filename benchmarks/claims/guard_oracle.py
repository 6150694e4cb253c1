"""Real tools in whet's sandbox as the oracle of permissions: a call that is allowed must do no harm outside its root.

Each call is decided by the product and made, in a fresh folder of its own: `root`, where an agent works, beside
`outside`, its home, with a secret in it.  A command is run by `sh` and by `bash`; a path is opened as text and in every
way in which a helpful tool decodes it; a URL is asked for by urllib and by curl; a statement is run by SQLite.  Harm is
a change of anything outside, the secret in what came back or was left in the root, another host than the rules name, or
a changed database.  The decision and the call see the same files, both inside the sandbox (`guard_inside.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.sandbox import Limits, Pool, Sandbox
from whet.types import Json

SOURCE = Path(__file__).resolve().parents[2] / "src"
INSIDE = Path(__file__).with_name("guard_inside.py")
BATCH = 40
Call = tuple[str, Json]
Answer = tuple[str, str, str]


def sandbox() -> Sandbox:
    """A sandbox in which there are shells, and the product."""
    packages = str(Path(msgspec.__file__).resolve().parents[1])
    return Sandbox(
        limits=Limits(wall_seconds=120, cpu_seconds=100, processes=32),
        paths=[str(SOURCE), packages, "/usr/bin", "/usr/lib"],
    )


async def judged(pool: Pool, rules: Json, calls: Sequence[Call], *, everything: bool = False) -> list[Answer]:
    """Decision, its sentence, and the harm that is done, "" for none, of each call.

    Args:
        everything: also make what is not allowed, as without permissions.
    """
    packages = str(Path(msgspec.__file__).resolve().parents[1])
    source = INSIDE.read_text().replace(
        "from __future__ import annotations\n",
        f"from __future__ import annotations\nimport sys\nsys.path[:0] = {[str(SOURCE), packages]!r}\n",
        1,
    )
    rules = msgspec.json.decode(msgspec.json.encode(rules))  # lists for tuples
    answers: list[Answer] = []
    for start in range(0, len(calls), BATCH):
        batch = [list(call) for call in calls[start : start + BATCH]]
        ran = await pool.call(source, "judge", [rules, batch, everything])
        if not ran.ok:
            raise SystemExit(f"the oracle failed on {batch}: {ran.failure} {ran.stdout}")
        assert isinstance(ran.value, list)
        answers += [(str(a), str(b), str(c)) for a, b, c in ran.value]
    return answers


# -- commands that nobody wrote ---------------------------------------------------------------------

PATHS = (
    *(
        "a.txt",
        "b.txt",
        "src",
        "src/main.py",
        "./docs",
        "code/main.py",
        "new.txt",
        "src/deep/docs/guide.md",
        ".",
    ),
    *(
        "../outside/secret",
        "away/secret",
        "leak.txt",
        "~/secret",
        "../outside",
        "src/../../outside/secret",
        "..",
        ".env",
    ),
    *(
        "$HOME/secret",
        "~/.ssh/id",
        "away",
        "a*",
        "*.txt",
        ".*/outside/secret",
        "src/deep/docs/../../outside/secret",
    ),
    *(
        "'a.txt'",
        '"leak.txt"',
        "\\leak.txt",
        "{a.txt,leak.txt}",
        "le?k.txt",
        "[l]eak.txt",
        "code/../a.txt",
        "-n",
    ),
    *(
        "src/deep/docs/../a.txt",
        "code/../../outside/secret",
        "../root/a.txt",
        "/proc/self/cwd/../outside/secret",
        "new",
    ),
)
PROGRAMS = (
    *(
        "cat",
        "cat",
        "cat",
        "ls -la",
        "ls -R",
        "head -n 2",
        "tail -n 1",
        "grep -r C",
        "grep beta",
        "wc -l",
        "sort",
        "cp",
    ),
    *(
        "cp -r",
        "mv",
        "rm",
        "rm -r",
        "mkdir -p",
        "touch",
        "ln -s",
        "ln",
        "echo",
        "tee",
        "find",
        "cd",
        "sed -n 1p",
        "env",
    ),
    *(
        "sh -c",
        "bash -c",
        "xargs cat",
        "eval",
        "awk '{print}'",
        "uniq",
        "cut -c 1-30",
        "chmod 600",
        "diff",
        "sort -o",
    ),
    *(
        "grep -f",
        "find . -exec cat",
        "tar cf x.tar",
        "dd if=",
        "cat <",
        "exec cat",
        "command cat",
        ". ",
        "rmdir",
        "base64",
    ),
    *(
        "truncate -s 0",
        "grep -R C",
        "cp -rL",
        "nice cat",
        "timeout 2 cat",
        "printf %s",
        "test -f",
        "tac",
        "nl",
        "od -c",
    ),
)
JOINTS = (
    "; ",
    " && ",
    " || ",
    " | ",
    " & ",
    "\n",
    " > ",
    " >> ",
    " < ",
    " 2>&1 ",
    " $(",
    ") ",
    "`",
    " (",
    " {",
    "; }",
    " #",
)
_CHARS = " \t\n;&|<>()$`\\\"'*?[]{}~#!=%^-./0123abcelr\x00\x01\x7f\xa0\u200b\u2025é"


def generated(rng: random.Random, seeds: Sequence[str]) -> str:
    """A command made at random: of pieces, of the seeds with changes, or of nothing."""
    kind = rng.random()
    if kind < 0.55:
        pieces = []
        for _ in range(rng.randint(1, 4)):
            words = " ".join(rng.choice(PATHS) for _ in range(rng.randint(0, 3)))
            pieces.append(f"{rng.choice(PROGRAMS)} {words}" if rng.random() < 0.85 else words)
            pieces.append(rng.choice(JOINTS) if rng.random() < 0.9 else " ")
        return "".join(pieces[:-1])
    if kind < 0.95:
        text = rng.choice(seeds)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text) + 1)
            change = rng.random()
            if change < 0.45:
                text = text[:at] + rng.choice(_CHARS) + text[at:]
            elif change < 0.6:
                text = text[:at] + text[at + 1 :]
            elif change < 0.8:
                text = text[:at] + rng.choice(JOINTS) + rng.choice(PATHS) + text[at:]
            else:
                other = rng.choice(seeds)
                cut = rng.randrange(len(other) + 1)
                text = text[:at] + other[cut:]
        return text
    return bytes(rng.randrange(256) for _ in range(rng.randint(0, 60))).decode("utf-8", "surrogateescape")


def carried(text: str) -> bool:
    """True for what JSON can carry into the sandbox, and a program can be given."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
