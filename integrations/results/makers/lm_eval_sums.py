# /// script
# dependencies = ["lm-eval[api]==0.4.13"]
# ///
"""lm-evaluation-harness: a task of one's own, `--log_samples`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sums import SIDES, SUMS

Path("sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SUMS))
Path("tasks").mkdir()
Path("tasks/sums.yaml").write_text(f"""\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {Path.cwd() / "sums.jsonl"}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{expected}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 16}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 1}}
""")
for side, prompt in SIDES.items():
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "lm_eval",
            "run",
            "--model",
            "local-chat-completions",
            "--model_args",
            f"model=clerk,base_url={address},num_concurrent=1",
            "--tasks",
            "sums",
            "--include_path",
            "tasks",
            "--apply_chat_template",
            "--system_instruction",
            prompt,
            "--log_samples",
            "--output_path",
            side,
        ],
        check=True,
    )
    (samples,) = Path(side).rglob("samples_*.jsonl")
    shutil.copy(samples, f"{side}.jsonl")
Path("sums.jsonl").unlink()
