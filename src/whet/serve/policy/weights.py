"""The ways in which versions come in: by vLLM's routes, from folders that were allowed, by SGLang's, through memory
from a trainer on this machine, or from a store.

A request may name a folder only below those that were allowed when the server was started; with
none, it may name none.  What comes in is loaded beside what is served and then takes its name over.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InputError, NotFoundError, WhetError
from ...learn.training.huggingface import CausalLM
from ...learn.training.network import Network
from ...learn.training.serving.host import Host, ServedVersion
from ...learn.training.serving.loading import Loaded, from_folder, from_version
from ...learn.training.serving.text import TextCodec
from ...learn.training.weight_group import LOOPBACK, WeightGroup, refuse_others
from ...record.store import Store
from ...types import Version, new_id


class LoRA(msgspec.Struct):
    """The body of `/v1/load_lora_adapter`, as vLLM has it."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    """True to replace what is served under that name."""


class Unload(msgspec.Struct):
    """The body of `/v1/unload_lora_adapter`."""

    lora_name: str


class Reload(msgspec.Struct):
    """The body of `/collective_rpc`, of which only `reload_weights` is offered."""

    method: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout: float | None = None


class JoinGroup(msgspec.Struct):
    """The body of `/init_weights_update_group`, as SGLang has it."""

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    group_name: str
    backend: str = "nccl"


class TakeWeights(msgspec.Struct):
    """The body of `/update_weights_from_distributed`, as SGLang has it."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    group_name: str
    weight_version: str | None = None
    flush_cache: bool = True


class WeightLoader:
    """Takes up weights that a request names.

    Args:
        name: what the policy is served as.
        base: what adapters stand beside; the policy's own network.
        allowed: folders below which weights may be named.
    """

    def __init__(
        self, host: Host, name: str, base: Network, text: TextCodec, *, allowed: Sequence[Path] = ()
    ) -> None:
        self.host, self.name, self._base, self._text = host, name, base, text
        self._allowed = [folder.resolve() for folder in allowed]
        self._one = threading.Lock()
        """Loading takes memory; one at a time."""
        self._groups: dict[str, WeightGroup] = {}

    def adapter(self, adapter: LoRA) -> ServedVersion:
        """Serve factors under a name of their own.

        Raises:
            InputError, NotFoundError: the folder is not allowed, not there, or holds something else; the
                name is served and `load_inplace` is not set.
        """
        if adapter.lora_name in self.host.names and not adapter.load_inplace:
            raise InputError(
                f"{adapter.lora_name!r} is served already; unload it first, give another name, or set load_inplace"
            )
        with self._one:
            loaded = from_folder(self._folder(adapter.lora_path), base=self._base)
            return self._publish(adapter.lora_name, loaded)

    def unload(self, name: str) -> None:
        """Stop serving an adapter.

        Raises:
            NotFoundError: it is not served.
            InputError: it is the policy itself.
        """
        if name == self.name:
            raise InputError(f"{name} is the policy itself, no adapter; it is served until the server ends")
        self.host.withdraw(name)

    def reload(self, request: Reload) -> ServedVersion:
        """Serve the policy with the weights of another folder.

        Raises:
            InputError, NotFoundError: another method than `reload_weights`, or as `adapter`.
        """
        if request.method != "reload_weights" or request.args or set(request.kwargs) - {"weights_path"}:
            raise InputError(
                "this server offers collective_rpc for reload_weights alone, with kwargs {'weights_path': FOLDER}"
            )
        path = request.kwargs.get("weights_path")
        if not isinstance(path, str):
            raise InputError("reload_weights needs kwargs {'weights_path': FOLDER}")
        with self._one:
            loaded = from_folder(self._folder(path), base=None)
            served = self._publish(self.name, loaded)
            self._base = loaded.network
            return served

    def join(self, request: JoinGroup) -> None:
        """Join a trainer's process group, by which weights come.

        Raises:
            InputError: the trainer is on another machine, or the server was not allowed to take weights.
            TrainingRefused: it did not come.
        """
        if not self._allowed:
            raise InputError("this server takes no weights; start it with --allow-weights DIR")
        if request.master_address not in LOOPBACK:
            raise InputError(
                f"weights are taken from a trainer on this machine alone, not from {request.master_address}; hand them "
                "over by disk"
            )
        group = WeightGroup(
            request.master_address,
            request.master_port,
            rank=request.rank_offset,
            size=request.world_size,
            backend=request.backend,
            name=request.group_name,
        )
        # One at a time: a trainer that went without a word leaves its group behind.
        for left in self._groups.values():
            left.close()
        self._groups = {request.group_name: group}

    def take(self, request: TakeWeights) -> ServedVersion:
        """Serve the policy with the weights that come by a group, in the place of its own.

        Raises:
            InputError: no such group was joined, or these are not the weights of this policy.
        """
        group = self._groups.get(request.group_name)
        if group is None:
            raise InputError(
                f"no group {request.group_name!r} was joined here; join by /init_weights_update_group"
            )
        if isinstance(self._base, CausalLM) and self._base.adapted:
            raise InputError("LoRA factors are served here, and full weights cannot take their place")
        with self._one:
            refuse_others(self._base.weights(), request.names, request.shapes)
            network = self._base.copy()
            group.receive_into(network.weights(), request.names, request.dtypes)
            version = request.weight_version or new_id()
            served = self._publish(self.name, Loaded(network, version, None, None))
            self._base = network
            return served

    def _publish(self, name: str, loaded: Loaded) -> ServedVersion:
        return self.host.publish(
            name, loaded.network, self._text, policy_version=loaded.policy_version, version=loaded.version
        )

    def _folder(self, path: str) -> Path:
        # Resolved first: neither `..` nor a link may lead out of the allowed folders.
        folder = Path(path).resolve()
        if not any(folder.is_relative_to(allowed) for allowed in self._allowed):
            allowed_folders = (
                ", ".join(map(str, self._allowed)) or "none; start the server with --allow-weights DIR"
            )
            raise InputError(
                f"weights may be taken from below certain folders only: {allowed_folders}. Asked for: {path}"
            )
        return folder


