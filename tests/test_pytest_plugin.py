"""pytest's plug-in: a run is recorded, and a later one compared with it; unasked, it does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

MODULE = "whet.prove.pytest_plugin"
TESTS = """\
import os, random
import pytest
CHANCE = random.Random(os.environ["PROMPT"])
SHARE = 0.9 if "check" in os.environ["PROMPT"] else 0.4
RIGHT = [CHANCE.random() < SHARE for _ in range(40)]

@pytest.fixture
def till(request):
    if request.node.callspec.id == "39":
        raise RuntimeError("locked")

@pytest.mark.parametrize("number", range(40))
def test_sum(number, till):
    if number == 38:
        pytest.skip("closed")
    assert RIGHT[number]

def test_stated(whet_score):
    whet_score(0.25, group="mail", cost=2)
    assert False

@pytest.mark.xfail
def test_expected():
    assert False
"""


def run(folder: Path, *words: str, prompt: str = "add", root: str = "--rootdir=.") -> tuple[int, str]:
    """pytest on those tests, with this plug-in and xdist alone: others that are installed cost seconds each time."""
    (folder / "test_sums.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-p",
        MODULE,
        *([root] if root else ()),
        *words,
    ]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    ended = subprocess.run(
        command, cwd=folder, env=environ | {"PROMPT": prompt}, capture_output=True, text=True, timeout=300
    )
    return ended.returncode, ended.stdout + ended.stderr


def recorded(path: Path) -> dict[str, dict[str, object]]:
    return {row["task"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_a_run_is_recorded_and_a_better_one_is_kept_and_the_same_one_dropped(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--whet-record", "out/before.jsonl")
    assert code == 1, said  # tests failed, and pytest says so as ever
    assert "41 results written to" in said
    rows = recorded(tmp_path / "out" / "before.jsonl")
    assert rows["test_sums.py::test_stated"] == {
        "task": "test_sums.py::test_stated",
        "success": 0.25,
        "group": "mail",
        "cost": 2.0,
    }
    assert rows["test_sums.py::test_sum[39]"]["outcome"] == "infrastructure_error"
    assert "test_sums.py::test_sum[38]" not in rows
    assert rows["test_sums.py::test_expected"]["success"] == 0.0
    # On several workers, whose tests and what they stated come together in one record.
    both = ("--whet-baseline", "out/before.jsonl", "--whet-record", "after.jsonl", "-n", "2")
    _, better = run(tmp_path, *both, prompt="add and check")
    assert "KEEP: this run is shown to be better than" in better
    _, null = run(tmp_path, "--whet-baseline", "out/before.jsonl")
    assert "DROP: nothing shows that this run is better than" in null
    after = recorded(tmp_path / "after.jsonl")
    assert after.keys() == rows.keys()
    assert after["test_sums.py::test_stated"] == rows["test_sums.py::test_stated"]


def test_tests_that_were_not_selected_are_left_out_and_said_and_a_missing_baseline_is_a_usage_error(
    tmp_path: Path,
) -> None:
    run(tmp_path, "--whet-record", "before.jsonl")
    (tmp_path / "part.jsonl").write_text("\n".join((tmp_path / "before.jsonl").read_text().splitlines()[5:]))
    _, said = run(tmp_path, "--whet-baseline", "part.jsonl", "-k", "not stated and not expected")
    assert "5 tests of this run have no baseline: left out." in said
    assert "2 tests of the baseline were not selected now: left out." in said
    code, said = run(tmp_path, "--whet-baseline", "none.jsonl")
    assert (code, "there is no file at" in said) == (4, True)
    assert "Traceback" not in said


def test_a_report_that_junitxml_wrote_is_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "test_more.py").write_text(
        "import pytest\n"
        "class TestInside:\n"
        "    @pytest.mark.parametrize('text', ['a::b', 'c[d]'])\n"
        "    def test_text(self, text):\n"
        "        pass\n"
    )
    run(tmp_path, "--junitxml", "before.xml", ".")
    _, better = run(tmp_path, "--whet-baseline", "before.xml", ".", prompt="add and check")
    assert "KEEP: this run is shown to be better than" in better, better
    # A report says of a test that is expected to fail that it was skipped.
    assert "1 tests of this run have no baseline" in better
    assert "were not selected" not in better
    _, null = run(tmp_path, "--whet-baseline", "before.xml", ".")
    assert "KEEP" not in null  # not DROP: one test states .25 where the report says failed
    assert "PAIRS, about" in null or "DROP" in null


def test_a_baseline_that_lies_above_the_tests_is_of_the_same_tests(tmp_path: Path) -> None:
    # Without settings pytest takes the folder above for its root as soon as the file there exists.
    (tmp_path / "evals").mkdir()
    run(tmp_path / "evals", "--whet-record", "../before.jsonl", ".", root="")
    _, said = run(tmp_path / "evals", "--whet-baseline", "../before.jsonl", ".", prompt="check", root="")
    assert "KEEP: this run is shown to be better than" in said, said
    assert "test_sums.py::test_stated" in recorded(tmp_path / "before.jsonl")
    other = (tmp_path / "before.jsonl").read_text().replace("test_sums", "test_others")
    (tmp_path / "before.jsonl").write_text(other)
    _, said = run(tmp_path / "evals", "--whet-baseline", "../before.jsonl", ".", root="")
    assert "none of the 42 tests of this run is in" in said
    assert "record and compare from the same folder" in said


def test_without_its_options_it_imports_nothing_of_whet_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_unconfigure(config):\n"
        "    print('LOADED', sorted(name for name in sys.modules if name.startswith('whet.')))\n"
        "    print('ALSO', [name for name in ('msgspec', 'rich', 'httpx2', 'torch') if name in sys.modules])\n"
    )
    code, said = run(tmp_path, "-s")
    assert code == 1
    assert "LOADED ['whet.prove', 'whet.prove.pytest_plugin']" in said
    assert "ALSO []" in said
    assert "= whet =" not in said


def test_the_package_announces_it_to_pytest() -> None:
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert declared["project"]["entry-points"]["pytest11"] == {"whet": MODULE}
