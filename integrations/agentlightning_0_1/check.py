"""The unmodified Agent Lightning 0.1 client works against `whet serve --open-legacy`.

    python -m integrations.agentlightning_0_1.check PYTHON [--record FILE]

PYTHON is that of the environment with the client.  `--record` writes the HTTP exchange, which
`tests/test_server_legacy.py` replays where the client is not installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from whet.record.store import Store, bundle_of
from whet.serve import Access, Server, new_tokens, running, standard
from whet.types import Rollout, Task

AGENT = Path(__file__).with_name("agent.py")
RESOURCES = {
    "prompt": "You are {name}.",
    "llm": {"resource_type": "llm", "endpoint": "http://127.0.0.1:9/v1", "model": "some-model"},
    "table": {"only": "whet reads this"},
}
TASKS = ("reward", "triplets", "raise")


def recorder(url: str, exchange: list[dict[str, Any]]) -> ThreadingHTTPServer:
    """A proxy before `url` that notes what passes."""

    class Handler(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: text for name, text in self.headers.items() if name.lower() != "host"}
            request = urllib.request.Request(url + self.path, body or None, headers, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=30) as answered:
                    status, said = answered.status, answered.read()
            except urllib.error.HTTPError as error:
                status, said = error.code, error.read()
            sent = msgspec.json.decode(body) if body else None
            exchange.append(
                {
                    "method": self.command,
                    "path": self.path,
                    "headers": headers,
                    "sent": sent,
                    "status": status,
                    "answered": msgspec.json.decode(said),
                }
            )
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = _pass

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def run(python: str, store: Store, folder: str, *options: str) -> list[dict[str, Any]]:
    """Have the client do TASKS over `store`, its log files in `folder`; what passed on the wire."""
    exchange: list[dict[str, Any]] = []
    store.release(bundle_of(RESOURCES), unproven=True, new_names=True)
    rollouts = [
        Rollout(id=f"al-{name}", task=Task(instruction=name, initial_state={"row": 1})) for name in TASKS
    ]
    store.queue.add(rollouts).result()
    server = Server(Access(new_tokens()), standard(store, open_legacy=True))
    with running(server) as url:
        proxy = recorder(url, exchange)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        command = [
            python,
            str(AGENT),
            f"http://127.0.0.1:{proxy.server_address[1]}",
            str(len(TASKS)),
        ]
        subprocess.run([*command, *options], check=True, timeout=120, cwd=folder)
        proxy.shutdown()
        proxy.server_close()
    return exchange


def verify(store: Store) -> None:
    """What the client did is in the record."""
    ended = {rollout.id: rollout for _, rollout in store.queue.finished(0, 100)}
    assert set(ended) == {f"al-{name}" for name in TASKS}, ended
    reward = store.trajectory(ended["al-reward"].result or "")
    assert reward.score("reward") == 0.5
    triplets = store.trajectory(ended["al-triplets"].result or "")
    assert triplets.steps[0].observation == RESOURCES["prompt"]
    assert triplets.steps[0].action == "some-model"
    assert triplets.score("reward") == 0.25
    raised = store.trajectory(ended["al-raise"].result or "")
    assert raised.scores["reward"].value is None, "a reward that is missing is not 0"


def main() -> None:
    python, record = sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None
    for options in (["--bare"], []):
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
            exchange = run(python, store, folder, *options)
            verify(store)
            print(
                f"agentlightning {' '.join(options)}: {len(exchange)} requests, {len(TASKS)} rollouts recorded"
            )
        if record and options:
            Path(record).write_bytes(msgspec.json.format(msgspec.json.encode(exchange)) + b"\n")


if __name__ == "__main__":
    main()
