"""Remake tests/exports from real installs: python -m integrations.exports.remake [NAME ...] [--python PATH]

Each script of `agents` runs an agent under a product's SDK against the scripted model of `integrations.captures.desk`,
and writes what the SDK gives out again. MLflow and Phoenix keep it in their own database and server; Langfuse and
LangSmith send it to `platform.py`. `uv run --script` installs what the script pins; `--python` is an environment that
has it. Written are those files without the paths and the ports of the machine.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from integrations.captures.desk import desk
from whet.models.fakes import ScriptedServer

from .platform import platform

HERE = Path(__file__).parent
EXPORTS = HERE.parents[1] / "tests" / "exports"
NAMES = ("langfuse", "langsmith", "mlflow", "phoenix")
LIMIT = 600
"""Seconds that one agent may take, its installation included."""
_STACK = re.compile(
    r"(Traceback \(most recent call last\):\n)(?s:.*?)((?:^|(?<=\\n)|(?<=\n))[A-Za-z_.]+(?:Error|Exception): )"
)
_PATHS = re.compile(r"(?:file://)?/(?:[\w.@+-]+/)+(?=[\w.@+-]+)")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+|localhost:\d+")


def remake(name: str, out: Path, command: list[str]) -> list[Path]:
    """Run the agent of one product and write what it gave out.

    Raises:
        AssertionError: the agent failed; says what it wrote.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        platform() as server,
        ScriptedServer(desk, models=("gpt-4o-mini",)) as model,
    ):
        base = f"http://127.0.0.1:{server.server_address[1]}"
        environ = {key: text for key, text in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environ |= {
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "none",
            "LANGFUSE_PUBLIC_KEY": "none",
            "LANGFUSE_SECRET_KEY": "none",
            "LANGFUSE_BASE_URL": base,
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_ENDPOINT": base,
            "LANGSMITH_API_KEY": "none",
            "LANGSMITH_PROJECT": "desk",
            "HOME": folder,
            "DO_NOT_TRACK": "1",
        }
        script = str(HERE / "agents" / f"{name}_desk.py")
        ended = subprocess.run(
            [*command, script], env=environ, cwd=folder, capture_output=True, text=True, timeout=LIMIT
        )
        assert ended.returncode == 0, f"{name}: {ended.returncode}\n{ended.stdout}\n{ended.stderr[-4000:]}"
        assert not server.unanswered, (
            f"{name} asked for what platform.py does not answer: {server.unanswered}"
        )
        (out / name).mkdir(parents=True, exist_ok=True)
        made = [
            file
            for file in sorted(Path(folder).iterdir())
            if file.suffix in (".jsonl", ".json", ".csv", ".parquet", ".db")
        ]
        packed = [_packed(store, out / name) for store in Path(folder).glob("mlruns")]
        return [_written(file, out / name) for file in made] + packed


def _written(file: Path, folder: Path) -> Path:
    target = folder / file.name
    if file.suffix == ".parquet":
        table = pyarrow.parquet.read_table(file)
        rows = [_cleaned(row) for row in table.to_pylist()]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), target)
    elif file.suffix == ".db":
        target = target.with_suffix(".db.gz")
        _clean_database(file)
        target.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    elif file.suffix == ".csv":
        target.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    else:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        texts = (json.dumps(_cleaned(line), ensure_ascii=False) + "\n" for line in lines)
        target.write_text("".join(texts), encoding="utf-8")
    return target


def _packed(store: Path, folder: Path) -> Path:
    """The folder of a file store as one file, each text without what is this machine's."""
    target = folder / f"{store.name}.tar.gz"
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for inside in sorted(path for path in store.rglob("*") if path.is_file()):
            body = inside.read_text(encoding="utf-8")
            json_body = inside.suffix == ".json"
            cleaned = json.dumps(_cleaned(json.loads(body))) if json_body else _text(body)
            entry = tarfile.TarInfo(inside.relative_to(store.parent).as_posix())
            entry.size = len(cleaned.encode())
            archive.addfile(entry, io.BytesIO(cleaned.encode()))
    return target


def _clean_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.create_function("clean", 1, lambda text: _text(text) if isinstance(text, str) else text)
        connection.execute("UPDATE spans SET content = clean(content)")
        for table in ("trace_tags", "trace_request_metadata", "experiment_tags"):
            connection.execute(f"UPDATE {table} SET value = clean(value)")
        connection.execute("UPDATE experiments SET artifact_location = clean(artifact_location)")
        connection.execute("UPDATE assessments SET error = clean(error)")
        connection.commit()
        connection.execute("VACUUM")


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items() if not key.startswith("LANGSMITH_")}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    return _ADDRESS.sub("127.0.0.1", _PATHS.sub("", _STACK.sub(r"\1\2", text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help="products; all if none is named")
    parser.add_argument("--out", type=Path, default=EXPORTS)
    parser.add_argument("--python", help="a Python that has what the script of the one product pins")
    options = parser.parse_args()
    uv = shutil.which("uv") or str(HERE.parents[1] / ".integrations/uv/bin/uv")
    run = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, "--script"]
    for name in options.names:
        command = [options.python] if options.python else run
        for file in remake(name, options.out, command):
            print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
