"""A night: an agent nobody edits, a fortnight of its traffic in a store, and the hidden truth of what is wrong with it.

`night(seed, folder)` draws the faults and the decoys, plants the faults in a copy of the agent, has people ask it and
records what they do.  The agent's own files run in this process, with its one call of the model and its one call of a
service answered here: thousands of runs take seconds.  `Night.through_the_gateway` runs the same files as a program
behind the gateway instead, with HTTP on all sides.
"""

from __future__ import annotations

import ast
import asyncio
import http.server
import importlib
import inspect
import json
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
import types
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.record.store.releases import GATEWAY_PARAMETERS, GATEWAY_PROMPT
from whet.record.tracing.signals import hear
from whet.types import Bundle, Feedback, Outcome, Step, Task, Trajectory, Usage, Version, digest

WORLD = Path(__file__).with_name("night_world")
_PARTS = ("truth", "faults", "people", "services", "model")
REPAIRED = 0.8
"""Share of fresh questions of a fault that are answered right once it is repaired; of a sound agent it is .96."""


class _Unreachable(OSError):
    """A service that does not answer."""


@dataclass
class Asked:
    """One run: the question, the answer, and the trajectory as the gateway records it."""

    trajectory: Trajectory
    right: bool
    faults: tuple[str, ...]
    """Ids of the planted faults that spoil this question on this day."""
    decoy: str


