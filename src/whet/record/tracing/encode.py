"""Arguments and results as JSON, at the moment of the call, whatever they are.

Recording may never break the program that is recorded: a value without a JSON form becomes
`{"$repr": ..., "$type": ...}`, one that is too long `{"$truncated": <its beginning>, "$bytes": n}`.
Values that cannot change (text, numbers, None) are kept as they are and encoded later, off the
caller's thread.
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
REPR = 2_000
"""Characters that are kept of a repr."""

# By exact type: a subclass of str or int may carry more, and what it carries may change.
IMMUTABLE = frozenset((str, int, float, bool, type(None)))


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
    """The input of a later `thaw`: the value itself if it cannot change, else its bytes now."""
    if type(value) in IMMUTABLE:
        return value
    return _bytes(value)


def _bytes(value: Any) -> msgspec.Raw:
    try:
        body = _encode(value)
    except Exception:
        try:
            # Only after a failure: the walk in Python is slow, and nearly every value is encoded at once.
            body = _encode(_piecewise(value, 0))
        except Exception:
            body = _encode(mark(value))
    if len(body) > LIMIT:
        body = _encode({"$truncated": body[:KEPT].decode("utf-8", "replace"), "$bytes": len(body)})
    return msgspec.Raw(body)


def _piecewise(value: Any, depth: int) -> Json:
    """The slow way, for a value of which some part cannot be encoded: mark that part alone."""
    if depth > 20:
        return mark(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {
            clean(key) if isinstance(key, str) else clean(str(key)): _piecewise(inner, depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_piecewise(inner, depth + 1) for inner in value]
    try:
        _encode(value)
    except Exception:
        return mark(value)
    return value


def raw(frozen: Any) -> Json:
    """A frozen value ready to be encoded: JSON bytes stay bytes."""
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
