"""A world of `scripts/claims newcomers --world DIR`: what one is made of is said where something of it lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CLAIMS = Path(__file__).parent.parent / "benchmarks" / "claims"
AGENT = """from openai import AsyncOpenAI


async def reply(question):
    messages = [{"role": "system", "content": "Antworte kurz."}, {"role": "user", "content": question}]
    async with AsyncOpenAI() as client:
        said = await client.chat.completions.create(model="öl-1", messages=messages)
    return {"answer": said.choices[0].message.content}
"""
PEOPLE = """def questions(seed):
    return [{"person": f"Ann {n}", "question": f"Wie spät ist es in Ōsaka {n}?"} for n in range(4)]


def thumb(seed, person, question, answer):
    return [0, 1, -1, 0][int(question.split()[-1][:-1])]
"""
TRY = """import sys
from pathlib import Path
from newcomers import newcomers
from newcomers_thumbs import Newcomer, World
from newcomers_gym import lines_of_code
from whet.models.fakes import ScriptedServer
from whet.record.store import Store

folder, work = Path(sys.argv[1]), Path(sys.argv[2])
try:
    newcomers(work, world=folder, seeds=[0], trials=["thmubs"], page=False, here=True)
except RuntimeError as error:
    print(error)
try:
    world = World.read(folder)
except RuntimeError as error:
    sys.exit(str(error))
newcomer = Newcomer(world, work / "ann", 0, None)
(newcomer.folder / "service.py").write_text("")
print(newcomer.module, world.models)
with ScriptedServer(lambda request: request.text.upper(), models=world.models) as server:
    newcomer.wire(server.base_url)
    answered = newcomer.serve("asked.jsonl", 0, server.base_url)
newcomer.rate(answered, shuffled=False)
print([row["answer"]["answer"][:8] for row in answered], newcomer.trial.thumbs_down)
with Store(newcomer.folder / ".whet/whet.db") as store:
    print(sorted(note.value for run in store.trajectories() for note in run.feedback))
(work / "lines").mkdir()
(work / "lines" / "a.py").write_text("# a\\n\\nx = 1\\ny = 2  # b\\n")
(work / "lines" / "digits.py").write_text("z = 3\\n")
print(lines_of_code(work / "lines"))
"""


def tried(world: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """The world, read in a process of its own: its modules have the names of many others."""
    script = [sys.executable, "-c", TRY, str(world), str(work)]
    return subprocess.run(
        script,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(CLAIMS), "PATH": "/usr/bin:/bin"},
    )


def test_a_world_is_read_by_its_format_and_what_it_lacks_is_said(tmp_path: Path) -> None:
    world = tmp_path / "world"
    (world / "agent" / "src" / "clerk").mkdir(parents=True)
    (world / "agent" / "src" / "clerk" / "desk.py").write_text(AGENT)
    (world / "world.json").write_text(json.dumps({"models": ["öl-1"]}))
    (world / "people.py").write_text(PEOPLE)
    (world / "model.py").write_text("def answer(request, seed):\n    return ''\n")
    done = tried(world, tmp_path / "first")
    assert "no such trial: thmubs; there are thumbs, table" in done.stdout
    assert "is no world, for it lacks truth.py;" in done.stderr
    assert "newcomers_world/README.md says what one has" in done.stderr
    (world / "truth.py").write_text("def right(question, answer):\n    return True\n")
    done = tried(world, tmp_path / "second")
    assert "it lacks model.py: advise, world.json: entry, as module:function" in done.stderr
    (world / "world.json").write_text(json.dumps({"entry": "clerk.desk:reply", "models": ["öl-1"]}))
    (world / "model.py").write_text("def answer(request, seed):\n    return ''\n\n\nadvise = answer\n")
    done = tried(world, tmp_path / "third")
    assert done.returncode == 0, done.stderr
    # A package in src, an entry that is async, an answer that is no text, and people who say nothing.
    assert done.stdout.splitlines()[1:] == [
        "src/clerk/desk.py ('öl-1',)",
        "['WIE SPÄT', 'WIE SPÄT', 'WIE SPÄT', 'WIE SPÄT'] 0.5",
        "[-1.0, 1.0]",
        "2",
    ]
