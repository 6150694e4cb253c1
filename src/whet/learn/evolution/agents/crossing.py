"""What crosses into the sandbox and back besides JSON: tuples, days, and objects of the agent's dataclasses.

A function that evolves takes and gives what its owner's code does, and JSON has no tuple and no object.  The agent's
process marks them (`agent_process.py`), and the runner of this file makes them anew where the function is called: an
object of the same class, where the staged source has it, with those of its fields that cross, and without its
`__init__`.  What the function changes of the fields that it speaks of as it came goes back and is set where the object
stands, but no address, path or command (`lending.py`).  An object never comes back as an answer: which class is made
outside would be a proposer's choice.
"""

from __future__ import annotations

RUNNER = "whet_crossed"
"""The module of the staged folder that the function is called through."""
MARKED = "__whet__"
"""The key of what is marked; a dictionary that has it does not cross."""
_TEXT = '''"""Calls the target with what crossed, made anew."""
import datetime
import importlib
import types

import {runner} as runner

MARKED = {marked!r}


def opened(value, objects):
    if isinstance(value, list):
        return [opened(each, objects) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(MARKED)
    if kind is None:
        return {{name: opened(each, objects) for name, each in value.items()}}
    if kind == "tuple":
        return tuple(opened(each, objects) for each in value["items"])
    if kind == "day":
        return datetime.date.fromisoformat(value["text"])
    if kind == "time":
        return datetime.datetime.fromisoformat(value["text"])
    try:
        found = importlib.import_module(value["module"])
        for part in value["name"].split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        found = types.SimpleNamespace  # the source of the function speaks of no such class
    made = found.__new__(found)
    place = len(objects)
    objects.append(None)
    for name, each in value["state"].items():
        object.__setattr__(made, name, opened(each, objects))
    objects[place] = (made, value["state"])
    return made


def closed(value):
    if type(value) is tuple:
        return {{MARKED: "tuple", "items": [closed(each) for each in value]}}
    if type(value) is list:
        return [closed(each) for each in value]
    if type(value) is dict:
        return {{name: closed(each) for name, each in value.items()}}
    if type(value) is datetime.datetime:
        return {{MARKED: "time", "text": value.isoformat()}}
    if type(value) is datetime.date:
        return {{MARKED: "day", "text": value.isoformat()}}
    return value


def call(args, kwargs, *rest):
    objects = []
    value = runner.call(opened(args, objects), opened(kwargs, objects), *rest)
    if rest[-1] is not None or (isinstance(value, dict) and set(value) == {{"asks"}}):
        return closed(value)  # a method's object goes back as its state
    changes = []
    for made, state in objects:
        now = {{name: held(getattr(made, name), each) for name, each in state.items()}}
        changes.append({{name: each for name, each in now.items() if each != state[name]}})
    if not any(changes):
        return closed(value)
    through = {through!r}
    answer = {{MARKED: "call", "value": closed(value["value"] if through else value), "changes": changes}}
    return {{"value": answer}} if through else answer


def held(value, before):
    """A field as it stands; one that holds another object stays, for that object goes back by itself."""
    return before if isinstance(before, dict) and before.get(MARKED) == "object" else closed(value)
'''


def runner(called: str, *, through: bool) -> str:
    """The text of the runner around another one.

    Args:
        called: the module whose `call` it hands on to.
        through: that one answers with `value` or `asks`.
    """
    return _TEXT.format(runner=called, marked=MARKED, through=through)