@dataclass
class Night:
    """An agent with faults, its record, and what only the test knows."""

    seed: int
    folder: Path
    """The agent's own files, as they came; nobody edits them."""
    world: Mapping[str, types.ModuleType]
    faults: Sequence[Any]
    decoys: Sequence[Any]
    store: Store
    about: Mapping[str, Any]
    """world.json."""
    runs: list[Asked] = field(default_factory=list)
    _loaded: dict[str, Callable[..., tuple[str, list[Step], str]]] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """Name → text of the agent's files."""
        return _files(self.folder)

    @property
    def ends(self) -> float:
        """Unix time in seconds at which the fortnight is over."""
        people = self.world["people"]
        return float(people.START + 86_400 * people.DAYS)

    # -- running it ---------------------------------------------------------------------------------

    def run(
        self,
        bundle: Bundle,
        asked: Sequence[tuple[str, str]],
        *,
        day: int | None = None,
        folder: Path | None = None,
    ) -> list[Trajectory]:
        """The agent under a Bundle on questions of people, each a (person, question).

        A resource is a file of the agent by its name (`planner.py`), a function or constant in one
        (`planner.needed`, `desk.SYSTEM_PROMPT`), or one of the gateway's (`gateway.system_prompt`,
        `gateway.parameters`).

        Args:
            day: that it is; the last one if None.
            folder: another folder of the agent's files, such as a pull request's branch.
        """
        last = int(self.world["people"].DAYS) - 1 if day is None else day
        # A folder has all that the Bundle changes in files.
        files = files_under(self.files, bundle) if folder is None else _files(folder)
        answer = self._agent(files, bundle)
        at = float(self.world["people"].START) + 86_400 * last + 43_200
        runs = []
        for number, (person, question) in enumerate(asked):
            output, steps, finish = answer(question, person, last, "", at)
            del finish
            task = Task(instruction=question, group=person, meta={"source": "gateway"})
            id = digest([self.seed, bundle.id, person, question, number], 24)
            runs.append(
                Trajectory(
                    id=id,
                    task=task,
                    steps=steps,
                    output=output,
                    versions=bundle.ids,
                    subject=person,
                    started=at,
                    seconds=sum(step.latency or 0.0 for step in steps),
                    meta={"source": "gateway", "run": id},
                )
            )
        return runs

    def right(self, person: str, question: str, answer: object) -> bool:
        """True if this is what the person needs; only the test knows."""
        return bool(self.world["truth"].right(question, str(answer or ""), person))

    def thumb(self, person: str, question: str, answer: object) -> int | None:
        """What this person would say of this answer: 1, -1, or None for nothing."""
        asked = self.world["people"].Question(person, question, self.ends)
        return self.world["people"].reaction(self.seed, asked, str(answer or ""), self.decoys).thumb  # type: ignore[no-any-return]

    def success(self, fault: Any, bundle: Bundle, *, count: int = 100, folder: Path | None = None) -> float:
        """The share of fresh questions that a fault spoils which are answered right under a Bundle."""
        asked = self.world["people"].asked_of(fault, count, self.seed + 10_000, self.faults)
        runs = self.run(bundle, asked, folder=folder)
        return (
            sum(self.right(who, text, run.output) for (who, text), run in zip(asked, runs, strict=True))
            / count
        )

    def repaired(self, fault: Any, bundle: Bundle, *, folder: Path | None = None) -> bool:
        """True if the fault's questions are answered right again under a Bundle, or by the files of a folder."""
        return self.success(fault, bundle, folder=folder) >= REPAIRED

    def advise(self, request: ModelRequest) -> str:
        """What the model that proposes says."""
        text = "\n".join(str(each["content"]) for each in request.messages)
        return str(self.world["model"].advise(text, self.seed, self.faults))

    def _agent(self, files: Mapping[str, str], bundle: Bundle) -> Callable[..., tuple[str, list[Step], str]]:
        """The agent's files as a function of a question, a person, a day, a decoy and a time."""
        prompt = bundle[GATEWAY_PROMPT].content if GATEWAY_PROMPT in bundle else None
        parameters = dict(bundle[GATEWAY_PARAMETERS].content) if GATEWAY_PARAMETERS in bundle else {}
        key = digest([dict(files), prompt, parameters], 24)
        if key not in self._loaded:
            place = self.folder.parent / "loaded" / key
            place.mkdir(parents=True, exist_ok=True)
            put(place, files)
            self._loaded[key] = self._load(place, prompt, parameters)
        return self._loaded[key]

    def _load(
        self, place: Path, prompt: str | None, parameters: Mapping[str, Any]
    ) -> Callable[..., tuple[str, list[Step], str]]:
        state: dict[str, Any] = {}
        modules = _imported(place, self.about["modules"])

        def part(key: str) -> tuple[dict[str, Any], str]:
            name, _, attribute = self.about[key].partition(":")
            return modules[name].__dict__, attribute

        entry, entry_name = part("entry")
        start, start_name = part("prompt")

        def fetch(service: str, key: str) -> Any:
            answer = self._service(service, key, state["day"], state["at"])
            if answer is None:
                raise OSError("HTTP Error 404: Not Found")
            return answer

        def complete(body: dict[str, Any]) -> dict[str, Any]:
            sent = {**body, **parameters}
            if prompt is not None:
                head = start[start_name]
                first = body["messages"][0]
                replaced = {**first, "content": str(first["content"]).replace(head, prompt)}
                sent["messages"] = [replaced, *body["messages"][1:]]
            message, finish = self.world["model"].complete(sent, state["draw"])
            state["steps"].append((sent, message, finish))
            return message  # type: ignore[no-any-return]

        for key, stand_in in (("fetch", fetch), ("complete", complete)):
            inside, attribute = part(key)
            inside[attribute] = (
                _awaited(stand_in) if inspect.iscoroutinefunction(inside[attribute]) else stand_in
            )

        def answer(
            question: str, person: str, day: int, decoy: str, at: float
        ) -> tuple[str, list[Step], str]:
            draw = int(digest([self.seed, person, question, at], 12), 16)
            state.update(day=day, at=at, steps=[], draw=draw)
            try:
                output = entry[entry_name](question, person)
                if inspect.iscoroutine(output):
                    output = asyncio.run(output)
            except Exception as error:  # a candidate may be anything
                return f"{type(error).__name__}: {error}", [], "error"
            slow = any(each.kind == "slow" and each.begins <= at < each.ends for each in self.decoys)
            costly = any(each.kind == "costly" and each.topic in question for each in self.decoys)
            steps = _steps(
                state["steps"], digest([self.seed, person, question, at], 12), slow=slow, costly=costly
            )
            return output, steps, state["steps"][-1][2]

        return answer

    def _service(self, service: str, key: str, day: int, at: float) -> Mapping[str, Any] | None:
        """What a service says, on a day and at a time.

        Raises:
            OSError: it does not answer.
        """
        if any(
            each.kind == "outage" and each.service == service and each.begins <= at < each.ends
            for each in self.decoys
        ):
            raise _Unreachable("HTTP Error 503: Service Unavailable")
        begun = day >= self.world["faults"].CHANGED_ON
        changed = {fault.service for fault in self.faults if fault.service} if begun else set()
        return self.world["services"].look_up(service, key, changed)  # type: ignore[no-any-return]

    # -- the real path ------------------------------------------------------------------------------

    def through_the_gateway(self, asked: Sequence[tuple[str, str]], store: Path) -> list[Trajectory]:
        """The questions answered by the agent as a program behind the gateway; the trajectories that it records."""
        night = self

        class Shop(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urllib.parse.urlparse(self.path)
                key = urllib.parse.parse_qs(address.query)["key"][0]
                try:
                    body = night._service(address.path.strip("/"), key, 13, night.ends)
                except OSError:
                    body = None
                self.send_response(200 if body is not None else 404)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        def script(request: ModelRequest) -> Completion:
            limits = {"temperature": request.temperature or 0.0, "max_tokens": request.max_tokens}
            body = {"messages": request.messages, "tools": request.tools or (), **limits}
            message, finish = night.world["model"].complete(
                body, int(digest([night.seed, body["messages"]], 12), 16)
            )
            calls = [
                ToolCall(
                    name=each["function"]["name"], arguments=each["function"]["arguments"], id=each["id"]
                )
                for each in message.get("tool_calls", ())
            ]
            return Completion(text=message["content"] or "", tool_calls=calls, finish=finish)

        shop = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        threading.Thread(target=shop.serve_forever, args=(0.02,), daemon=True).start()
        entry = self.folder / f"{self.about['entry'].partition(':')[0]}.py"
        row = self.folder.parent / "asked.jsonl"
        try:
            with ScriptedServer(script, models=(self.about["model"],)) as upstream:
                variables = {
                    "OPENAI_BASE_URL": upstream.base_url,
                    "SHOP_URL": f"http://127.0.0.1:{shop.server_address[1]}",
                }
                for person, question in asked:
                    row.write_text(json.dumps({"person": person, "question": question}), encoding="utf-8")
                    whet = [sys.executable, "-m", "whet", "run", "--store", str(store)]
                    subprocess.run(
                        [*whet, "--", sys.executable, str(entry), str(row)],
                        env={**os.environ, **variables},
                        check=True,
                        capture_output=True,
                        timeout=60,
                    )
        finally:
            shop.shutdown()
            shop.server_close()
        with Store(store) as opened:
            return list(opened.trajectories())


def _steps(calls: Sequence[tuple[Any, Any, str]], id: str, *, slow: bool, costly: bool) -> list[Step]:
    """The steps as the gateway records them: each model call, and the tools between them as the messages tell."""
    steps: list[Step] = []
    for number, (body, message, finish) in enumerate(calls):
        shown = [_message(each) for each in body["messages"]]
        steps.append(
            Step(
                kind="llm",
                name=f"chat {body['model']}",
                id=f"{id}.{number}",
                observation=shown,
                action=_message(message),
                usage=Usage(900 if costly else 120 + 10 * len(shown), 400 if costly else 25, calls=1),
                latency=4.0 if slow else 0.4,
                info={"model": body["model"], "finish_reason": finish, "status": 200},
            )
        )
        # The results stand in the next request, which has all that went before.
        after = calls[number + 1][0]["messages"] if number + 1 < len(calls) else ()
        results = {each["tool_call_id"]: each["content"] for each in after if each["role"] == "tool"}
        for place, call in enumerate(message.get("tool_calls") or ()):
            result = results.get(call["id"])
            if result is not None:
                steps.append(
                    Step(
                        kind="tool",
                        name=call["function"]["name"],
                        id=f"{id}.{number}.t{place or ''}",
                        observation=json.loads(call["function"]["arguments"]),
                        action=result,
                        info={"told": True, "tool_call_id": call["id"]},
                    )
                )
    return steps


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in the form of the record."""
    kept: dict[str, Any] = {"role": message["role"]}
    if message.get("content"):
        kept["text"] = message["content"]
    if message.get("tool_calls"):
        kept["tool_calls"] = [
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
            }
            for call in message["tool_calls"]
        ]
    if message.get("tool_call_id"):
        kept["tool_call_id"] = message["tool_call_id"]
    return kept


def _awaited(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function, in the place of an async one."""

    async def run(*arguments: Any) -> Any:
        return plain(*arguments)

    return run


def _imported(place: Path, names: Sequence[str]) -> dict[str, types.ModuleType]:
    """Modules of a folder, imported anew and forgotten."""
    before = {name: sys.modules.pop(name, None) for name in names}
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(place))
    importlib.invalidate_caches()
    try:
        return {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(place))
        sys.dont_write_bytecode = written
        for name, module_before in before.items():
            sys.modules.pop(name, None)
            if module_before is not None:
                sys.modules[name] = module_before