def as_it_came(store: Store, version: Version) -> Loaded | None:
    """The weights that a Version was learned from; None where neither it nor the record names them.

    That is the model below its factors, else the first of its ancestors that the record has.

    Raises:
        InputError, NotFoundError: it is gone, or was changed.
    """
    base = version.content.get("base") if isinstance(version.content, dict) else None
    if isinstance(base, dict) and base.get("path"):
        return from_folder(base["path"])
    first, visited = version, {version.id}
    while first.parent is not None and first.parent not in visited:
        visited.add(first.parent)
        above = next(store.versions(ids=[first.parent]), None)
        if above is None:
            break
        first = above
    return None if first is version else from_version(first)


def watch(
    store: Store,
    resource: str,
    host: Host,
    text: TextCodec,
    stop: threading.Event,
    *,
    base: Callable[[], Loaded] | None = None,
    released: Version | None = None,
    every: float = 1.0,
) -> None:
    """Serve whatever is live of a resource until `stop` is set; blocks, for a thread of its own.

    Where nothing is live any more, the weights as they came are served: `base`, else what the Version that was
    live was learned from.  What cannot be loaded is said on standard error once, and what was served stays.

    Args:
        released: the Version that is served at first; None is the base.
    """
    refused: str | None = ""
    """Id of what could not be loaded, None for the base."""
    while not stop.wait(every):
        try:
            live = store.live()
            version = live.get(resource) if live is not None else None
            version_id = None if version is None else version.id
            serving = released is None if version_id is None else host.served(resource).version == version_id
            if serving:
                released, refused = version, ""
            if serving or version_id == refused:
                continue
            # Set before it is tried: weights that cannot be loaded are said
            # once, not loaded again each second.
            refused = version_id
            loaded = from_version(version) if version is not None else _base(store, released, base)
            host.publish(
                resource, loaded.network, text, policy_version=loaded.policy_version, version=loaded.version
            )
            released, refused = version, ""
            print(
                f"{resource}: now {version_id or 'as it came'}, policy version {loaded.policy_version}",
                flush=True,
            )
        except WhetError as error:
            print(f"{resource}: {error}; what was served stays", file=sys.stderr, flush=True)


def _base(store: Store, released: Version | None, base: Callable[[], Loaded] | None) -> Loaded:
    """The weights as they came.

    Raises:
        InputError, NotFoundError: nothing says what they were, or they are gone.
    """
    loaded = base() if base is not None else as_it_came(store, released) if released is not None else None
    if loaded is None:
        raise NotFoundError(
            "it was rolled back to the agent as it came, and nothing says what its weights were. "
            "Start whet serve-policy with --model beside --store"
        )
    return loaded
