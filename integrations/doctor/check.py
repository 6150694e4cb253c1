"""`whet doctor` names the broken instrumentor and what is missing, and the instrumentor bears it out.

    python -m integrations.doctor.check PYTHON

PYTHON is that of an environment whose parts do not fit; see requirements.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from integrations.recorded import environment

REPO = Path(__file__).parent.parent / "openai" / "repo"
INSTRUMENT = (
    "from openinference.instrumentation.openai import OpenAIInstrumentor\nOpenAIInstrumentor().instrument()\n"
)


def run(python: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(python), cwd=folder, capture_output=True, text=True, timeout=60
    )


def main(python: str) -> None:
    refused = run(python, REPO, python, "-c", INSTRUMENT)
    assert "nothing can be instrumented" in refused.stderr, refused
    diagnosed = run(python, REPO, "whet", "doctor", "--json")
    assert diagnosed.returncode == 1, diagnosed
    found = {one["what"]: one for one in json.loads(diagnosed.stdout)}

    def finding(*words: str) -> dict[str, str]:
        (only,) = [one for what, one in found.items() if all(word in what for word in words)]
        return only

    broken = finding("openinference-instrumentation-openai 0.1.66 cannot work with openai 1.99.9")
    assert broken["level"] == "error", broken
    assert "pip install 'openai>=2.8.0'" in broken["fix"], broken
    assert "opentelemetry-exporter-otlp-proto-http" in finding("nothing that exports its spans")["fix"]
    assert "whet[server]" in finding("`whet serve` and `whet run` lack")["fix"]
    assert "whet run -- COMMAND" in finding("OpenAI is not recorded")["fix"]
    with tempfile.TemporaryDirectory() as empty:
        nothing = run(python, Path(empty), "whet", "init")
        assert nothing.returncode == 2, nothing
        for words in ("holds no Python file", "whet run -- COMMAND", "whet demo"):
            assert words in nothing.stderr, nothing
        assert not list(Path(empty).iterdir()), "a refusal writes nothing"
    print(
        "doctor: names the instrumentor that does not fit and what is missing; init refuses an empty folder"
    )


if __name__ == "__main__":
    main(sys.argv[1])
