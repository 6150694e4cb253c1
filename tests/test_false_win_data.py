"""The claim on false wins over data of somebody else: what cannot be read is said by count and place."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
READ = """
import sys
from pathlib import Path
from false_win_gate import recorded
from false_win_judges import _sets
from data_rows import AbsentData

data = Path(sys.argv[1])
for read in (lambda: {name: len(own) for name, own in _sets(data / "recorded_judges").items()}, lambda: recorded(data)):
    try:
        found = read()
        print("read", found if isinstance(found, dict) else (len(found.success), found.tasks))
    except AbsentData as error:
        print("absent:", error)
"""


def read(data: Path, program: str = READ) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(data)],
        cwd=REPOSITORY / "benchmarks" / "claims",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(path: Path, rows: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))


def test_sets_of_other_names_with_damaged_rows_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    drawn = random.Random(0)
    for name in ("mild", "wild"):
        pairs: list[object] = [{"id": f"{name}{n}", "label": 1 + n % 2} for n in range(30)]
        pairs[3], pairs[4] = "{\n", {"id": "x", "label": 7}
        verdicts: list[object] = [
            {"judge": f"m{m}/p", "winner": [[1 + n % 2, None] for n in range(30)]} for m in range(4)
        ]
        verdicts += [{"judge": "short/p", "winner": [1]}, {"judge": "none/p"}, "[]\n"]
        lines(tmp_path / "recorded_judges" / f"{name}.pairs.jsonl", pairs)
        lines(tmp_path / "recorded_judges" / f"{name}.verdicts.jsonl", verdicts)
    lines(tmp_path / "recorded_judges" / "alone.pairs.jsonl", [{"id": "a", "label": 1}])
    for agent in range(9):
        rows: list[object] = [{"id": f"odd_{n}", "success": drawn.random() < 0.5} for n in range(80)]
        rows[agent] = "not JSON\n"
        lines(tmp_path / "recorded_agents" / "runs" / f"a{agent}.jsonl", rows)
    out = read(tmp_path)
    assert "mild.pairs.jsonl: 2 of 30 rows left out, line 4: " in out
    assert "mild.verdicts.jsonl: 2 of 7 rows left out, line 6: it has no winner" in out
    assert "mild: 1 judges left out, whose winners are not 30: short/p first" in out
    assert "alone is left out: " in out
    assert "read {'mild': 28, 'wild': 28}" in out
    assert "read (9, 71)" in out


def test_absent_sets_are_a_sentence(tmp_path: Path) -> None:
    out = read(tmp_path)
    assert out.count("absent: ") == 2
    assert "holds 0 sets of pairs with verdicts, and two are needed" in out
    assert "holds 0 agents that were run on the same 0 tasks" in out


TABLES = """
import sys
from pathlib import Path
from data_rows import AbsentData, csv_rows
from false_win_signals import moves

data = Path(sys.argv[1])
print(csv_rows(data / "noise.csv"))
for read in (lambda: csv_rows(data / "none.csv"), lambda: moves(data)):
    try:
        print("read", read())
    except AbsentData as error:
        print("absent:", error)
"""


def test_what_is_no_text_packed_badly_or_without_questions_is_a_sentence_too(tmp_path: Path) -> None:
    rows: list[object] = [{"id": f"odd_{n}", "success": n % 2} for n in range(80)]
    for agent in range(9):
        lines(tmp_path / "recorded_agents" / "runs" / f"a{agent}.jsonl.gz", rows)
    assert "read (9, 80)" in read(tmp_path), "unpacked under the old name"
    (tmp_path / "recorded_agents" / "runs" / "a3.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00" + b"broken" * 20)
    assert "a3.jsonl.gz: " in [line for line in read(tmp_path).splitlines() if "absent: /" in line][-1]
    (tmp_path / "noise.csv").write_bytes(b"prompt,label\nwhy \xa2\xff,x\nhow,y,z,1\n")
    asked = [{"db": "d", "gold": "SELECT 1", "query": "one?"}, {"db": "d", "gold": 7, "query": "two?"}]
    (tmp_path / "intercode_sql").mkdir()
    (tmp_path / "intercode_sql" / "ic_spider_dev.json").write_text(json.dumps(asked))
    lines(tmp_path / "conversations" / "c.questions.jsonl", [{"question": ["?"], "answer": "x"}, "{"])
    out = read(tmp_path, TABLES)
    assert "'label': 'x'}, {'prompt': 'how', 'label': 'y'}]" in out
    assert "none.csv: " in out
    assert "holds no two answered questions about one conversation" in out
