"""The public API of another product, read page by page: it waits where it is told to, and goes on where it was cut off.

Every page that was read is kept, without its secrets, in a file beside the record until the import is done: an import
that was interrupted is answered from there and asks for the rest alone.  The one address is what the person gave: no
link in an answer and no redirect is followed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....errors import InputError, NotFoundError, WhetError
from ....types import Json, digest
from ...store.redaction.current import redaction, searching

ATTEMPTS = 8
"""Of one request that a server is too busy for."""
LONGEST_WAIT = 120.0
"""Seconds; what a server asks for beyond it is not waited for."""
Query = Sequence[tuple[str, str]]
Say = Callable[[str], None]


class Api:
    """Pages of one server, each read once.

    Args:
        url: its address, as the person gave it.
        headers: keys.
        pages: the file that keeps what was read.
        say: is told when it waits.
    """

    def __init__(self, url: str, headers: Mapping[str, str], pages: Path, say: Say = print) -> None:
        import httpx2

        self.url = url.rstrip("/")
        host = httpx2.URL(self.url).host
        local = host in ("127.0.0.1", "localhost", "::1")
        # A proxy set for the internet must not see what is meant for this machine.
        self._client = httpx2.Client(headers=dict(headers), timeout=60.0, trust_env=not local)
        self._say = say
        self._pages = pages
        self._kept: dict[str, tuple[int, int]] = {}
        self.redacted: Counter[str] = Counter()
        self.resumed = 0
        """Pages that an interrupted import had read."""
        self._index()

    def close(self) -> None:
        """Close the connections; the pages stay until `forget`."""
        self._client.close()

    def forget(self) -> None:
        """Delete the pages: the import is done."""
        self._pages.unlink(missing_ok=True)

    def rows(
        self,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Json] | None = None,
        at: str = "",
        cursor: str = "",
        offset: str = "",
        page: str = "",
        size: int = 0,
    ) -> Iterator[dict[str, Any]]:
        """The objects of all pages under a path.

        Args:
            body: posted; None gets.
            at: where in the answer they are; the whole answer if "".
            cursor: where in it the next page's cursor is, which is sent as `cursor` (or `page_token`).
            offset: name of the parameter that counts rows, of pages of `size`.
            page: name of the parameter that counts pages, of `size`.
        """
        number, token = 0, ""
        while True:
            sent = list(query)
            if size:
                sent.append(("limit", str(size)))
            if offset:
                sent.append((offset, str(number * size)))
            if page:
                sent.append((page, str(number + 1)))
            name = "page_token" if cursor.endswith("page_token") else "cursor"
            posted = None if body is None else {**body, **({name: token} if token else {})}
            if token and body is None:
                sent.append((name, token))
            objects, token = self._page(path, sent, posted, at, cursor)
            yield from objects
            number += 1
            if not (token if cursor else (size and len(objects) >= size)):
                return

    def _page(
        self, path: str, query: Query, body: Mapping[str, Json] | None, at: str, cursor: str
    ) -> tuple[list[dict[str, Any]], str]:
        key = digest([self.url, path, list(query), body], 32)
        if key in self._kept:
            self.resumed += 1
            start, length = self._kept[key]
            with self._pages.open("rb") as file:
                file.seek(start)
                kept = msgspec.json.decode(file.read(length))
            return kept["rows"], kept["next"]
        answer = self._ask(path, query, body)
        objects = _within(answer, at)
        objects = objects if isinstance(objects, list) else [objects]
        following = str(_within(answer, cursor) or "") if cursor else ""
        self._keep(key, [one for one in objects if isinstance(one, dict)], following)
        start, length = self._kept[key]
        with self._pages.open("rb") as file:
            file.seek(start)
            return msgspec.json.decode(file.read(length))["rows"], following

    def _keep(self, key: str, rows: list[dict[str, Any]], following: str) -> None:
        """Keep a page, without its secrets; the cursor is the server's and stays as it is."""
        clean = msgspec.json.encode(rows)
        redactor = redaction()
        if redactor is not None:
            with searching:
                clean = redactor.body(clean, self.redacted)
        fields = msgspec.json.encode({"key": key, "next": following})
        line = fields[:-1] + b',"rows":' + clean + b"}"
        # Only its owner reads it: it is what the product knows of people.
        handle = os.open(self._pages, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            start = file.seek(0, os.SEEK_END)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._kept[key] = (start, len(line))

    def _index(self) -> None:
        if not self._pages.exists():
            return
        start, whole = 0, 0
        with self._pages.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # cut off while it was written
                self._kept[msgspec.json.decode(line)["key"]] = (start, len(line) - 1)
                start += len(line)
                whole = start
        os.truncate(self._pages, whole)

    def _ask(self, path: str, query: Query, body: Mapping[str, Json] | None) -> Json:
        import httpx2

        from ....models.transport import RETRYABLE, retry_after

        said, wait = "", 1.0
        for attempt in range(ATTEMPTS):
            if attempt:
                self._say(f"{said}; trying again in {wait:.0f} s")
                time.sleep(wait)
            try:
                method = "GET" if body is None else "POST"
                response = self._client.request(
                    method, self.url + path, params=list(query), json=None if body is None else dict(body)
                )
            except httpx2.TransportError as error:
                said, wait = f"{self.url} does not answer ({type(error).__name__})", min(60.0, 2.0**attempt)
                continue
            if response.status_code == 200:
                try:
                    return msgspec.json.decode(response.content)
                except msgspec.DecodeError as error:
                    raise InputError(f"{self.url}{path} did not answer in JSON: {error}") from error
            said = f"{self.url}{path}: HTTP {response.status_code}"
            if response.status_code not in RETRYABLE:
                refused = NotFoundError if response.status_code == 404 else InputError
                raise refused(f"{said}{_advice(response.status_code)}")
            asked = retry_after(response.headers.get("retry-after"))
            wait = min(60.0, 2.0**attempt) if asked is None else asked
            if wait > LONGEST_WAIT:
                said = f"{said}, and it asks to wait for {wait:.0f} s"
                break
        raise WhetError(f"{said}. What was read is kept: run the same command again to go on from there.")


def one_project(projects: Mapping[str, str], named: str | None) -> str:
    """The id of the project that was named, or of the only one.

    Raises:
        InputError: there is none of that name, or several and none was named.
    """
    if named is not None and named in projects:
        return projects[named]
    if named is None and len(projects) == 1:
        return next(iter(projects.values()))
    listed = ", ".join(sorted(projects)[:12]) or "none"
    wanted = "name one with --project" if named is None else f"there is no project {named!r}"
    raise InputError(f"{wanted}; the server has {listed}")


def _within(answer: Json, path: str) -> Json:
    for key in filter(None, path.split(".")):
        answer = answer.get(key) if isinstance(answer, dict) else None
    return answer


def _advice(status: int) -> str:
    if status in (401, 403):
        return ": check the key in the environment, and that it may read this project"
    if status == 404:
        return ": check the address; it is that of the server alone, without a path of its pages"
    if 300 <= status < 400:
        return ": redirects are not followed; give the final address"
    return ""
