"""Messages with the team that they were for (rows.jsonl), and a record of runs with thumbs (runs.db).

    python traffic.py FOLDER [SEED]

The messages are made up, from a seed: one word of a topic among words that say nothing.  Half of the recorded
runs answered right, and the thumbs say which.
"""

import json
import random
import sys
from pathlib import Path

from whet.record.store import Store
from whet.types import Feedback, Task, Trajectory

TOPICS = {
    "billing": ["refund", "invoice", "charged"],
    "delivery": ["parcel", "tracking", "courier"],
    "account": ["password", "login", "username"],
    "general": ["hours", "address", "holiday"],
}


def messages(count: int, seed: int) -> list[tuple[str, str]]:
    """Messages with their team."""
    rng = random.Random(seed)
    filler = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(400)]
    found = []
    for _ in range(count):
        team = rng.choice(list(TOPICS))
        words = [rng.choice(TOPICS[team]), *rng.sample(filler, 5)]
        rng.shuffle(words)
        found.append((" ".join(words), team))
    return found


def write_rows(path: Path, seed: int, count: int = 240) -> Path:
    """What is known to be right."""
    lines = [json.dumps({"input": text, "expected": team}) + "\n" for text, team in messages(count, seed)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def record(path: Path, seed: int, count: int = 60, *, shuffled: bool = False) -> Path:
    """A store of runs; `shuffled` deals the same thumbs out by chance, so that they say nothing."""
    rng = random.Random(f"runs:{seed}")
    runs = [(text, team, rng.random() < 0.5) for text, team in messages(count, 1_000_000 + seed)]
    thumbs = [right for _, _, right in runs]
    if shuffled:
        rng.shuffle(thumbs)
    with Store(path) as store:
        for (text, team, right), thumb in zip(runs, thumbs, strict=True):
            said = team if right else rng.choice([other for other in TOPICS if other != team])
            run = Trajectory(task=Task(instruction=text), output=said, meta={"function": "sort"})
            store.put(run)
            store.add_feedback(Feedback(run=run.id, value=1.0 if thumb else -1.0))
    return path


if __name__ == "__main__":
    folder, number = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    write_rows(folder / "rows.jsonl", number)
    record(folder / "runs.db", number)
