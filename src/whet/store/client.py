"""The Link of a process that does not own the file: it sends its groups through the owner's socket.

It reads the file by itself; only writes go this way.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import msgspec

from ..errors import StoreError
from .owner import YIELD, Reply, address, receive, send
from .writer import LinkLost, Submission

_reply = msgspec.msgpack.Decoder(Reply)


class Client:
    """Connected to the owner of `path`.

    Raises:
        LinkLost: nobody listens.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address(path))
        except StoreError:
            self._socket.close()
            raise
        except OSError as exception:
            self._socket.close()
            raise LinkLost(str(exception)) from exception

    def commit(self, group: Sequence[Submission]) -> list[Exception | None]:
        try:
            send(self._socket, [submission.writes for submission in group])
            body = receive(self._socket)
        except OSError as exception:
            raise LinkLost(str(exception)) from exception
        if body is None:
            raise LinkLost("the owner closed the store")
        try:
            reply = _reply.decode(body)
        except msgspec.MsgspecError as exception:
            raise LinkLost(f"the owner answered something else: {exception}") from exception
        if reply.refused:
            return [StoreError(f"the store's owner refused: {reply.refused}")] * len(group)
        if len(reply.errors) != len(group):
            raise LinkLost("the owner answered something else")
        return [None if error is None else StoreError(error) for error in reply.errors]

    def close(self) -> None:
        self._socket.close()

    forget = close


def ask_for(path: str, seconds: float = 5.0) -> bool:
    """Ask the owner of `path` to let go of it; True if it does, or is gone already."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(address(path))
            send(connection, YIELD)
            body = receive(connection)
        except TimeoutError:
            return False
        except (OSError, ValueError):
            return True
        try:
            return body is None or not _reply.decode(body).refused
        except msgspec.MsgspecError:
            return False
