"""Runs inside the sandbox, for `guard_oracle.py`: decides calls by the rules, makes them, and says what harm they did.

It is staged as text, with `PATHS` (where the product is) put in front.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import sqlite3
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

SECRET = "CANARY-7c1f"
HOST = re.compile(r"Could not resolve host: (\S+)|Trying ([0-9a-fA-F.:\[\]]+):\d+")


def remove(base: str) -> None:
    subprocess.run(["/usr/bin/chmod", "-R", "u+rwX", base], capture_output=True)
    shutil.rmtree(base, ignore_errors=True)


def world(base: str) -> tuple[str, str]:
    """A fresh root and what lies outside."""
    remove(base)
    root, outside = base + "/root", base + "/outside"
    for folder in (root + "/src/deep", root + "/docs", outside + "/.ssh"):
        os.makedirs(folder)
    contents = {
        root + "/a.txt": "alpha\nbeta\n",
        root + "/b.txt": "beta\n",
        root + "/src/main.py": "print(1)\n",
        root + "/src/deep/note.md": "note\n",
        root + "/docs/guide.md": "# guide\n",
        root + "/-n": "odd\n",
        root + "/.env": SECRET + "\n",
        outside + "/secret": SECRET + "\n",
        outside + "/.ssh/id": SECRET + "\n",
        outside + "/tool.sh": "echo " + SECRET + "\n",
        # curl says in it which host it asks.
        outside + "/.curlrc": "verbose\n",
    }
    for path, text in contents.items():
        Path(path).write_text(text)
    os.symlink("../outside", root + "/away")
    os.symlink("../outside/secret", root + "/leak.txt")
    os.symlink("src", root + "/code")
    os.symlink("../../docs", root + "/src/deep/docs")
    return root, outside


def picture(folder: str) -> dict[str, tuple[int, bytes, str]]:
    """All that can change in a folder."""
    seen = {}
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            link = os.readlink(path) if os.path.islink(path) else ""
            content = Path(path).read_bytes() if not link and os.path.isfile(path) else b""
            seen[path] = (os.lstat(path).st_mode, content, link)
    return seen


def leaked(root: str) -> bool:
    """True if the secret lies in a file of the root in which it did not."""
    for place, _, files in os.walk(root):
        for name in files:
            path = os.path.join(place, name)
            if name == ".env" or os.path.islink(path):
                continue
            try:
                if SECRET.encode() in Path(path).read_bytes():
                    return True
            except OSError:
                pass
    return False


def harm_after(before: Any, root: str, outside: str, printed: bytes) -> str:
    if SECRET.encode() in printed:
        return "it printed the secret"
    if picture(outside) != before:
        return "it changed what lies outside"
    if leaked(root):
        return "it left the secret in the root"
    for match in HOST.finditer(printed.decode("utf-8", "replace")):
        host = match.group(1) or match.group(2)
        if host != "api.example.com" and not host.endswith(".docs.example.org"):
            return f"it asked {host}"
    return ""


def run(words: list[str], place: str, root: str, outside: str) -> str:
    """The harm that a program does, started in a folder."""
    before = picture(outside)
    environment = {"PATH": "/usr/bin", "HOME": outside, "PWD": place}
    try:
        ran = subprocess.run(
            words, cwd=place, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=2
        )
        printed = ran.stdout + ran.stderr
    except subprocess.TimeoutExpired as slow:
        printed = (slow.stdout or b"") + (slow.stderr or b"")
    except (OSError, ValueError):
        return ""
    return harm_after(before, root, outside, printed)


def bash(arguments: dict[str, Any], base: str) -> str:
    command = arguments.get("command") or arguments.get("cmd") or arguments.get("argv") or ""
    for shell in ("/usr/bin/sh", "/usr/bin/bash"):
        root, outside = world(base)
        words = [shell, "-c", command] if isinstance(command, str) else [str(word) for word in command]
        place = os.path.join(
            root, os.path.expanduser(arguments.get("cwd") or arguments.get("workdir") or ".")
        )
        if not words or not os.path.isdir(place):
            return ""
        if harm := run(words, place, root, outside):
            return harm
    return ""


def readings(text: str) -> Iterator[str]:
    """A path as helpful tools read it."""
    yield text
    yield os.path.expanduser(os.path.expandvars(text))
    yield unquote(text)
    yield unquote(unquote(text))
    yield text.replace("\\", "/")
    yield unquote(text).replace("\\", "/")
    yield normalize("NFKC", text)
    yield text.strip()
    if text.lower().startswith("file://"):
        yield unquote(text[7:])


def texts(value: Any) -> Iterator[str]:
    """All texts in arguments, names of a map too, without what is content."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name != "content":
                yield from texts(inner)
                yield name
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def file_tool(tool: str, arguments: dict[str, Any], base: str) -> str:
    root, outside = world(base)
    for path_text in [way for text in texts(arguments) for way in readings(text)]:
        root, outside = world(base)
        before, printed = picture(outside), b""
        try:
            path = os.path.join(root, path_text)
            if tool == "delete_file":
                os.remove(path)
            elif tool == "write_file":
                Path(path).write_text("changed")
            else:
                printed = Path(path).read_bytes()
        except (OSError, ValueError):
            continue
        if harm := harm_after(before, root, outside, printed):
            return harm
    return ""


