"""Arguments and results as JSON, at the moment of the call, whatever they are.

Recording may never break the program that is recorded: a value without a JSON form becomes
`{"$repr": ..., "$type": ...}`, one that is too long `{"$truncated": <its beginning>, "$bytes": n}`, one that lies in
itself `{"$cycle": <levels up>}`, and a container deeper than `DEEPEST` `{"$deeper": <its length>, "$type": ...}`.
Values that cannot change (text, numbers, None) are kept as they are, dictionaries and lists of them are copied, and
both are encoded later, off the caller's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from ...escapes import clean
from ...types import Json

LIMIT = 1_000_000
"""Bytes of JSON that one value may have."""
KEPT = 20_000
"""Characters that are kept of a longer one."""
DEEPEST = 20
"""Containers in containers that are kept of a value that nests too deeply to be encoded."""
REPR = 2_000
"""Characters that are kept of a repr."""

# By exact type: a subclass of str or int may carry more, and what it carries may change.
IMMUTABLE = frozenset((str, int, float, bool, type(None)))
flat = IMMUTABLE.issuperset
"""True of types none of which needs a copy; one call of C code, for it is asked at every traced call."""


_CONTAINERS = frozenset((dict, list, tuple))
_NOT_PLAIN: Any = object()
_COPIED_DEPTH = 16
"""Containers in containers that are copied; a value that goes deeper, or around in a circle, is encoded at once."""


def mark(value: Any) -> dict[str, str]:
    """The stand-in for a value without a JSON form."""
    try:
        text = repr(value)[:REPR]
    except Exception as exception:
        text = f"<its repr raised {type(exception).__name__}>"
    return {"$repr": clean(text), "$type": type(value).__qualname__}


def _hook(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key if type(key) is str else repr(key): inner for key, inner in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray | memoryview):
        return list(value)
    item = getattr(value, "item", None)  # a scalar of numpy or torch
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    return mark(value)


_encode = msgspec.json.Encoder(enc_hook=_hook).encode


def freeze(value: Any) -> Any:
    """The input of a later `thaw`: the value itself if it cannot change, a copy of plain JSON, else its bytes now."""
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind in _CONTAINERS:
        try:
            copied = _copy(value, kind, 0)
        except RuntimeError:  # another thread changed it meanwhile
            copied = _NOT_PLAIN
        if copied is not _NOT_PLAIN:
            return copied
    return _bytes(value)


def _copy(value: Any, kind: type, depth: int) -> Any:
    """A copy of a container down to what cannot change; `_NOT_PLAIN` if anything else is in it, or it is too deep.

    Keys of a dictionary are taken as they are: what can be one does not change.
    """
    is_dict = kind is dict
    if flat(map(type, value.values() if is_dict else value)):
        return value if kind is tuple else value.copy()
    if depth == _COPIED_DEPTH:
        return _NOT_PLAIN
    copied: list[Any] = []
    for inner in value.values() if is_dict else value:
        inner_kind = type(inner)
        if inner_kind not in IMMUTABLE:
            # Here, and not one call deeper: most of what is nested is one such step from its leaves.
            if inner_kind is dict and flat(map(type, inner.values())):
                inner = inner.copy()
            else:
                inner = _copy(inner, inner_kind, depth + 1) if inner_kind in _CONTAINERS else _NOT_PLAIN
                if inner is _NOT_PLAIN:
                    return _NOT_PLAIN
        copied.append(inner)
    return dict(zip(value, copied, strict=True)) if is_dict else copied


def _bytes(value: Any) -> Any:
    try:
        body = _encode(value)
    except Exception:
        try:
            # Only after a failure: the walk in Python is slow, and nearly every value is encoded at once.
            body = _encode(_piecewise(value, ()))
        except Exception:
            body = _encode(mark(value))
    if len(body) > LIMIT:
        body = _encode({"$truncated": body[:KEPT].decode("utf-8", "replace"), "$bytes": len(body)})
    return msgspec.Raw(body)


def _piecewise(value: Any, around: tuple[int, ...]) -> Json:
    """The slow way, for a value of which some part cannot be encoded: mark that part alone.

    Args:
        around: ids of the containers that it lies in, the outermost first.
    """
    if id(value) in around:
        return {"$cycle": len(around) - around.index(id(value))}
    if len(around) > DEEPEST and isinstance(value, dict | list | tuple | set | frozenset):
        # Not its repr, which would go down all the way itself.
        return {"$deeper": len(value), "$type": type(value).__qualname__}
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {
            clean(key) if isinstance(key, str) else clean(str(key)): _piecewise(inner, (*around, id(value)))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_piecewise(inner, (*around, id(value))) for inner in value]
    try:
        _encode(value)
    except Exception:
        return mark(value)
    return value


def raw(frozen: Any) -> Json:
    """A frozen value ready to be encoded: JSON bytes stay bytes."""
    if type(frozen) in _CONTAINERS:
        return _bytes(frozen)
    # The cheap question first: KEPT characters are at most 80 KB of UTF-8, far below LIMIT.
    if type(frozen) is str and len(frozen) > KEPT and len(frozen.encode("utf-8", "replace")) > LIMIT:
        return {"$truncated": clean(frozen[:KEPT]), "$bytes": len(frozen.encode("utf-8", "replace"))}
    if type(frozen) is str and not frozen.isascii():
        return clean(frozen)
    # Python writes no int of more than 4,300 digits; 10,000 bits are 3,011 of them.
    if type(frozen) is int and frozen.bit_length() > 10_000:
        return mark(frozen)
    return frozen


def thaw(frozen: Any) -> Json:
    """A frozen value as a JSON value."""
    encoded = raw(frozen)
    return msgspec.json.decode(encoded) if isinstance(encoded, msgspec.Raw) else encoded
