"""What tools that were called are in the source: the functions behind them, and the files that these read."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from ....repository.modules import Module
from ....repository.syntax import FunctionNode, last_name

_AROUND = frozenset(
    ("", "tool", "handle", "handler", "run", "call", "do", "fn", "impl", "get", "lookup", "fetch")
)
"""Words around a tool's name in that of its function."""


def functions_behind(modules: Sequence[Module], tools: Collection[str]) -> set[str]:
    """Names of the functions that answer tools: their own, or those that a table or a decorator gives these names."""
    found, plain = {*tools}, {_plain(tool) for tool in tools} - {frozenset[str]()}
    for node in (node for module in modules for node in ast.walk(module.tree)):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found |= {
                last_name(value)
                for key, value in pairs
                if isinstance(key, ast.Constant) and key.value in tools
            }
        elif isinstance(node, FunctionNode):
            given = [
                each
                for call in node.decorator_list
                for each in ast.walk(call)
                if isinstance(each, ast.Constant)
            ]
            if any(each.value in tools for each in given) or _plain(node.name) in plain:
                found.add(node.name)
    return found - {""}


def called_by(modules: Sequence[Module], names: Collection[str]) -> set[str]:
    """Names of the other functions of these modules that the functions of these names call."""
    nodes = [node for module in modules for node in ast.walk(module.tree) if isinstance(node, FunctionNode)]
    called = {
        last_name(inner.func)
        for node in nodes
        if node.name in names
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
    }
    return called & {node.name for node in nodes} - {*names}


def _plain(name: str) -> frozenset[str]:
    """The words of a name that say what it is about."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold()
    return frozenset(re.split(r"[^a-z0-9]+", words)) - _AROUND


def read_by(modules: Sequence[Module], names: Collection[str], paths: Sequence[str]) -> set[str]:
    """Those of the files that the functions of these names read, by themselves or through a constant of any module."""
    files = {Path(path).name: path for path in paths}

    def told(node: ast.AST) -> set[str]:
        texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        return {name for text in texts if isinstance(text, str) if (name := Path(text).name) in files}

    constants: dict[str, set[str]] = {}
    for statement in (statement for module in modules for statement in module.tree.body):
        if not isinstance(statement, FunctionNode | ast.ClassDef) and (held := told(statement)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    constants.setdefault(node.id, set()).update(held)
    read: set[str] = set()
    for node in (node for module in modules for node in ast.walk(module.tree)):
        if isinstance(node, FunctionNode) and node.name in names:
            used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            read |= told(node).union(*(constants[name] for name in used & constants.keys()))
    return {files[name] for name in read}