def _files(folder: Path) -> dict[str, str]:
    """Path below the folder → text; without what is hidden there or made by Python."""
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.as_posix(): (folder / path).read_text(encoding="utf-8")
        for path in paths
        if not any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    }


def put(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder, by their paths below it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def files_under(files: Mapping[str, str], bundle: Bundle) -> dict[str, str]:
    """The agent's files with what a Bundle replaces in them."""
    changed = dict(files)
    for name, version in bundle.items():
        if name.startswith("gateway."):
            continue
        if name in changed:
            changed[name] = str(version.content)
            continue
        words = name.replace(".py:", ".").replace(":", ".").replace("/", ".").split(".")
        places = ((f"{'/'.join(words[:at])}.py", at) for at in range(len(words) - 1, 0, -1))
        file, at = next(((file, at) for file, at in places if file in changed), ("", 0))
        if not file:
            raise KeyError(f"the agent has no file or part {name!r}")
        changed[file] = _spliced(changed[file], ".".join(words[at:]), str(version.content))
    return changed


def _spliced(source: str, name: str, content: str) -> str:
    """A module with the text of one function or method, or the value of one constant, replaced."""
    lines, body = source.splitlines(keepends=True), ast.parse(source).body
    *classes, last = name.split(".")
    for each in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each), [])
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == last:
            text = textwrap.indent(textwrap.dedent(content).rstrip() + "\n", " " * node.col_offset)
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == last for t in node.targets
        ):
            # A text is its content, anything else its own line of code.
            whole = re.match(rf"{last}\s*[:=]", content)
            text = content.rstrip() + "\n" if whole else f"{last} = {content!r}\n"
        else:
            continue
        return "".join([*lines[: node.lineno - 1], text, *lines[node.end_lineno :]])
    raise KeyError(f"no function, method or constant {name!r}")


