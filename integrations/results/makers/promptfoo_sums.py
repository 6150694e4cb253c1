"""promptfoo 0.121.20 (`npm install promptfoo@0.121.20`), two runs of each case; $PROMPTFOO is its program."""

import json
import os
import subprocess
from pathlib import Path

from sums import SIDES, SUMS

for side, prompt in SIDES.items():
    turns = [{"role": "system", "content": prompt}, {"role": "user", "content": "{{question}}"}]
    config = {
        "description": "sums",
        "prompts": [{"id": "prompt", "label": "add", "raw": json.dumps(turns)}],
        "providers": [
            {
                "id": "openai:chat:clerk",
                "config": {"apiBaseUrl": os.environ["OPENAI_BASE_URL"], "apiKey": "none"},
            }
        ],
        "tests": [
            {
                "vars": {"question": row["question"]},
                "metadata": {"group": row["group"]},
                "assert": [{"type": "equals", "value": row["expected"], "metric": "exact"}],
            }
            for row in SUMS
        ],
    }
    Path(f"{side}_config.yaml").write_text(json.dumps(config))
    settings = {
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_CONFIG_DIR": str(Path.cwd() / "home"),
    }
    ended = subprocess.run(
        [
            os.environ["PROMPTFOO"],
            "eval",
            "-c",
            f"{side}_config.yaml",
            "-o",
            f"{side}.json",
            "--no-cache",
            "--no-table",
            "--no-progress-bar",
            "--repeat",
            "2",
            "-j",
            "1",
        ],
        env=os.environ | settings,
    )
    # 100: a test failed.
    assert ended.returncode in (0, 100), ended.returncode
    Path(f"{side}_config.yaml").unlink()
