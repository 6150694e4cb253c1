"""Policies that are sampled from a server while they are trained here.

`RemoteModels` stands where `LocalModels` stands: an optimizer is given it and changes nothing, a
policy asks it for a sampler and gets one behind a URL.  Weights are handed over before the first
call after they changed, through a folder that both see, and answers are tagged with the policy
version they came from.  Full weights may instead go through memory, by a process group of trainer and engine
(`weight_group.py`).
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ...errors import InputError, NotFoundError
from ...models.engine import EngineServer, RemoteSampler, RemoteSession
from ...models.sampling import Sampled
from ...types import Json, Version, new_id
from .local import LocalModels
from .network import Network, adapted, pretrained, saved
from .serving.loading import tag
from .weight_group import ENGINE_RANK, WeightGroup, described

HandOver = Literal["disk", "gloo", "nccl"]
"""How full weights reach an engine."""

KEPT = 2
"""Versions before the current one whose files and adapters stay, for what is still under way."""


@dataclass(frozen=True, slots=True)
class _HandedOver:
    version: Version
    folder: Path | None
    """None for weights that went through memory."""
    adapter: str | None
    """Name of LoRA factors; None for full weights, which take the place of those before."""


class RemoteModels(LocalModels):
    """Weights in this process, sampled on a server.

    Args:
        server: where the same model is served already.
        folder: where weights are handed over; the server must be able, and allowed, to read it.
        by: `disk`, or the backend (`gloo`, `nccl`) of a process group by which full weights go through memory.

    Raises:
        InputError: the server takes weights from disk alone.
    """

    elsewhere = True

    def __init__(self, server: EngineServer, folder: Path, *, by: HandOver = "disk") -> None:
        super().__init__()
        if by != "disk" and not server.takes_groups:
            raise InputError(
                f"{server.base_url} takes full weights from disk alone: its own process group needs its library in the "
                "trainer. Leave --hand-over out, or sample with policy or sglang"
            )
        self.server = server
        self.folder = Path(folder)
        self.by: HandOver = by
        self._group: tuple[str, WeightGroup] | None = None
        self.handed_over = 0
        self._known: dict[str, _HandedOver] = {}
        """By Version and policy version, what was handed over of late, in that order."""
        self._served = ""
        """Key of the full weights that the server has."""
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def sampler(  # type: ignore[override]
        self, version: Version, *, greedy: bool = False, temperature: float = 1.0
    ) -> VersionSampler:
        """A sampler that has the server take up these weights before its first call.

        Raises:
            InputError: no Version of weights.
            NotFoundError: its live weights have moved on.
        """
        # A Version that was handed over is served though its live weights have moved on here.
        if _key(version) not in self._known:
            self._live(version)
        return VersionSampler(self, version, greedy=greedy, temperature=temperature)

    async def publish(self, version: Version) -> tuple[str, str | None]:
        """Have the server serve a Version, unless it does; its policy version, and an adapter's name.

        Raises:
            ModelError: the server did not take it.
            InputError, NotFoundError: as `LocalModels.decoder`.
        """
        policy_version, key = str(version.meta.get("policy_version", version.id)), _key(version)
        async with self._locked():
            known = self._known.get(key)
            if known is not None:
                # What is under way under live weights that have moved on goes on under those that are served.
                if known.adapter is None and key != self._served and self._still(version):
                    await self._serve(known, key, policy_version)
                return policy_version, known.adapter
            live = self._live(version)
            # No copy: the learner steps when nothing is being handed over.
            network = live.decoder if live else self.decoder(version)
            folder = self.folder / f"policy-{policy_version}-{new_id()}"
            if self.by != "disk" and not (pretrained(network) and adapted(network)):
                known = _HandedOver(version, None, None)
                await self._through_memory(network, key, policy_version)
            else:
                written = await asyncio.to_thread(
                    saved, network, version.resource, folder, None, version.meta
                )
                await asyncio.to_thread(tag, folder, version)
                known = _HandedOver(version, folder, folder.name if written.kind == "adapter" else None)
                await self._serve(known, key, policy_version)
            self._known[key] = known
            self.handed_over += 1
            await self._forget()
            return policy_version, known.adapter

    async def _serve(self, known: _HandedOver, key: str, policy_version: str) -> None:
        """Have the server take up what was written, or what is sent again."""
        if known.folder is None:
            await self._through_memory(self.decoder(known.version), key, policy_version)
        elif known.adapter is not None:
            await self.server.load_adapter(known.adapter, known.folder, policy_version=policy_version)
        else:
            await self.server.load_weights(known.folder, policy_version=policy_version)
            self._served = key

    async def _through_memory(self, network: Network, key: str, policy_version: str) -> None:
        name, group = self._group or await self._met()
        tensors = network.weights()
        send = partial(_in_a_thread, lambda: group.send(tensors.values()))
        await self.server.take_weights(described(tensors), name, send, policy_version)
        self._served = key

    async def _met(self) -> tuple[str, WeightGroup]:
        """The process group of this trainer and the engine, formed at the first hand-over."""
        name, port = f"whet-{new_id()}", free_port()
        meeting: dict[str, Json] = {
            "master_address": "127.0.0.1",
            "master_port": port,
            "rank_offset": ENGINE_RANK,
            "world_size": ENGINE_RANK + 1,
            "group_name": name,
            "backend": self.by,
        }
        made: list[WeightGroup] = []

        def join() -> None:
            made.append(WeightGroup("127.0.0.1", port, rank=0, backend=self.by, name=name))

        ours = asyncio.ensure_future(_in_a_thread(join))
        try:
            await self.server.join_group(meeting)
            await ours
        except BaseException:
            ours.cancel()
            raise
        self._group = name, made[0]
        return self._group

    def _still(self, version: Version) -> bool:
        """True unless these are live weights that have moved on."""
        try:
            self._live(version)
        except NotFoundError:
            return False
        return True

    async def _forget(self) -> None:
        # Full weights of a learner that has moved on are served once and never again: their files can go at once.
        for key, known in self._known.items():
            if known.folder is not None and known.adapter is None and not self._still(known.version):
                await asyncio.to_thread(shutil.rmtree, known.folder, True)
                self._known[key] = replace(known, folder=None)
        while len(self._known) > KEPT + 1:
            oldest = next(iter(self._known))
            known = self._known.pop(oldest)
            if known.adapter is not None:
                await self.server.unload_adapter(known.adapter)
            if known.folder is not None:
                await asyncio.to_thread(shutil.rmtree, known.folder, True)

    def discard(self) -> None:
        """Remove what was handed over, when the server has ended or needs no further weights."""
        for known in self._known.values():
            if known.folder is not None:
                shutil.rmtree(known.folder, ignore_errors=True)
        self._known.clear()
        if self._group is not None:
            self._group[1].close()
            self._group = None

    @contextmanager
    def as_shared(self) -> Iterator[None]:
        """Be the process's own models while this is entered: policies and optimizers sample on the server.

        Weights compute here where those of the models before did (`use_compute`).
        """
        before = LocalModels._shared
        self.compute = LocalModels.shared().compute
        LocalModels._shared = self
        try:
            yield
        finally:
            LocalModels._shared = before

    def _locked(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        # An asyncio.Lock belongs to the loop that it was first waited for in; a run may use several in turn.
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _in_a_thread(work: Callable[[], None]) -> None:
    """Work that may block for minutes and that nothing can end: in a thread that a process does not wait for."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # raised where it is waited for
            failures.append(error)
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="whet-weights", daemon=True).start()
    await done.wait()
    if failures:
        raise failures[0]


def _key(version: Version) -> str:
    return f"{version.id}/{version.meta.get('policy_version', version.id)}"


class VersionSampler(RemoteSampler):
    """A RemoteSampler of one Version."""

    def __init__(self, models: RemoteModels, version: Version, *, greedy: bool, temperature: float) -> None:
        super().__init__(models.server, greedy=greedy, temperature=temperature)
        self._models, self._version = models, version

    def session(self, seed: int) -> FollowingSession:
        """A fresh session that draws from `seed` alone."""
        return FollowingSession(self, seed)

    async def ready(self) -> None:
        """Have the server serve this Version."""
        self.policy_version, self.model = await self._models.publish(self._version)


class FollowingSession(RemoteSession):
    """A session that waits for its Version to be served."""

    def __init__(self, sampler: VersionSampler, seed: int) -> None:
        super().__init__(sampler, seed)
        self._following = sampler
        self._ready = False

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """As `RemoteSession.generate`."""
        if not self._ready:
            await self._following.ready()
            self._ready = True
        return await super().generate(prompt_ids, stop_id=stop_id, max_new_tokens=max_new_tokens)
