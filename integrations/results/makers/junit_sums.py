"""JUnit XML: of pytest (`--junitxml`), and of Node's own test runner where there is a node."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sums import SIDES, SUMS

Path("test_sums.py").write_text(f"""\
import os, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import pytest
from sums import SUMS, ask

@pytest.fixture
def till(request):
    if request.node.callspec.id == "sum-29":
        raise RuntimeError("the till is locked")

@pytest.mark.parametrize("row", SUMS, ids=lambda row: row["id"])
def test_sum(row, till):
    if row["id"] == "sum-28":
        pytest.skip("not in this shop")
    assert ask(os.environ["PROMPT"], row["question"]) == row["expected"]
""")
Path("sums.test.mjs").write_text(
    "import {test} from 'node:test'; import assert from 'node:assert';\n"
    f"const sums = {json.dumps(SUMS)};\n"
    "for (const row of sums) test(row.id, {skip: row.id === 'sum-28'}, async () => {\n"
    "  const messages = [{role: 'system', content: process.env.PROMPT}, {role: 'user', content: row.question}];\n"
    "  const answer = await fetch(process.env.OPENAI_BASE_URL + '/chat/completions', {method: 'POST',\n"
    "    headers: {'Content-Type': 'application/json', Authorization: 'Bearer none'},\n"
    "    body: JSON.stringify({model: 'clerk', messages})});\n"
    "  assert.strictEqual((await answer.json()).choices[0].message.content, row.expected);\n"
    "});\n"
)
for side, prompt in SIDES.items():
    environ = os.environ | {"PROMPT": prompt}
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "test_sums.py",
            f"--junitxml={side}_pytest.xml",
        ],
        env=environ,
    )
    if node := shutil.which("node"):
        report = [
            "--test",
            "--test-reporter=junit",
            f"--test-reporter-destination={side}_node.xml",
            "sums.test.mjs",
        ]
        subprocess.run([node, *report], env=environ)
