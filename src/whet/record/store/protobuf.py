"""Protocol buffers by hand: the wire format, and no message but the slices one asks for.

The generated parser builds an object for every attribute of every span (about 100 µs a span); a
record that keeps the bytes as they came needs only where they begin and end.  It knows no schema
and does not keep track of field order, which the format leaves open.

Source: "Encoding", protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, int, int]
"""Number, wire type, and for LENGTH where the value begins and ends; for VARINT and the fixed types the
value and where it ends."""


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The varint at `at` and where the next byte is.

    Raises:
        InputError: it does not end before `end`, or has more than the 10 bytes of 64 bits.
    """
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    for index in range(at, min(end, at + 10)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # The tenth byte may hold bits beyond the 64th, which are dropped as in other parsers.
            return value & 0xFFFF_FFFF_FFFF_FFFF, index + 1
        shift += 7
    raise InputError(f"protobuf: the number at byte {at} is cut off or longer than 64 bits.")


def fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Every field of the message that lies in `data[at:end]`, unknown ones too.

    Raises:
        InputError: a field reaches beyond `end`, or has a wire type that nobody writes any more (groups).
    """
    while at < end:
        key = data[at]
        start = at
        if key < 0x80:
            at += 1
        else:
            key, at = varint(data, at, end)
        kind = key & 7
        # A run of zeros would else be read as fields, each of number 0 and empty.
        if key < 8:
            raise InputError(f"protobuf: field number 0 at byte {start}.")
        if kind == LENGTH:
            # A length of one or two bytes, up to 16 KB, is read here: the call would cost more.
            if at < end and data[at] < 0x80:
                size = data[at]
                at += 1
            elif at + 1 < end and data[at + 1] < 0x80:
                size = data[at] & 0x7F | data[at + 1] << 7
                at += 2
            else:
                size, at = varint(data, at, end)
            stop = at + size
            if stop > end:
                raise InputError(
                    f"protobuf: field {key >> 3} at byte {start} is {size} bytes long, {end - at} are there."
                )
            yield key >> 3, kind, at, stop
            at = stop
        elif kind == VARINT:
            value, at = varint(data, at, end)
            yield key >> 3, kind, value, at
        elif kind in (FIXED64, FIXED32):
            stop = at + (8 if kind == FIXED64 else 4)
            if stop > end:
                raise InputError(f"protobuf: field {key >> 3} at byte {start} is cut off.")
            yield key >> 3, kind, int.from_bytes(data[at:stop], "little"), stop
            at = stop
        else:
            raise InputError(f"protobuf: wire type {kind} at byte {start} is not in use.")


def write_varint(value: int) -> bytes:
    """A number of 0 or more as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_field(number: int, value: bytes) -> bytes:
    """One field of wire type LENGTH."""
    if number < 16 and len(value) < 0x80:
        return bytes((number << 3 | LENGTH, len(value))) + value
    return write_varint(number << 3 | LENGTH) + write_varint(len(value)) + value


def write_number(number: int, value: int, kind: int = VARINT) -> bytes:
    """One field of wire type VARINT or a fixed one."""
    key = write_varint(number << 3 | kind)
    if kind == VARINT:
        return key + write_varint(value)
    return key + value.to_bytes(8 if kind == FIXED64 else 4, "little")
