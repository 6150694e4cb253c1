"""Text from outside: halves of characters, JSON that would take too much memory, and letters that steer a terminal.

Lone UTF-16 surrogates (from text cut inside an emoji) are repaired, for msgspec cannot encode them.

JavaScript and Python keep one in a string and write it to JSON as `\\ud83d`.  It stands for no character,
UTF-8 cannot carry it, and msgspec neither reads nor writes it: one such text would cost the whole batch, answer
or trajectory that it stands in.  Here each becomes U+FFFD, as everywhere else where text is made UTF-8.  The mark
that programs on Windows begin a text with is passed over on the way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

Value = TypeVar("Value")

# The last branch of the group takes two bytes, so that an escaped backslash before `ud83d` is no escape.
_ESCAPES = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])|\\[^u])"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""Only the group is kept: a whole pair, or any other escape; half of a pair is outside of it."""


MOST_VALUES = 2_000_000
"""Values that JSON may have from wherever it comes: each costs up to a hundred times its bytes in memory."""
_TO_COMMA = re.compile(rb'(?:[^",]++|"(?:[^"\\]++|\\.)*+")*+,', re.DOTALL)


class TooManyValues(msgspec.DecodeError):
    """JSON that would take too much memory."""


def refuse_too_many(body: bytes, most: int = MOST_VALUES) -> None:
    """Refuse JSON of more than `most` values, before any of them takes memory.

    Raises:
        TooManyValues: with the numbers.
    """
    # The count of the bytes alone settles nearly every body; commas inside strings do not count.
    if body.count(b",") < most:
        return
    values, place = 1, 0
    # One match a comma, and none kept: a list of the pieces would take more memory than the values.
    while (comma := _TO_COMMA.match(body, place)) is not None:
        values, place = values + 1, comma.end()
        if values > most:
            raise TooManyValues(
                f"its {len(body):,} bytes have more than {most:,} values, and that many are taken at most. "
                "Send less at once."
            )


def read_json(decode: Callable[[bytes], Value], body: bytes | str, most: int = MOST_VALUES) -> Value:
    """JSON read by `decode`, and read again as mended by `whole` if that fails.

    Halves of characters that stand in a text as they are, and not as escapes, become U+FFFD.

    Raises:
        TooManyValues: it has more than `most` values.
        msgspec.DecodeError: it is not JSON, even then, not UTF-8, or nested too deeply; or what else `decode` raises.
    """
    if isinstance(body, str):
        body = body.encode() if body.isascii() else clean(body).encode()
    refuse_too_many(body, most)
    try:
        return _read(decode, body)
    except msgspec.ValidationError:
        # A subclass of DecodeError, so it stands first: a second reading mends no JSON of another shape.
        raise
    except msgspec.DecodeError:
        mended = whole(body)
        if mended == body:
            raise
        return _read(decode, mended)


def _read(decode: Callable[[bytes], Value], body: bytes) -> Value:
    try:
        return decode(body)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        # msgspec raises it as it is, and a caller who forgot it would fail on one byte.
        raise msgspec.DecodeError(f"it is not UTF-8: {error}") from None


def whole(body: bytes) -> bytes:
    """JSON with U+FFFD for each escaped half of a character, without the mark that Windows begins a text with."""
    body = body.removeprefix(codecs.BOM_UTF8)
    if rb"\ud" not in body and rb"\uD" not in body:
        return body
    return _ESCAPES.sub(lambda match: match[1] or rb"\ufffd", body)


def write_json(encoder: msgspec.json.Encoder, value: Any) -> bytes:
    """`value` as JSON, written again without lone surrogates if that fails.

    Raises:
        TypeError, ValueError, OverflowError: what `encoder` raises of anything else.
    """
    try:
        return encoder.encode(value)
    except UnicodeEncodeError:
        return encoder.encode(_clean(msgspec.to_builtins(value, enc_hook=encoder.enc_hook)))


def clean(text: str) -> str:
    """The text with U+FFFD for each half of a character; two halves that stand together are one."""
    # By UTF-16: two halves that were cut apart and stand together again become their one character.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value


_CONTROLS = (
    "[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069](?<!\r(?=\n))"
)
"""All but tab and the ends of lines."""
BOLD = re.compile(rf"{_CONTROLS}(?<!\x1b(?=\[[01]m))")
"""What `neutral` takes out of lines of which some are bold."""
OURS = re.compile(rf"{_CONTROLS}(?<!\x1b(?=\[(?:[0-9;]*m|2K|[0-9]*A|\?25[lh])))(?<!\r)")
"""What it takes out of output that sets colours and erases its progress lines."""
_ANY = re.compile(_CONTROLS)


def neutral(text: str, *, but: re.Pattern[str] | None = None) -> str:
    """A text that a terminal shows and does not obey: control and direction characters as \\uXXXX.

    Args:
        but: `BOLD` or `OURS`, for text with sequences of our own.
    """
    if text.isascii() and text.isprintable():
        return text
    return (but or _ANY).sub(lambda match: f"\\u{ord(match[0]):04x}", text)
