"""How versions come in: by vLLM's routes, from folders that were allowed, or from a store.

A request may name a folder only below those that were allowed when the server was started; with
none, it may name none.  What comes in is loaded beside what is served and then takes its name over.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ...errors import InputError, WhetError
from ...training.network import Network
from ...training.serving.host import Host, Served
from ...training.serving.loading import Loaded, from_folder, from_version
from ...training.serving.text import Text
from ...types import Bundle


class LoRA(msgspec.Struct):
    """The body of `/v1/load_lora_adapter`, as vLLM has it."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    """Whether a name that is served may be taken over."""


class Unload(msgspec.Struct):
    """The body of `/v1/unload_lora_adapter`."""

    lora_name: str


class Reload(msgspec.Struct):
    """The body of `/collective_rpc`, of which only `reload_weights` is offered."""

    method: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout: float | None = None


class Weights:
    """Takes up weights that a request names.

    Args:
        name: what the policy is served as.
        base: what adapters stand beside; the policy's own network.
        allowed: folders below which weights may be named.
    """

    def __init__(
        self, host: Host, name: str, base: Network, text: Text, *, allowed: Sequence[Path] = ()
    ) -> None:
        self.host, self.name, self._base, self._text = host, name, base, text
        self._allowed = [folder.resolve() for folder in allowed]
        self._one = threading.Lock()
        """Loading takes memory; one at a time."""

    def adapter(self, asked: LoRA) -> Served:
        """Serve factors under a name of their own.

        Raises:
            InputError, NotFoundError: the folder is not allowed, not there, or holds something else; the
                name is served and `load_inplace` is not set.
        """
        if asked.lora_name in self.host.names and not asked.load_inplace:
            raise InputError(
                f"{asked.lora_name!r} is served already; unload it first, give another name, or set load_inplace"
            )
        with self._one:
            loaded = from_folder(self._folder(asked.lora_path), base=self._base)
            return self._publish(asked.lora_name, loaded)

    def unload(self, name: str) -> None:
        """Serve an adapter no longer.

        Raises:
            NotFoundError: it is not served.
            InputError: it is the policy itself.
        """
        if name == self.name:
            raise InputError(f"{name} is the policy itself, no adapter; it is served until the server ends")
        self.host.withdraw(name)

    def reload(self, asked: Reload) -> Served:
        """Serve the policy with the weights of another folder.

        Raises:
            InputError, NotFoundError: another method than `reload_weights`, or as `adapter`.
        """
        if asked.method != "reload_weights" or asked.args or set(asked.kwargs) - {"weights_path"}:
            raise InputError(
                "this server offers collective_rpc for reload_weights alone, with kwargs {'weights_path': FOLDER}"
            )
        path = asked.kwargs.get("weights_path")
        if not isinstance(path, str):
            raise InputError("reload_weights needs kwargs {'weights_path': FOLDER}")
        with self._one:
            loaded = from_folder(self._folder(path), base=None)
            served = self._publish(self.name, loaded)
            self._base = loaded.network
            return served

    def _publish(self, name: str, loaded: Loaded) -> Served:
        return self.host.publish(
            name, loaded.network, self._text, policy_version=loaded.policy_version, version=loaded.version
        )

    def _folder(self, given: str) -> Path:
        folder = Path(given).resolve()
        if not any(folder.is_relative_to(allowed) for allowed in self._allowed):
            what = ", ".join(map(str, self._allowed)) or "none; start the server with --allow-weights DIR"
            raise InputError(
                f"weights may be taken from below certain folders only: {what}. Asked for: {given}"
            )
        return folder


class Releases(Protocol):
    """What is watched: a Store."""

    def live(self, name: str = "live") -> Bundle | None: ...


def watch(
    store: Releases, resource: str, host: Host, text: Text, stop: threading.Event, *, every: float = 1.0
) -> None:
    """Serve whatever is live of a resource until `stop` is set; blocks, for a thread of its own.

    A Version that cannot be loaded is said on standard error once, and what was served stays.
    """
    refused: str | None = None
    while not stop.wait(every):
        try:
            live = store.live()
            version = live.get(resource) if live is not None else None
            if version is None or version.id in (host.served(resource).version, refused):
                continue
            refused = version.id
            loaded = from_version(version)
            host.publish(
                resource, loaded.network, text, policy_version=loaded.policy_version, version=version.id
            )
            print(f"{resource}: now {version.id}, policy version {loaded.policy_version}", flush=True)
        except WhetError as error:
            print(f"{resource}: {error}; what was served stays", file=sys.stderr, flush=True)
