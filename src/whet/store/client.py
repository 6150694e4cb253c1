"""The Link of a process that does not own the file: it sends its groups through the owner's socket.

It reads the file by itself; only writes go this way.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import msgspec

from ..errors import StoreError
from .owner import Reply, address, receive, send
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
        reply = _reply.decode(body)
        if reply.refused:
            return [StoreError(f"the store's owner refused: {reply.refused}")] * len(group)
        return [None if error is None else StoreError(error) for error in reply.errors]

    def close(self) -> None:
        self._socket.close()

    forget = close
