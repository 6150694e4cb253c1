"""Judges a program by cases, or against another program.  It runs the program: use it in the sandbox only."""

import ast
import re
from typing import Any


def source_of(text: str) -> str:
    """The code of an answer, inside or without a fence."""
    fenced = re.search(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    return fenced[1] if fenced else text


def alike(said: str, wanted: str) -> dict[str, Any]:
    """1 for the same syntax tree, up to a half for shared statements."""
    try:
        mine, theirs = ast.parse(said), ast.parse(wanted)
    except (SyntaxError, ValueError):
        return {"score": 0.0, "reason": "the answer is no Python"}
    if ast.dump(mine) == ast.dump(theirs):
        return {"score": 1.0, "reason": "the same program"}
    has, needs = (
        {ast.dump(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)} for tree in (mine, theirs)
    )
    return {"score": 0.5 * len(has & needs) / max(1, len(has | needs)), "reason": "another program"}


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """Share of cases that are right: expected is {"function": name, "cases": [[args, result], ...]} or a program."""
    if not isinstance(output, str):
        return {"score": 0.0, "reason": "the answer is no program"}
    if not isinstance(expected, dict):
        return alike(source_of(output), source_of(str(expected)))
    space: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(compile(source_of(output), "answer", "exec"), space)
    except Exception as error:
        return {"score": 0.0, "reason": f"it fails when it is loaded: {type(error).__name__}"}
    right = 0
    for args, wanted in expected["cases"]:
        try:
            value = space[expected["function"]](*args)
        except Exception:
            continue
        right += type(value) is type(wanted) and value == wanted
    return {"score": right / len(expected["cases"]), "reason": f"{right} of {len(expected['cases'])} cases"}
