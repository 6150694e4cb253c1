"""The program of an agent's own process: it imports the entry and calls it, one input after the other.

The text of this file is handed to `python -c`, so it takes the standard library only and imports nothing of whet; and
of that little before it is needed, for each candidate starts one.  Functions that evolve are not run here: the copy of
the repository asks for them through the module `whet_pieces`, and they answer from the sandbox.  Messages are lines of
JSON on one socket.
"""

from __future__ import annotations

import builtins
import datetime
import gc
import importlib
import json
import math
import socket
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any


class UnserializableValue(TypeError):
    """A value that has no form in JSON, so that it comes back as it went."""


class Channel:
    """The line to whoever judges."""

    def __init__(self, descriptor: int) -> None:
        self._file = socket.socket(fileno=descriptor).makefile("rwb")
        # A helper that answers while its asker waits may ask in its turn, in the same thread.
        self._lock = threading.RLock()

    def say(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def hear(self) -> Any:
        line = self._file.readline()
        return json.loads(line) if line else None

    def ask_method(self, name: str, itself: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer of a method that evolves.

        What of the object has a form in JSON crosses with its arguments, and what the method may have changed of it
        comes back; its other attributes are missing inside.
        """
        state = {key: value for key, value in vars(itself).items() if crosses(value)}
        answered = self.ask(name, args, kwargs, state)
        vars(itself).update(answered["state"])
        return answered["value"]

    def ask(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], state: dict[str, Any] | None = None
    ) -> Any:
        """The answer of a function that evolves; agents may ask from several threads."""
        objects: list[Any] = []
        given = [marked(each, f"{name}(...)[{place}]", objects) for place, each in enumerate(args)]
        named = {key: marked(each, f"{name}(...)[{key!r}]", objects) for key, each in kwargs.items()}
        with self._lock:
            self.say({"ask": name, "args": given, "kwargs": named, "state": state})
            # It may need what only this process reaches, before it can answer.
            while (heard := self.hear()) is not None and "helper" in heard:
                self.say(answer(heard["helper"], heard))
        if heard is None:
            raise SystemExit(0)
        if "raised" not in heard:
            return taken(heard["value"], objects)
        kind = getattr(builtins, heard["raised"], None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            raise kind(heard["message"])
        raise RuntimeError(f"{heard['raised']}: {heard['message']}")


def plain(value: Any, where: str) -> None:
    """Check that a value comes back from JSON as it went.

    Raises:
        UnserializableValue: it does not; says where.
    """
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (type(value) is float and math.isfinite(value))
    ):
        return
    if type(value) is list:
        for index, member in enumerate(value):
            plain(member, f"{where}[{index}]")
    elif type(value) is dict and all(type(key) is str for key in value):
        for key, member in value.items():
            plain(member, f"{where}[{key!r}]")
    else:
        raise UnserializableValue(
            f"{where} holds a {type(value).__name__}, which cannot cross as JSON: "
            "let it take and give None, booleans, finite numbers, texts, lists and dicts with text keys"
        )


MARKED = "__whet__"
"""The key of what JSON has no form for; see `crossing.py`, which makes it anew inside."""


def marked(value: Any, where: str, objects: list[Any]) -> Any:
    """A value with marks in the place of tuples, days, and objects of dataclasses, which are added to `objects`.

    Raises:
        UnserializableValue: it has something else in it; of an object such fields are left out.
    """
    if type(value) is list:
        return [marked(each, f"{where}[{place}]", objects) for place, each in enumerate(value)]
    if type(value) is tuple:
        items = [marked(each, f"{where}[{place}]", objects) for place, each in enumerate(value)]
        return {MARKED: "tuple", "items": items}
    if type(value) is dict and all(type(key) is str and key != MARKED for key in value):
        return {key: marked(each, f"{where}[{key!r}]", objects) for key, each in value.items()}
    if type(value) is datetime.datetime:
        return {MARKED: "time", "text": value.isoformat()}
    if type(value) is datetime.date:
        return {MARKED: "day", "text": value.isoformat()}
    if hasattr(type(value), "__dataclass_fields__"):
        objects.append(value)
        state = {}
        for name in _fields(value):
            before = len(objects)
            try:
                state[name] = marked(getattr(value, name), where, objects)
            except (UnserializableValue, AttributeError):
                del objects[before:]
        kind = type(value)
        return {MARKED: "object", "module": kind.__module__, "name": kind.__qualname__, "state": state}
    plain(value, where)
    return value


def _fields(value: Any) -> list[str]:
    import dataclasses

    return [field.name for field in dataclasses.fields(value)]


def taken(value: Any, objects: Sequence[Any] = ()) -> Any:
    """What a call gave, its marks made anew; what it changed of its arguments' objects is set."""
    if type(value) is list:
        return [taken(each) for each in value]
    if type(value) is not dict:
        return value
    match value.get(MARKED):
        case None:
            return {key: taken(each) for key, each in value.items()}
        case "tuple":
            return tuple(taken(each) for each in value["items"])
        case "day":
            return datetime.date.fromisoformat(value["text"])
        case "time":
            return datetime.datetime.fromisoformat(value["text"])
        case "call":
            for each, changes in zip(objects, value["changes"], strict=False):
                own = _fields(each)
                for name, now in changes.items():
                    if name in own:
                        object.__setattr__(each, name, taken(now))
            return taken(value["value"])
    raise UnserializableValue("the answer holds what no answer may")


def crosses(value: Any) -> bool:
    """True if a value comes back from JSON as it went."""
    try:
        plain(value, "")
    except UnserializableValue:
        return False
    return True


def imported(module: str) -> Any:
    """A module.  What its import makes stays, and a collection of garbage would look through it again and again."""
    if module in sys.modules or not gc.isenabled():
        return importlib.import_module(module)
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.enable()


def function_of(entry: str, init: dict[str, Any]) -> Any:
    """The function that `module:qualname` names; a method, of an instance made with `init`."""
    module, _, qualname = entry.partition(":")
    value = imported(module)
    for part in qualname.split("."):
        value, owner = getattr(value, part), value
        if isinstance(owner, type) and not _static(owner, part):
            value = getattr(owner(**init), part)
    return value


def _static(owner: type, name: str) -> bool:
    import inspect

    return isinstance(inspect.getattr_static(owner, name), staticmethod | classmethod)


def answer(entry: str, call: dict[str, Any]) -> dict[str, Any]:
    """The entry's answer to one call, or the exception that it raised."""
    try:
        value = function_of(entry, call["made"])(*call["args"], **call["kwargs"])
        if hasattr(type(value), "__await__"):
            import asyncio

            value = asyncio.run(_awaited(value))
        plain(value, "the answer")
    except Exception as error:
        return {"raised": type(error).__name__, "message": str(error)[:2000], "faults": list(faults(error))}
    return {"value": value}


def faults(error: BaseException | None) -> Iterator[dict[str, Any]]:
    """The evidence for `whet.record.faults`, of an exception and of those that it was raised from."""
    for _ in range(8):
        if error is None:
            return
        kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        module = frame.tb_frame.f_globals.get("__name__") if frame is not None else None
        if isinstance(error, TimeoutError) and module in ("socket", "ssl"):
            kinds.append(("socket", "timeout"))
        holders = (error, getattr(error, "response", None))
        codes = [
            getattr(holder, name, None) for holder in holders for name in ("status_code", "code", "status")
        ]
        statuses = [code for code in codes if isinstance(code, int) and 100 <= code <= 599]
        yield {"kinds": kinds, "status": statuses[0] if statuses else None}
        error = error.__cause__


async def _awaited(value: Any) -> Any:
    return await value


def main(descriptor: int, entry: str) -> None:
    """Answer calls until the line is closed."""
    channel = Channel(descriptor)
    pieces = types.ModuleType("whet_pieces")

    async def later(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import asyncio

        return await asyncio.to_thread(channel.ask, name, args, kwargs)

    pieces.ask, pieces.later = channel.ask, later  # type: ignore[attr-defined]
    pieces.ask_method = channel.ask_method  # type: ignore[attr-defined]
    sys.modules["whet_pieces"] = pieces
    while (call := channel.hear()) is not None:
        channel.say(answer(entry, call))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
