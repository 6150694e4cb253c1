"""Plug-ins: what another package announces is found by name, and so is what whet brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whet.errors import InputError, NotFoundError
from whet.learn import plugins
from whet.learn.loop import Optimizer

CODE = '''
import whet

class Nudge:
    """Adds one to a number."""
    name, group_size, on_policy, ordered = "nudge", 0, False, False
    def __init__(self, by: int = 1) -> None:
        self.by = by
    async def step(self, bundle, groups, context):
        return whet.Update(bundle=bundle.put(whet.Version(resource="number", content=self.by)), done=True)

def nothing():
    return object()
'''
ENTRIES = """[whet.optimizers]
nudge = nudging:Nudge
nothing = nudging:nothing
gone = nudging:gone
[whet.rewards]
polite = nudging:Nudge
"""
PROGRAM = """
import asyncio, whet
from whet.learn import plugins
assert "nudge" in plugins.announced("whet.optimizers") and "polite" in plugins.announced("whet.rewards")
import sys
assert "nudging" not in sys.modules, "announced, not imported"
learner = plugins.optimizer("nudge", by=3)
tasks = [whet.Task(instruction=str(n), group=str(n)) for n in range(40)]
experiment = whet.Experiment(env=whet.calls(str), tasks=tasks, rewards=[], seed=0)
better = asyncio.run(experiment.improve(learner))
assert better.bundle["number"].content == 3
for name in ("nothing", "gone"):
    try:
        plugins.optimizer(name)
    except whet.errors.InputError as error:
        print(error)
"""


def installed(site: Path, entries: str = ENTRIES) -> None:
    """A package as an installer leaves it: its code, and its metadata beside it."""
    (site / "nudging.py").write_text(CODE)
    info = site / "nudging-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nudging\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)


def run(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(site)!r})\nimport whet.errors\n{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_a_learner_of_another_package_learns_in_an_experiment(tmp_path: Path) -> None:
    installed(tmp_path)
    done = run(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr
    nothing, gone = done.stdout.splitlines()
    assert "gives a object, which is not an Optimizer" in nothing
    assert "nudging:gone, cannot be imported" in gone


def test_two_packages_under_one_name_are_refused(tmp_path: Path) -> None:
    installed(tmp_path, "[whet.optimizers]\nevolve = nudging:Nudge\n")
    done = run(tmp_path, "from whet.learn import plugins; plugins.announced('whet.optimizers')")
    assert "announced as whet.learn.optimizers.evolve:Evolve and as nudging:Nudge" in done.stderr


@pytest.mark.parametrize("group", plugins.GROUPS)
def test_everything_that_whet_announces_is_there(group: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("lightgbm")
    for name in plugins.BUILT_IN[group]:
        assert callable(plugins.load(group, name))
        if group == "whet.optimizers":
            assert isinstance(plugins.optimizer(name), Optimizer)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=r"evolve.*head"):
        plugins.load("whet.optimizers", "evolv")
    with pytest.raises(NotFoundError, match=r"whet\.models"):
        plugins.announced("whet.stores")
    with pytest.raises(InputError, match="cannot be made"):
        plugins.optimizer("evolve", colour="blue")
