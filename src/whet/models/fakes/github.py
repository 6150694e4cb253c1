"""ScriptedGitHub, the public fake of GitHub's pull requests: real HTTP on loopback, and nothing behind it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from .server import Received


class ScriptedGitHub:
    """GitHub's REST API as far as pull requests go: lists, opens and edits those of one repository.

    >>> with ScriptedGitHub("owner/name", token="t") as github:
    ...     api_url = github.url

    Args:
        repository: `owner/name`; another one is answered with 404.
        token: what it wants as a bearer's token.
        redirect: answer all with a redirect to this address, to see that nobody follows it.
    """

    def __init__(self, repository: str, *, token: str, redirect: str = "") -> None:
        self.repository, self.token, self.redirect = repository, token, redirect
        self.received: list[Received] = []
        self.pulls: list[dict[str, Any]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                return

            def do_GET(self) -> None:
                fake._answer(self)

            do_POST = do_PATCH = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        content = msgspec.json.decode(body) if body else {}
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.command, request.path, headers, content))
        if self.redirect:
            self._send(request, 307, {"message": "moved"}, {"location": self.redirect + request.path})
        elif headers.get("authorization") != f"Bearer {self.token}":
            self._send(request, 401, {"message": "Bad credentials"})
        else:
            self._send(request, *self._pulls(request.command, request.path, content))

    def _pulls(self, method: str, path: str, content: Mapping[str, Any]) -> tuple[int, Any]:
        parts = urlsplit(path)
        pulls = f"/repos/{self.repository}/pulls"
        owner, _, name = self.repository.partition("/")
        if method == "GET" and parts.path == pulls:
            wanted = parse_qs(parts.query)
            head = wanted.get("head", [""])[0].removeprefix(f"{owner}:")
            return 200, [pull for pull in self.pulls if pull["head"]["ref"] == head]
        if method == "POST" and parts.path == pulls:
            number = len(self.pulls) + 1
            self.pulls.append(
                {
                    "number": number,
                    "html_url": f"https://github.example/{owner}/{name}/pull/{number}",
                    "title": content["title"],
                    "body": content["body"],
                    "head": {"ref": content["head"]},
                    "base": {"ref": content["base"]},
                }
            )
            return 201, self.pulls[-1]
        for pull in self.pulls:
            if method == "PATCH" and parts.path == f"{pulls}/{pull['number']}":
                pull.update({key: content[key] for key in ("title", "body") if key in content})
                return 200, pull
        return 404, {"message": "Not Found"}

    @staticmethod
    def _send(
        request: BaseHTTPRequestHandler, status: int, content: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        body = msgspec.json.encode(content)
        request.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
