"""Makes catalogue.json from a folder of BFCL files: `python prepare.py FOLDER OUT [unseen]`.

Functions are split by the hash of their name; with `unseen` the catalogue holds the other half, so a
router is judged on functions, and on questions, that it never saw.
"""

import hashlib
import json
import sys
from pathlib import Path

FILES = ("BFCL_v4_multiple.json", "BFCL_v4_simple_python.json", "BFCL_v4_live_simple.json")


def unseen(name):
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def catalogue(folder, other_half):
    """`tools` and `questions` of one half."""
    tools, questions = {}, []
    for name in FILES:
        meant = {
            row["id"]: next(iter(row["ground_truth"][0])) for row in rows(folder / "possible_answer" / name)
        }
        for row in rows(folder / name):
            for tool in row["function"]:
                if unseen(tool["name"]) == other_half:
                    given = tool["parameters"].get("properties", {})
                    said = " ".join(f"{key} {value.get('description', '')}" for key, value in given.items())
                    tools.setdefault(tool["name"], f"{tool['description']} {said}")
            wanted = meant.get(row["id"])
            if wanted is not None and unseen(wanted) == other_half:
                text = " ".join(
                    message["content"] for message in row["question"][0] if message["role"] == "user"
                )
                questions.append([text, wanted])
    questions = [each for each in questions if each[1] in tools]
    return {"tools": sorted(tools.items()), "questions": questions}


def main():
    data = catalogue(Path(sys.argv[1]), sys.argv[3:] == ["unseen"])
    Path(sys.argv[2]).write_text(json.dumps(data), encoding="utf-8")
    print(f"{len(data['tools'])} tools, {len(data['questions'])} questions")


if __name__ == "__main__":
    main()
