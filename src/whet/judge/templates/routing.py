"""Judges which tool was chosen, and with which arguments."""

from typing import Any

LABELS: list[str] = []


def parts(call: Any) -> tuple[Any, Any]:
    """The tool and the arguments of a call; arguments are None where there is no reading them."""
    if isinstance(call, str):
        return call.strip(), {}
    if not isinstance(call, dict):
        return None, None
    arguments = call.get("arguments", call.get("args", {}))
    return call.get("tool", call.get("name")), arguments if isinstance(arguments, dict) else None


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """0 for the wrong tool; for the right one a half, and the rest by the share of right arguments."""
    if expected is None:
        return {
            "score": float(output is None),
            "reason": "nothing" if output is None else "an answer where none is right",
        }
    tool, arguments = parts(output)
    wanted, given = parts(expected)
    if not isinstance(tool, str) or tool != wanted:
        known = isinstance(tool, str) and tool in LABELS
        reason = "another tool" if known else "the answer names none of the tools, or more than one"
        return {"score": 0.0, "reason": reason}
    if arguments is None:
        return {"score": 0.0, "reason": "the arguments are no object"}
    names = {*given, *arguments}
    right = sum(n in given and n in arguments and arguments[n] == given[n] for n in names)
    share = right / len(names) if names else 1.0
    score = 0.5 + 0.5 * share if names else 1.0
    return {"score": score, "reason": f"the right tool, {share:.0%} of the arguments"}