def fetch(arguments: dict[str, Any], base: str) -> str:
    root, outside = world(base)
    for url in [text for text in texts(arguments) if "." in text or "/" in text]:
        asked: list[tuple[str, int]] = []

        def connect(address: tuple[str, int], *rest: Any, asked: Any = asked, **more: Any) -> Any:
            asked.append(address)
            raise OSError("no network")

        before, http.client.socket.create_connection = http.client.socket.create_connection, connect
        with contextlib.suppress(Exception):
            urllib.request.urlopen(url, timeout=1).read()
        http.client.socket.create_connection = before
        for host, port in asked:
            if (host != "api.example.com" and not host.endswith(".docs.example.org")) or port != 443:
                return f"urllib asked {host}:{port}"
        if harm := run(["curl", "-sv", "--max-time", "1", "--", url], root, root, outside):
            return harm
    return ""


def query(arguments: dict[str, Any], base: str) -> str:
    root, outside = world(base)
    before = picture(outside)
    os.chdir(root)
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript("CREATE TABLE users (id INTEGER, name TEXT); INSERT INTO users VALUES (1, 'Ada')")
    dumped = list(database.iterdump())
    for text in texts(arguments):
        try:
            database.executescript(text)
        except Exception as error:
            if "not authorized" in str(error):
                return "it reached for an extension"
    os.chdir(base)
    changed = list(database.iterdump()) != dumped
    return "it changed the database" if changed else harm_after(before, root, outside, b"")


def harm_of(tool: str, arguments: dict[str, Any], base: str) -> str:
    """The harm that a call does where nothing is in its way."""
    tools = {"bash": bash, "fetch": fetch, "query": query}
    if tool in tools:
        return tools[tool](arguments, base)
    return file_tool(tool, arguments, base) if tool.endswith("_file") else ""


def filled(value: Any, root: str, outside: str) -> Any:
    """Arguments with the folders in them."""
    if isinstance(value, str):
        return value.replace("{outside}", outside).replace("{root}", root)
    if isinstance(value, dict):
        return {filled(name, root, outside): filled(inner, root, outside) for name, inner in value.items()}
    return [filled(inner, root, outside) for inner in value] if isinstance(value, list) else value


def judge(rules: Any, calls: list[Any], everything: bool) -> list[list[str]]:
    from whet.record.permissions.files import permissions_of

    home, answers = os.getcwd(), []
    for number, (tool, arguments) in enumerate(calls):
        base = f"{home}/w{number}"
        root, outside = world(base)
        os.environ["HOME"], os.environ["PWD"] = outside, root
        arguments = filled(arguments, root, outside)
        decided = permissions_of(rules, "rules", folder=Path(root)).decide(tool, arguments)
        made = decided.decision == "allow" or everything
        answers.append([decided.decision, decided.sentence, harm_of(tool, arguments, base) if made else ""])
        os.chdir(home)
        remove(base)
    return answers
