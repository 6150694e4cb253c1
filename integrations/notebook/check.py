"""`whet.improve` in a notebook: a real Jupyter kernel, which runs a loop of its own and is interrupted in the middle.

    python -m integrations.notebook.check PYTHON

PYTHON is that of an environment with ipykernel and nbclient; see requirements.txt.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.models.fakes.clerk import RULES, Clerk

LIMIT = 180
"""Seconds that the notebook may take."""
MIDDLE = 40
"""Model calls after which the first search is interrupted."""
CELLS = (
    "import asyncio\nimport whet\nasyncio.get_running_loop()",
    "import os\nfrom pathlib import Path\nPath('kernel.pid').write_text(str(os.getpid()))\n"
    "whet.improve('prompt.txt', data='examples.csv', model='scripted', base_url=URL)",
    "better = whet.improve('prompt.txt', data='examples.csv', model='scripted', base_url=URL)",
    "print('PROVEN', better.proven)\nprint(better.diff())",
    "async def later():\n    return whet.improve('prompt.txt', data='examples.csv', model='scripted', base_url=URL,\n"
    "                       say=None)\n\nprint('AGAIN', (await later()).after == better.after)",
)
PLAYED = """
import json, sys, nbformat
from nbclient import NotebookClient
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)])
client = NotebookClient(book, timeout=120, allow_errors=True)
client.execute()
told = []
for cell in book.cells:
    texts = [output.get("text", "") for output in cell.outputs if output.output_type == "stream"]
    errors = [output.ename for output in cell.outputs if output.output_type == "error"]
    told.append({"text": "".join(texts), "errors": errors})
json.dump(told, sys.stdout)
"""


def slow(request: ModelRequest) -> str:
    """A clerk that takes its time, so that there is a middle to interrupt."""
    time.sleep(0.05)
    return Clerk(0)(request)


def interrupt(kernel: Path, server: ScriptedServer) -> None:
    """Interrupt the kernel in the middle of its first search: after some of its calls, whatever they take."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and len(server.requests) < MIDDLE:
        time.sleep(0.01)
    os.kill(int(kernel.read_text()), signal.SIGINT)


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as name, ScriptedServer(slow) as server:
        folder = Path(name)
        rows = Clerk(0).rows(200, seed=0)
        with (folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        (folder / "prompt.txt").write_text(Clerk.prompt, encoding="utf-8")
        cells = [source.replace("URL", repr(server.base_url)) for source in CELLS]
        threading.Thread(target=interrupt, args=(folder / "kernel.pid", server), daemon=True).start()
        played = subprocess.run(
            [python, "-c", PLAYED],
            input=json.dumps(cells),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert played.returncode == 0, played.stderr[-3000:]
        loop, interrupted, improved, shown, again = json.loads(played.stdout)
        asked = len(server.requests)
    assert loop["errors"] == [], loop
    assert interrupted["errors"] == ["KeyboardInterrupt"], interrupted
    assert "prompt.txt can change" in improved["text"], improved
    assert re.search(r"best [01][.\d]* \(from 0\.\d+\) · \d+ of 200 model calls", improved["text"]), improved
    assert "PROVEN True" in shown["text"], shown
    added = set(re.findall(r"^\+- (.+)$", shown["text"], re.MULTILINE))
    # Which of the rules it found depends on the order of the answers, and so on where it was interrupted.
    assert len(added & {rule.text for rule in RULES}) >= 3, shown
    assert again == {"text": "AGAIN True\n", "errors": []}, again
    # What was paid for before the interrupt is not asked for again, nor is it by the third time.
    assert asked <= 200, asked
    print(f"a notebook, interrupted and gone on with: {asked} model calls, and the prompt is proven")


if __name__ == "__main__":
    main(sys.argv[1])
