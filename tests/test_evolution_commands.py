"""A command proposes: a coding agent is given a folder, and what it leaves there is data."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from evolution_toys import LINE, search, write
from processes import alive, until

from whet.errors import InputError, ModelError
from whet.learn.evolution.editing.program import Program, apply_patch
from whet.learn.evolution.programs import evolve_program
from whet.learn.evolution.search.commands import Command, CommandModel, changed
from whet.learn.evolution.search.engine import SearchOptions
from whet.learn.evolution.search.population import Draw, Judged
from whet.learn.evolution.search.proposing import words_of
from whet.learn.evolution.search.settings import Settings
from whet.models import RecordedModel
from whet.record.store import Log, Store
from whet.repository.text import diff

PROGRAM = Program({"program.py": LINE}, "program.py")
JUDGED = Judged(0, PROGRAM, 0.5, metrics={"wrong": 3.0}, artifacts={"feedback": "f(2) should be 17"})
MEND = """
import pathlib
path = pathlib.Path("program/program.py")
path.write_text(path.read_text().replace("x * 2 + 1", "x * x + 3 * x + 7"))
"""


def agent(tmp_path: Path, source: str, **options: float) -> CommandModel:
    script = tmp_path / "agent.py"
    script.write_text(source, encoding="utf-8")
    return CommandModel([sys.executable, str(script)], **options)


def propose(command: Command, judged: Judged = JUDGED, number: int = 1) -> Program:
    return asyncio.run(command.propose(Draw(judged, None, (replace(judged, number=9),)), number))


def test_a_command_improves_the_program_and_is_one_arm_of_the_search(tmp_path: Path) -> None:
    found = search(options=SearchOptions(iterations=2, edits=()), proposers=[Command(agent(tmp_path, MEND))])
    assert found.best.score == 1.0
    assert found.lineage()[0].operator.startswith("command python")
    assert found.best.program.text.startswith("import math  # stays")


def test_it_is_told_the_parent_the_evidence_and_its_budget(tmp_path: Path) -> None:
    source = f"""
import json, os, pathlib, shutil
assert os.getcwd() == os.environ["WHET_TASK"]
for name in ("evidence.json", "budget.json"):
    shutil.copy(name, {str(tmp_path)!r})
{MEND}"""
    propose(Command(agent(tmp_path, source, seconds=30)), number=7)
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    assert evidence["score"] == 0.5
    assert evidence["artifacts"] == {"feedback": "f(2) should be 17"}
    assert evidence["others"][0]["program"] == dict(PROGRAM.parts)
    assert json.loads((tmp_path / "budget.json").read_text()) == {"seconds": 30, "proposal": 7}


PATCH = """\
Here is the change:
--- a/program.py
+++ b/program.py
@@ -40,4 +40,4 @@ def f(x):
 def f(x):
     # what a person wrote
-    return x * 2 + 1
+    return x * x
 # EVOLVE-BLOCK-END
"""


@pytest.mark.parametrize(
    "printed",
    [
        PATCH,
        "<<<<<<< SEARCH\n    return x * 2 + 1\n=======\n    return x * x\n>>>>>>> REPLACE\n",
    ],
)
def test_a_patch_that_is_printed_is_taken_too(tmp_path: Path, printed: str) -> None:
    found = propose(Command(agent(tmp_path, f"print({printed!r})")))
    assert found.text == LINE.replace("x * 2 + 1", "x * x")


def test_what_lies_outside_of_the_blocks_and_files_that_are_none_of_the_program_stay_out(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the key", encoding="utf-8")
    source = f"""
import os, pathlib
pathlib.Path("program/more.py").write_text("x = 1")
path = pathlib.Path("program/program.py")
path.write_text(path.read_text().replace("# stays", "# gone").replace("x * 2", "x * 3"))
os.remove("program/table.txt")
os.symlink({str(secret)!r}, "program/table.txt")
"""
    start = Program({"program.py": LINE, "table.txt": "kept\n"}, "program.py")
    found = propose(Command(agent(tmp_path, source)), replace(JUDGED, program=start))
    assert found.parts == {"program.py": LINE.replace("x * 2", "x * 3"), "table.txt": "kept\n"}


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("print('I have no idea')", "changed no file"),
        ("print('--- a/x.py\\n+++ b/x.py\\n@@ -1 +1 @@\\n-a\\n+b')", "none of"),
        ("print('--- a/program.py\\n+++ b/program.py\\n@@ -1 +1 @@\\n-a\\n+b')", "no part holds"),
    ],
)
def test_an_answer_that_changes_nothing_says_why(tmp_path: Path, source: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        propose(Command(agent(tmp_path, source)))


def test_a_command_that_fails_or_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="code 3: no licence"):
        propose(Command(agent(tmp_path, "print('no licence', flush=True); import os; os._exit(3)")))
    with pytest.raises(ModelError, match="cannot be started"):
        propose(Command(CommandModel([str(tmp_path / "missing")])))
    with pytest.raises(InputError, match="give a command"):
        CommandModel([])


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    source = f"""
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))
time.sleep(600)
"""
    with pytest.raises(ModelError, match="more than 5 s"):
        propose(Command(agent(tmp_path, source, seconds=5.0)))
    child = int((tmp_path / "pid").read_text())
    until(lambda: not alive(child))


def test_a_recorded_command_is_not_started_twice_for_one_proposal(tmp_path: Path) -> None:
    source = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n{MEND}"
    for _ in range(2):
        with Store(tmp_path / "runs.db") as store:
            recorded = RecordedModel(agent(tmp_path, source), Log(store))
            assert "x * x + 3" in propose(Command(recorded)).text
    assert (tmp_path / "count").read_text() == "x"


def test_hunks_after_one_that_grew_are_found_where_they_moved_to() -> None:
    text = "".join(f"line {number % 3}\n" for number in range(12))
    new = text.replace("line 0\n", "line 0\nmore\n", 1)
    new = new[: new.rindex("line 1\n")] + "end\n" + new[new.rindex("line 2\n") :]
    start = Program({"a.txt": text}, "a.txt")
    patch = diff("a.txt", text, new)
    assert apply_patch(start, patch).text == new
    assert changed(start, json.dumps({"parts": {}, "printed": patch})).text == new


def test_whet_evolve_takes_a_command_and_does_not_start_it_again_when_it_goes_on(tmp_path: Path) -> None:
    program, evaluator = write(tmp_path)
    script = tmp_path / "agent.py"
    script.write_text(f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n{MEND}", encoding="utf-8")
    settings = Settings(
        iterations=3,
        models_only=True,
        command=f"'{sys.executable}' '{script}'",
        output=tmp_path / "out",
        unsafe_local=True,
    )
    for _ in range(2):
        report = asyncio.run(evolve_program(program, evaluator, settings))
        assert report.found.best.score == 1.0
        assert list(report.models) == [f"command {Path(sys.executable).name}"]
    assert (tmp_path / "count").read_text() == "xxx"
    with pytest.raises(InputError, match="--command"):
        replace(settings, command="agent 'unclosed").proposing()
    with pytest.raises(InputError, match="no program no-such-agent"):
        replace(settings, command="no-such-agent fix.py").proposing()


def test_a_file_in_the_command_is_the_one_beside_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mend.py").write_text("print('from here')")
    words = words_of(f"'{sys.executable}' mend.py --style mend")
    assert words == [sys.executable, str(tmp_path / "mend.py"), "--style", "mend"]
