"""JSON that another program wrote, where half of a character was escaped.

A text that JavaScript or Python cut inside an emoji ends in a lone surrogate; both write it as `\\ud83d`,
and read it back.  It stands for no character, UTF-8 cannot carry it, and msgspec refuses the whole body.
Here each becomes U+FFFD, as everywhere else where text is made UTF-8, and the rest of the body is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

Value = TypeVar("Value")

_ESCAPES = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])|\\[^u])"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""What is kept is the group: a whole pair, or any other escape; outside of it stands half of a pair."""


def lenient(decode: Callable[[bytes], Value], body: bytes) -> Value:
    """What `decode` reads in JSON, read again without lone surrogates if it cannot be read as it is.

    Raises:
        msgspec.DecodeError: it is not JSON, even then; or what else `decode` raises.
    """
    try:
        return decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        mended = whole(body)
        if mended == body:
            raise
        return decode(mended)


def whole(body: bytes) -> bytes:
    """JSON with U+FFFD for each escaped half of a character."""
    if rb"\ud" not in body and rb"\uD" not in body:
        return body
    return _ESCAPES.sub(lambda found: found[1] or rb"\ufffd", body)
