"""The engine that samples the rollouts of `whet train METHOD --env`, where that is not this process."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InputError
from .train_input import TrainArguments

if TYPE_CHECKING:
    from ..learn.pipeline import PipelineOptions
    from ..learn.training.remote import RemoteModels
    from ..types import Bundle

T = TypeVar("T")
AHEAD = 2
"""Rounds that rollouts may be ahead of, where nothing says how many."""
AT_ONCE = 64
"""Rollouts under way at once, as in an Experiment."""


@contextmanager
def sampling_elsewhere(common: TrainArguments, options: Any, folder: Path) -> Iterator[RemoteModels | None]:
    """Policies and optimizers of this process sample from the engine while this is entered; None without one.

    Raises:
        InputError: there are several processes, or no such engine.
        MissingExtra: it is not installed.
        ModelError: it did not start.
    """
    if common.rollouts is None and not common.asynchronous:
        yield None
        return
    from ..learn.training import processes
    from ..learn.training.engines import EnginePlan, engine
    from ..learn.training.remote import RemoteModels

    if processes.place().size > 1:
        raise InputError(
            "--rollouts and --asynchronous are for one process: each of several would hand over weights of its own"
        )
    if common.four_bit and common.rollouts in (None, "policy"):
        raise InputError(
            "the policy server holds frozen weights whole, and --four-bit trains beside rounded ones, which would not "
            "have said the same: sample in this process, or leave --four-bit out"
        )
    plan = EnginePlan(
        where=common.rollouts or "policy",
        model=common.model,
        resource=getattr(options, "resource", "policy"),
        lora_rank=common.lora_rank,
        options=common.rollouts_options,
        device=common.device,
        dtype=common.dtype,
    )
    handed = folder / "engine"
    with engine(plan, handed) as server:
        models = RemoteModels(server, handed)
        with models.as_shared():
            yield models


async def closing(models: RemoteModels | None, work: Awaitable[T]) -> T:
    """The work's result, and the connections to the engine closed."""
    try:
        return await work
    finally:
        if models is not None:
            await models.server.aclose()


def beside(models: RemoteModels, options: Any) -> PipelineOptions:
    """Rollouts beside training, which the engine samples."""
    from ..learn.pipeline import PipelineOptions

    resource = getattr(options, "resource", "policy")
    limit = getattr(options, "max_staleness", None)

    async def publish(bundle: Bundle) -> None:
        await models.publish(bundle[resource])

    return PipelineOptions(
        workers=AT_ONCE,
        max_staleness=AHEAD if limit is None else limit,
        seed=getattr(options, "seed", 0),
        publish=publish,
    )


def one_limit(options: Any) -> Any:
    """The method's options without a limit of its own: the pipeline has it, in rounds and not in updates."""
    return replace(options, max_staleness=None) if hasattr(options, "max_staleness") else options
