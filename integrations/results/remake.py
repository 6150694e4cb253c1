"""Remake tests/results from real installs: python -m integrations.results.remake [NAME ...] [--python PATH]

Each script of `makers` runs the same thirty sums by a product's own means against the scripted model of `clerk.py`, as
a baseline and as a candidate that is better, and leaves what the product writes. `uv run --script` installs what the
script pins; `--python` is an environment that has it. Written are those files without this machine's paths and ports.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from whet.models.fakes import ScriptedServer

from .clerk import clerk

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "tests" / "results"
NAMES = ("dspy", "inspect", "junit", "langfuse", "lm_eval", "mlflow", "opik", "promptfoo", "strands")
LIMIT = 600
"""Seconds that one product may take, its installation included."""
LARGE = 100_000
"""Bytes from which a file is kept packed."""
_PATHS = re.compile(rb"(?:file://)?/(?:[\w.@+-]+/)+(?=[\w.@+-]+)")
_ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")
_WRITTEN = (".json", ".jsonl", ".csv", ".xml", ".eval")


def remake(name: str, out: Path, command: list[str]) -> list[Path]:
    """Run one maker and write what its product wrote.

    Raises:
        AssertionError: it failed; says what it printed.
    """
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(clerk, models=("clerk",)) as model:
        environ = {key: text for key, text in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environ |= {
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "none",
            "HOME": folder,
            "DO_NOT_TRACK": "1",
        }
        script = str(HERE / "makers" / f"{name}_sums.py")
        ended = subprocess.run(
            [*command, script], env=environ, cwd=folder, capture_output=True, text=True, timeout=LIMIT
        )
        assert ended.returncode == 0, f"{name}: {ended.returncode}\n{ended.stdout}\n{ended.stderr[-4000:]}"
        (out / name).mkdir(parents=True, exist_ok=True)
        files = [file for file in sorted(Path(folder).iterdir()) if file.suffix in _WRITTEN]
        return [_written(file, out / name) for file in files]


def _written(file: Path, folder: Path) -> Path:
    target = folder / file.name
    # Inspect's zip is left as it wrote it: it compresses by a method that not every Python can write.
    body = file.read_bytes() if file.suffix == ".eval" else _clean(file.read_bytes())
    if len(body) > LARGE and file.suffix != ".eval":
        target, body = target.with_name(f"{target.name}.gz"), gzip.compress(body, mtime=0)
    target.write_bytes(body)
    return target


def _clean(body: bytes) -> bytes:
    return _ADDRESS.sub(b"127.0.0.1", _PATHS.sub(b"", body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help="products; all if none is named")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--python", help="a Python that has what the script of the one product pins")
    options = parser.parse_args()
    uv = shutil.which("uv") or str(HERE.parents[1] / ".integrations/uv/bin/uv")
    run = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, "--script"]
    for name in options.names:
        command = [str(Path(options.python).absolute())] if options.python else run
        for file in remake(name, options.out, command):
            print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
