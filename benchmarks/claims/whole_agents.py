"""The agents of `night_whole`, what is planted in them, and who asks: a desk in LangGraph and the mail agent.

The desk is that of `night_world` in LangGraph, with its people, services, truth and scripted models; three of its
faults are planted, of the prompt, of a table and of a tool.  The mail agent is `examples/mail_agent` as it stands,
which calls no model, on made-up mail: each person asks about their own.  Of its table of words two rows are spoilt.
Only the test knows what is planted and what is right.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import random
import shutil
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from night_setting import WORLD, worlds_parts

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.types import Task, digest
from whet.worlds.email import MailWorld, checked, derive, generate, write

HERE = Path(__file__).with_name("whole_world")
REPOSITORY = Path(__file__).resolve().parents[2]
THUMBS, WRONG = 0.4, 0.15
"""Share of the answers that somebody rates, and of these thumbs that are mistaken."""


class WholeAgent(Protocol):
    """An agent with faults, and the people who ask it."""

    name: str
    entry: str
    """module:function; its file lies at the root of the agent's folder."""

    def write(self, folder: Path) -> None:
        """Put the agent into a folder, with its faults."""

    def served(self) -> Any:
        """A context manager: its model and services; gives the variables by which it finds them."""

    def questions(self, day: int, count: int) -> list[dict[str, str]]:
        """What people ask on a day: each has `person`, `question` and `key`, which `right` knows it by."""

    def right(self, asked: Mapping[str, str], answer: str) -> bool:
        """True if this is what the person needs."""

    def spoilt(self, asked: Mapping[str, str]) -> str:
        """Id of the fault that spoils this question; "" for none."""

    def advise(self, request: ModelRequest) -> str:
        """What the model that proposes says."""

    @property
    def faults(self) -> Sequence[Any]:
        """What is planted; each has an `id` and spoils some questions."""

    judge: str
    """A module whose `good(row, said)` judges an answer in the repository's own evals."""

    def expected(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """What these evals know of a question."""

    def worse(self, folder: Path) -> dict[str, str]:
        """Path → text of a change that makes the agent worse."""


def thumb(agent: WholeAgent, day: int, asked: Mapping[str, str], answer: str) -> float | None:
    """What a person says of an answer: 1, -1, or None, which is nothing."""
    draws = hashlib.sha256(f"{day}|{asked['person']}|{asked['question']}|{answer}".encode()).digest()
    rates, mistaken = (int.from_bytes(draws[at : at + 4]) / 2**32 for at in (0, 4))
    if rates >= THUMBS:
        return None
    return 1.0 if agent.right(asked, answer) != (mistaken < WRONG) else -1.0


class LangGraphDesk:
    """The desk of `night_world`, built with LangGraph."""

    name, entry = "LangGraph", "desk:answer"
    judge = """def good(row, said):
    return all(part in said.lower() for part in row["parts"])
"""

    def __init__(self, seed: int) -> None:
        self.seed, self.parts = seed, worlds_parts(WORLD)
        family, chance = self.parts["faults"].FAMILY, random.Random(f"whole {seed}")
        self.faults: list[Any] = []
        for kind in ("prompt", "route", "tool"):
            taken = {each for fault in self.faults for each in fault.kinds}
            fitting = [each for each in family if each.family == kind and not taken.intersection(each.kinds)]
            self.faults.append(chance.choice(fitting))
        spoilt = [kind for fault in self.faults for kind in fault.kinds]
        sound = [kind for kind in self.parts["truth"].PATTERNS if kind not in spoilt and kind != "unknown"]
        self.kinds = [*spoilt, *chance.sample(sound, 3)]

    def write(self, folder: Path) -> None:
        files = {
            path.name: path.read_text(encoding="utf-8")
            for path in (WORLD / "agent").iterdir()
            if path.is_file()
        }
        files |= self.parts["faults"].tables()
        files["desk.py"] = (HERE / "langgraph_desk.py").read_text(encoding="utf-8")
        for fault in self.faults:
            fault.plant(files)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")

    @contextmanager
    def served(self) -> Iterator[dict[str, str]]:
        agent = self

        class Shop(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urllib.parse.urlparse(self.path)
                key = urllib.parse.parse_qs(address.query)["key"][0]
                body = agent.parts["services"].look_up(address.path.strip("/"), key)
                content = json.dumps(body).encode()
                self.send_response(404 if body is None else 200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        shop = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        threading.Thread(target=shop.serve_forever, args=(0.02,), daemon=True).start()
        try:
            with ScriptedServer(self._said, models=("desk-small",)) as model:
                shop_url = f"http://127.0.0.1:{shop.server_address[1]}"
                yield {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none", "SHOP_URL": shop_url}
        finally:
            shop.shutdown()
            shop.server_close()

    def _said(self, request: ModelRequest) -> Completion:
        limits = {"temperature": request.temperature or 0.0, "max_tokens": request.max_tokens}
        # What the framework adds to a message is not part of what is said.
        messages = [
            {key: each[key] for key in ("role", "content", "tool_call_id") if key in each}
            for each in request.messages
        ]
        body = {"messages": messages, "tools": request.tools or (), **limits}
        message, finish = self.parts["model"].complete(body, int(digest([self.seed, messages], 12), 16))
        calls = [
            ToolCall(name=each["function"]["name"], arguments=each["function"]["arguments"], id=each["id"])
            for each in message.get("tool_calls", ())
        ]
        return Completion(text=message["content"] or "", tool_calls=calls, finish=finish)

    def questions(self, day: int, count: int) -> list[dict[str, str]]:
        chance, people = random.Random(f"whole {self.seed} {day}"), self.parts["people"]
        asked = []
        for _ in range(count):
            text = people._question(chance.choice(self.kinds), chance)
            asked.append({"person": chance.choice(self.parts["truth"].PEOPLE), "question": text, "key": ""})
        return asked

    def right(self, asked: Mapping[str, str], answer: str) -> bool:
        return bool(self.parts["truth"].right(asked["question"], answer, asked["person"]))

    def spoilt(self, asked: Mapping[str, str]) -> str:
        return next((fault.id for fault in self.faults if fault.hits(asked["question"], 0)), "")

    def advise(self, request: ModelRequest) -> str:
        text = "\n".join(str(each["content"]) for each in request.messages)
        return str(self.parts["model"].advise(text, self.seed, self.faults))

    def expected(self, asked: Mapping[str, str]) -> dict[str, Any]:
        kind, arguments = self.parts["truth"].read(asked["question"])
        return {
            "parts": [part.lower() for part in self.parts["truth"]._WANTED[kind](arguments, asked["person"])]
        }

    def worse(self, folder: Path) -> dict[str, str]:
        text = (folder / "desk.py").read_text(encoding="utf-8")
        return {"desk.py": text.replace('{"recursion_limit": 12}', '{"recursion_limit": 2}')}


class MailDesk:
    """The mail agent of the examples on a company's mail."""

    name, entry = "mail agent", "desk:answer"
    judge = """from whet.worlds.email import same, says_unknown


def good(row, said):
    text = said.partition("\\nSource: ")[0]
    return says_unknown(text) if row["expected"] is None else same(row["kind"], text, row["expected"])
"""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.mail = seed, folder
        night = worlds_parts(WORLD)
        self._advise, fault = night["model"].advise, night["faults"].Fault
        self.faults = [
            fault("table-subject", "route", ("route",), ("subject",), "mail_agent/parsing.py",
                  r"\bsubject\b|\btitled?\b|\bheading\b|\bheaded\b", r"\btitled\b"),
            fault("table-amount", "route", ("route",), ("amount",), "mail_agent/parsing.py",
                  r"\bhow (much|many)\b|\bdollar|\bamount\b|\$|\bprice\b|\bcost\b|\bsum\b|\bmoney\b", r"\bhow many\b"),
        ]  # fmt: skip
        mails = generate(seed, mailboxes=30, mails=60)
        shutil.rmtree(folder, ignore_errors=True)
        write(mails, folder)
        world = MailWorld(mails)
        tasks = derive(
            world,
            mailboxes=world.mailboxes,
            seed=seed,
            tiers=("exact", "vague"),
            variants=2,
            unanswerable=0.1,
        )
        self.tasks: dict[str, Task] = {task.id: task for task in tasks}

    def write(self, folder: Path) -> None:
        shutil.copytree(
            REPOSITORY / "examples" / "mail_agent",
            folder / "mail_agent",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        shutil.copy(HERE / "mail_desk.py", folder / "desk.py")
        for fault in self.faults:
            path = folder / fault.file
            files = {fault.file: path.read_text(encoding="utf-8")}
            fault.plant(files)
            path.write_text(files[fault.file], encoding="utf-8")

    @contextmanager
    def served(self) -> Iterator[dict[str, str]]:
        yield {"MAIL": str(self.mail)}

    def questions(self, day: int, count: int) -> list[dict[str, str]]:
        """Nobody asks one thing twice, until all has been asked."""
        tasks = list(self.tasks.values())
        first = day * count % len(tasks)
        some = [*tasks[first:], *tasks[:first]][:count]
        return [{"person": task.group, "question": task.instruction, "key": task.id} for task in some]

    def right(self, asked: Mapping[str, str], answer: str) -> bool:
        return checked(self.tasks[asked["key"]], answer.partition("\nSource: ")[0]).success

    def spoilt(self, asked: Mapping[str, str]) -> str:
        task = self.tasks[asked["key"]]
        return next(
            (fault.id for fault in self.faults if task.answer and task.meta["kind"] in fault.kinds), ""
        )

    def advise(self, request: ModelRequest) -> str:
        text = "\n".join(str(each["content"]) for each in request.messages)
        return str(self._advise(text, self.seed, self.faults))

    def expected(self, asked: Mapping[str, str]) -> dict[str, Any]:
        task = self.tasks[asked["key"]]
        return {"kind": task.meta["kind"], "expected": task.answer}

    def worse(self, folder: Path) -> dict[str, str]:
        text = (folder / "mail_agent" / "agent.py").read_text(encoding="utf-8")
        return {"mail_agent/agent.py": text.replace('"relax": True', '"relax": False')}
