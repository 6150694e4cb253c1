"""Prompts in files beside the code: a whole text, what follows its front matter, or a value in YAML, TOML or JSON.

Each is read and written in the format of its file. Only the span of the one text changes, and the file is read again to
see that nothing else did.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from ..errors import InputError, MissingExtra
from .modules import Repository
from .scan import PromptLiteral

WHOLE = (".txt", ".md", ".prompt", ".jinja", ".jinja2", ".j2")
"""Suffixes of files that are one prompt."""
NESTED = (".yaml", ".yml", ".toml", ".json")
"""Suffixes of files that hold prompts under keys."""
LARGEST = 256 << 10
"""Bytes of a file that is looked into: a larger one is data."""
_SHORTEST = 20
"""Characters below which a text may be a prompt's by chance."""
_FRONT = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_TOML_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)
Span = tuple[int, int]
Leaves = Mapping[str, Any]
"""Dotted key → value; a text is a `str`, all else is something that no `str` equals."""


def file_prompts(repository: Repository, wanted: Callable[[str], bool]) -> Iterator[PromptLiteral]:
    """The texts of a repository's own files that are wanted; a file that cannot be read is in its `problems`."""
    for path in repository.paths:
        if path.suffix.lower() not in (*WHOLE, *NESTED):
            continue
        name = repository.relative(path)
        try:
            if path.stat().st_size > LARGEST:
                continue
            texts = _texts(name, repository.text(name))
        except (InputError, MissingExtra, ValueError, OSError, RecursionError) as error:
            repository.problems[name] = str(error)
            continue
        for key, text in texts.items():
            if len(text) >= _SHORTEST and wanted(text):
                yield PromptLiteral(name, key, 1, text, False)


def is_nested(name: str) -> bool:
    """True for the name of a file that holds prompts under keys."""
    return PurePath(name).suffix.lower() in NESTED


def text_in(name: str, text: str, key: str) -> str:
    """The prompt in a file's text, without the white space around it.

    Raises:
        InputError: the file cannot be read, or has no text under this key.
    """
    texts = _texts(name, text)
    if key not in texts:
        known = ", ".join(texts) or "none"
        raise InputError(f"{name} has no text under the key {key!r}; it has {known:.300}")
    return texts[key]


def with_text(name: str, text: str, key: str, new: str) -> str:
    """The file's text with another prompt in it, all else as it was.

    Raises:
        InputError: it cannot be written in the file's format.
    """
    if not is_nested(name):
        front = _front(text)
        return front + _in_place(text[len(front) :], new)
    before = _leaves(name, text)
    text_in(name, text, key)  # refuses a key that has no text
    value = before[key]
    after = {**before, key: _in_place(value, new)}
    for begin, end in _spans(name, text, value):
        for form in _forms(name, text, (begin, end), after[key]):
            changed = text[:begin] + form + text[end:]
            try:
                if _leaves(name, changed) == after:
                    return changed
            except (InputError, ValueError):
                continue
    raise InputError(
        f"{name}: the text under {key} cannot be replaced there without a change of something else"
    )


def _in_place(old: str, new: str) -> str:
    """A text with the white space around it that the old one has."""
    bare = old.strip()
    start = old.index(bare)
    return old[:start] + new.strip() + old[start + len(bare) :]


def _front(text: str) -> str:
    match = _FRONT.match(text)
    return match[0] if match else ""


def _texts(name: str, text: str) -> dict[str, str]:
    """Key → text, of all texts of a file; the key of a whole file is ""."""
    if not is_nested(name):
        return {"": text.removeprefix(_front(text)).strip()}
    leaves = _leaves(name, text)
    return {key: value.strip() for key, value in leaves.items() if key and isinstance(value, str)}


