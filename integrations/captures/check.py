"""The captures of tests/captures are what their frameworks still send: two light ones are made again and compared.

    python -m integrations.captures.check

`python -m integrations.captures.remake` makes all of them again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from .remake import CAPTURES, HERE, capture

sys.path.insert(0, str(CAPTURES.parent))
from captures_read import differences, load, shown, tree

AGAIN = ("langfuse", "strands")
"""Captures whose frameworks install in seconds."""


def main() -> None:
    uv = shutil.which("uv") or str(HERE.parents[1] / ".integrations" / "uv" / "bin" / "uv")
    for name in AGAIN:
        stored = load(CAPTURES / f"{name}.json")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps(capture(name, uv)), encoding="utf-8")
            made = load(path)
        assert made.printed == stored.printed, (name, made.printed)
        assert made.calls == stored.calls, (name, made.calls)
        trees = [[tree(run) for run in shown(each.spans)] for each in (made, stored)]
        assert trees[0] == trees[1], (name, trees)
        assert differences(made, shown(made.spans)) == [], name
    print(f"captures: {' and '.join(AGAIN)} send what they sent, and it is read as it was")


if __name__ == "__main__":
    main()