def worlds_parts(folder: Path) -> dict[str, types.ModuleType]:
    """The modules of a world, imported anew from its folder."""
    for name in _PARTS:
        sys.modules.pop(name, None)
    sys.path.insert(0, str(folder))
    try:
        return {name: importlib.import_module(name) for name in _PARTS}
    finally:
        sys.path.remove(str(folder))


def night(
    seed: int,
    folder: Path,
    *,
    world: Path | None = None,
    runs: int | None = None,
    planted: bool = True,
    shuffled: bool = False,
    store: Path | None = None,
) -> Night:
    """Draw a night, have its traffic answered, and record it.

    Args:
        folder: where the agent's files are put.
        world: a folder as night_world, whose README.md says what it holds.
        runs: questions; as many as the world has if None.
        planted: False is a night without faults, and with all decoys.
        shuffled: each thumb stands on somebody else's answer, and nobody comes back.
        store: the record; in memory if None.
    """
    place = (WORLD if world is None else world).resolve()
    parts = worlds_parts(place)
    about = json.loads((place / "world.json").read_text(encoding="utf-8"))
    people, faults = parts["people"], parts["faults"]
    drawn = faults.draw(seed) if planted else []
    files = _files(place / "agent") | faults.tables()
    for fault in drawn:
        fault.plant(files)
    agent = folder / "agent"
    agent.mkdir(parents=True, exist_ok=True)
    put(agent, files)
    made = Night(
        seed, agent, parts, drawn, people.decoys(seed), Store(":memory:" if store is None else store), about
    )
    made.runs = _answered(made, people.traffic(seed, drawn, runs or people.RUNS), shuffled=shuffled)
    hear(made.store, now=made.ends + 86_400)
    return made


