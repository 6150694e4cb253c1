"""A change that the gate refuses: another exit code, another file, and no line that praises it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import command

SOURCE = "def price(n: int) -> int:\n    return 2 * n\n"


def rows(folder: Path, right: object, held: object) -> None:
    """Rows with a goal that the change meets where it is searched, and another one at the gate."""
    lines = [
        {
            "input": n,
            "expected": held if n % 4 == 0 else right,
            "split": "gate" if n % 4 == 0 else "train",
            "group": n,
        }
        for n in range(120)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("held", "code", "present", "absent"),
    [
        (7, 0, "agent.patch", "refused.patch"),
        (8, 1, "refused.patch", "agent.patch"),
    ],
)
def test_what_is_refused_is_not_handed_out_as_a_patch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    held: int,
    code: int,
    present: str,
    absent: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "price.py").write_text(SOURCE)
    (tmp_path / "propose.py").write_text(
        "import pathlib\nfor path in pathlib.Path('program').rglob('*.py'):\n"
        "    path.write_text(path.read_text().replace('2 * n', '7'))\n"
    )
    rows(tmp_path, 7, held)
    (tmp_path / "whet_output").mkdir()
    (tmp_path / "whet_output" / absent).write_text("of an earlier run")
    words = ("price:price", "--data", "rows.jsonl", "--models-only", "--iterations", 1, "--unsafe-local")
    if code == 0:
        words = words[:-1]  # what ran outside the sandbox is never promoted
    done = command(capsys, "evolve", *words, "--command", f"'{sys.executable}' '{tmp_path / 'propose.py'}'")
    assert done.returncode == code, done.stderr
    assert (tmp_path / "whet_output" / present).read_text().startswith("---")
    assert not (tmp_path / "whet_output" / absent).exists()
    above, _, below = done.stdout.partition("\ndo not promote:" if code else "\npromote:")
    assert below
    assert ("taken" in above) is (code == 0)
    if code:
        assert "on the rows that were searched, " in above
        assert "git apply" not in done.stdout
