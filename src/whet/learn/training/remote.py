"""Policies that are sampled from a server while they are trained here.

`RemoteModels` stands where `LocalModels` stands: an optimizer is given it and changes nothing, a
policy asks it for a sampler and gets one behind a URL.  Weights are handed over before the first
call after they changed, through a folder that both see, and answers are tagged with the policy
version they came from.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import NotFoundError
from ...models.engine import EngineServer, RemoteSampler, RemoteSession
from ...models.sampling import Sampled
from ...types import Version, new_id
from .local import LocalModels
from .network import saved
from .serving.loading import tag

KEPT = 2
"""Versions before the current one whose files and adapters stay, for what is still under way."""


@dataclass(frozen=True, slots=True)
class _HandedOver:
    folder: Path
    adapter: str | None
    """Name of LoRA factors; None for full weights, which take the place of those before."""


class RemoteModels(LocalModels):
    """Weights in this process, sampled on a server.

    Args:
        server: where the same model is served already.
        folder: where weights are handed over; the server must be able, and allowed, to read it.
    """

    elsewhere = True

    def __init__(self, server: EngineServer, folder: Path) -> None:
        super().__init__()
        self.server = server
        self.folder = Path(folder)
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
                    await self.server.load_weights(known.folder, policy_version=policy_version)
                    self._served = key
                return policy_version, known.adapter
            folder = self.folder / f"policy-{policy_version}-{new_id()}"
            live = self._live(version)
            # No copy: the learner steps when nothing is being handed over.
            network = live.decoder if live else self.decoder(version)
            written = await asyncio.to_thread(saved, network, version.resource, folder, None, version.meta)
            await asyncio.to_thread(tag, folder, version)
            name = folder.name if written.kind == "adapter" else None
            if name is not None:
                await self.server.load_adapter(name, folder, policy_version=policy_version)
            else:
                await self.server.load_weights(folder, policy_version=policy_version)
                self._served = key
            self._known[key] = _HandedOver(folder, name)
            self.handed_over += 1
            await self._forget()
            return policy_version, name

    def _still(self, version: Version) -> bool:
        """True unless these are live weights that have moved on."""
        try:
            self._live(version)
        except NotFoundError:
            return False
        return True

    async def _forget(self) -> None:
        while len(self._known) > KEPT + 1:
            oldest = next(iter(self._known))
            known = self._known.pop(oldest)
            if known.adapter is not None:
                await self.server.unload_adapter(known.adapter)
            await asyncio.to_thread(shutil.rmtree, known.folder, True)

    def discard(self) -> None:
        """Remove what was handed over, when the server has ended or needs no further weights."""
        for known in self._known.values():
            shutil.rmtree(known.folder, ignore_errors=True)
        self._known.clear()

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
