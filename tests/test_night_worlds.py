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