def _leaves(name: str, text: str) -> Leaves:
    """Every value of a file.

    Raises:
        InputError, ValueError: it is not in its format, or two values have one key.
        MissingExtra: PyYAML is not installed.
    """
    suffix = PurePath(name).suffix.lower()
    try:
        if suffix == ".json":
            pairs = list(_walked(json.loads(text)))
        elif suffix == ".toml":
            pairs = list(_walked(tomllib.loads(text)))
        else:
            pairs = list(_yaml_walked(_composed(name, text)))
    except ValueError as error:
        raise InputError(f"{name} cannot be read: {error}") from error
    leaves = dict(pairs)
    if len(leaves) != len(pairs):
        raise InputError(f"{name} has two values with one dotted key")
    return leaves


def _walked(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if members is None:
        yield key, value if isinstance(value, str) else (repr(value),)
        return
    yield f"{key}/", (type(value).__name__,)
    for name, member in members:
        yield from _walked(member, f"{key}.{name}" if key else str(name))


def _composed(name: str, text: str) -> Any:
    """The nodes of YAML: nothing is constructed, whatever its tags name."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("yaml", "evolve") from None
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InputError(f"{name} is not one document of YAML: {error}") from error


def _yaml_walked(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    value = getattr(node, "value", None)
    if not isinstance(value, list):
        is_text = getattr(node, "tag", "") == "tag:yaml.org,2002:str"
        yield key, value if is_text else (getattr(node, "tag", ""), value)
        return
    yield f"{key}/", (node.tag,)
    for place, member in enumerate(value):
        name, inner = (member[0].value, member[1]) if isinstance(member, tuple) else (place, member)
        yield from _yaml_walked(inner, f"{key}.{name}" if key else str(name))


def _spans(name: str, text: str, value: str) -> Iterator[Span]:
    """Where a value may stand in a file's text."""
    suffix = PurePath(name).suffix.lower()
    if suffix in (".json", ".toml"):
        pattern = _JSON_STRING if suffix == ".json" else _TOML_STRING
        for token in pattern.finditer(text):
            try:
                meant = json.loads(token[0]) if suffix == ".json" else tomllib.loads(f"x = {token[0]}")["x"]
            except ValueError:
                continue  # a comment
            if meant == value:
                yield token.span()
        return
    waiting = [_composed(name, text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node.value, list):
            waiting += [
                each for member in node.value for each in (member if isinstance(member, tuple) else (member,))
            ]
        elif node.value == value:
            yield node.start_mark.index, node.end_mark.index


def _forms(name: str, text: str, span: Span, new: str) -> Iterator[str]:
    """How a text may be written in the place of another, the likest first."""
    suffix, old = PurePath(name).suffix.lower(), text[slice(*span)]
    if suffix == ".json":
        yield json.dumps(new, ensure_ascii=old.isascii())
        return
    if suffix == ".toml":
        quotes = old[:3] if old[:3] in ('"""', "'''") else old[:1]
        if quotes.startswith("'"):
            yield f"'''\n{new}'''" if len(quotes) == 3 or "\n" in new else f"'{new}'"
        if len(quotes) == 3 or "\n" in new:
            escaped = new.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
            yield f'"""\n{escaped}"""'
    else:
        yield from _yaml_forms(text, span, new)
    yield json.dumps(new, ensure_ascii=False)


def _yaml_forms(text: str, span: Span, new: str) -> Iterator[str]:
    old = text[slice(*span)]
    if old[:1] in ("'", '"') and "\n" not in new:
        yield (
            f"'{new.replace(chr(39), 2 * chr(39))}'" if old[0] == "'" else json.dumps(new, ensure_ascii=False)
        )
    elif old[:1] not in ("|", ">", "'", '"') and "\n" not in new:
        yield new
    line = text[text.rfind("\n", 0, span[0]) + 1 : span[0]]
    first = next((each for each in old.split("\n")[1:] if each.strip()), "")
    blanks = re.match(r" *", first if old[:1] in ("|", ">") else line)
    assert blanks is not None
    indent = blanks[0] if old[:1] in ("|", ">") else blanks[0] + "  "
    body = "\n".join(f"{indent}{each}" if each else "" for each in new.removesuffix("\n").split("\n"))
    # The span of a block reaches to what comes after it.
    rest = old[len(old.rstrip()) :] if old[:1] in ("|", ">") else ""
    yield f"{'|' if new.endswith(chr(10)) else '|-'}\n{body}{rest}"