def _answered(made: Night, questions: Sequence[Any], *, shuffled: bool) -> list[Asked]:
    """Have the questions answered, and record the runs with what people do about them."""
    people = made.world["people"]
    answer = made._agent(made.files, Bundle())
    versions = [Version(resource="gateway.parameters", kind="value", content={"seed": n}) for n in (1, 2)]
    renamed = next((each.begins for each in made.decoys if each.kind == "renamed"), 0.0)
    made.store.put_versions(*versions)
    asked: list[Asked] = []
    thumbs: list[tuple[str, int, float]] = []
    waiting = list(questions)
    number = 0
    counts: Counter[str] = Counter()
    while waiting:
        question = waiting.pop(0)
        number += 1
        blocked = "blocked" in question.decoy
        output, steps, finish = answer(
            question.text, question.person, question.day, question.decoy, question.at
        )
        del finish
        id = f"night-{made.seed}-{number:05}"
        run = Trajectory(
            id=id,
            task=Task(instruction=question.text, meta={"source": "gateway"}),
            steps=steps,
            output=output,
            outcome=Outcome.BLOCKED if blocked else Outcome.UNKNOWN,
            versions={"gateway.parameters": versions[question.at >= renamed].id},
            session=f"{question.person}-{question.day}",
            subject=question.person,
            started=question.at,
            seconds=sum(step.latency or 0.0 for step in steps),
            meta={"source": "gateway", "run": id},
        )
        right = made.right(question.person, question.text, output)
        spoiling = tuple(each.id for each in made.faults if each.hits(question.text, question.day))
        asked.append(Asked(run, right, spoiling, question.decoy))
        reaction = people.reaction(made.seed, question, output, made.decoys)
        if reaction.thumb is not None and not blocked:
            thumbs.append((id, reaction.thumb, question.at + 30))
        if reaction.again and not shuffled and counts[question.text + question.person] < 1:
            counts[question.text + question.person] += 1
            again = people.Question(
                question.person, f"Once more: {question.text}", question.at + reaction.after
            )
            waiting.insert(0, again)
    if shuffled:
        values = [value for _, value, _ in thumbs]
        random.Random(f"shuffled {made.seed}").shuffle(values)
        thumbs = [(id, value, at) for (id, _, at), value in zip(thumbs, values, strict=True)]
    for begin in range(0, len(asked), 1_000):
        made.store.put(*(each.trajectory for each in asked[begin : begin + 1_000]))
    made.store.add_feedback(
        *(Feedback(run=id, value=float(value), id=f"thumb-{id}", at=at) for id, value, at in thumbs)
    )
    return asked
