"""The worlds of `scripts/claims night`: a sound agent is right, and each fault spoils its own questions."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import pytest

CLAIMS = Path(__file__).parents[1] / "benchmarks" / "claims"
WORLDS = [CLAIMS / "night_world", *sorted((CLAIMS / "night_worlds").iterdir())]


@pytest.mark.parametrize("world", WORLDS, ids=lambda path: path.name)
def test_a_sound_agent_is_right_and_faults_spoil_their_own_questions(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(CLAIMS))
    # The parts of every world have the same names.
    for name in ("truth", "faults", "people", "services", "model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from night_setting import night

    from whet.types import Bundle

    faulty = night(3, tmp_path / "faulty", world=world, runs=50)
    sound = night(3, tmp_path / "sound", world=world, runs=50, planted=False)
    assert len(faulty.faults) == 20
    spoilt, right = (
        {fault.id: made.success(fault, Bundle(), count=20) for fault in faulty.faults}
        for made in (faulty, sound)
    )
    assert not {id: share for id, share in spoilt.items() if share > right[id] - 0.2}
    assert fmean(spoilt.values()) < 0.4
    assert fmean(right.values()) > 0.9
    assert len(faulty.decoys) >= 20
    for fault in faulty.world["faults"].FAMILY:  # those that this night has not drawn can be planted, too
        files = sound.files
        fault.plant(files)
        assert files != sound.files, fault.id


@pytest.mark.parametrize(
    "name",
    [
        "pack/deep/tools.py:double",
        "pack.deep.tools:double",
        "pack.deep.tools.double",
        "pack/deep/tools.double",
    ],
)
def test_a_part_of_a_module_in_a_package_can_be_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CLAIMS))
    from night_setting import files_under

    from whet.types import Bundle, Version

    files = {
        "pack/deep/tools.py": "async def double(n):\n    return n\n\n\nLIMIT = 3\n",
        "pack/notes.toml": "a = 1\n",
    }
    text = "async def double(n):\n    return 2 * n"
    changed = files_under(files, Bundle({name: Version(resource=name, kind="code", content=text)}))
    assert changed == files | {"pack/deep/tools.py": f"{text}\n\n\nLIMIT = 3\n"}
