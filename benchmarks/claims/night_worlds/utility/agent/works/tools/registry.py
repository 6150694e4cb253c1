"""Tools are functions, plain or async, that are registered under their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tool:
    name: str
    run: Callable[..., Any]

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as the model is told of it."""
        kinds = {"int": "integer", "float": "number"}
        properties = {
            name: {"type": kinds.get(str(each.annotation), "string")}
            for name, each in inspect.signature(self.run).parameters.items()
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        about = {"name": self.name, "description": inspect.getdoc(self.run) or "", "parameters": parameters}
        return {"type": "function", "function": about}


TOOLS: dict[str, Tool] = {}


def tool(run: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function as a tool."""
    TOOLS[run.__name__] = Tool(run.__name__, run)
    return run


async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a tool says; an error is an answer too, for the model to see."""
    try:
        said = TOOLS[name].run(**arguments)
        return dict(await said if inspect.isawaitable(said) else said)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
