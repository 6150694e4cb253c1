"""The engine that samples the rollouts of `whet train METHOD`, where that is not this process, and what acts by it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InputError
from .named import AskedJudge, named
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
    if not common.elsewhere:
        yield None
        return
    from ..learn.training import processes
    from ..learn.training.engines import EnginePlan, engine
    from ..learn.training.remote import RemoteModels

    if processes.place().size > 1:
        raise InputError(
            "--rollouts, --asynchronous and --agent are for one process: each of several would hand over weights of "
            "its own"
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
        models = RemoteModels(server, handed, by=common.hand_over)
        try:
            with models.as_shared():
                yield models
        finally:
            models.discard()


@contextmanager
def acting(common: TrainArguments, options: Any, models: RemoteModels | None) -> Iterator[Any]:
    """What the rollouts are of, while this is entered: the environment, or the agent in processes of its own."""
    if common.agent is None:
        yield None if common.env is None else named(common.env)
        return
    from ..serve.agent_rollouts import AgentRolloutPlan, agent_rollouts

    assert models is not None
    plan = AgentRolloutPlan(
        entry=common.agent,
        resource=getattr(options, "resource", "policy"),
        temperature=getattr(options, "temperature", 1.0),
        processes=common.agent_processes,
        together=common.asynchronous,
    )
    with agent_rollouts(plan, models, models.folder) as rollouts:
        yield rollouts


async def closing(work: Awaitable[T], models: RemoteModels | None, env: Any, reward: Any) -> T:
    """The work's result, and what it asked (engine, agents, judges) closed in the loop that it belongs to."""
    try:
        return await work
    finally:
        if models is not None:
            await models.server.aclose()
        if (end := getattr(env, "end", None)) is not None:
            end()
        if isinstance(reward, AskedJudge):
            await reward.aclose()


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
