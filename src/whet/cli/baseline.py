"""`whet baseline`: an agent as it is, run on tasks, before anything is changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from ..errors import InputError
from .improve import named_bundle, tasks_of
from .named import named, opened_rewards
from .report import plain, table
from .root import AtLeastOne, BaseUrl, JudgeModel, NewRecord, Print, command, counted, existing, print_json
from .table import AS_GUESSED, NamedColumns

if TYPE_CHECKING:
    from ..judge import Reward
    from ..record.store import Store
    from ..types import Bundle, Task, Trajectory

TASKS = 300
"""Tasks that are run if nothing else is said: a rate is then known to within six points."""


@command("baseline")
def baseline(
    agent: Annotated[
        str | None,
        Parameter(help="The agent's function, as module:function, imported from the current folder."),
    ] = None,
    /,
    *,
    store: NewRecord,
    env: str | None = None,
    data: Path | None = None,
    reward: tuple[str, ...] = (),
    tasks: AtLeastOne = TASKS,
    bundle: str = "live",
    policy: str | None = None,
    model: str = "",
    system: str = "",
    answer_tokens: AtLeastOne = 64,
    seed: int = 0,
    prices: Path | None = None,
    judge_model: JudgeModel = None,
    base_url: BaseUrl = None,
    columns: NamedColumns = AS_GUESSED,
    json: Print = False,
) -> int:
    """Measure an agent, or a policy in an environment, as it is: run it on tasks, and report.

    For example: whet baseline my_agent:answer --store runs.db --data tasks.jsonl --reward exact

    The runs are recorded, and nothing learns from them, so they may be of tasks that the gate decides by later.

    Parameters
    ----------
    env
        An environment instead of an agent: a module:function that makes a new one for each rollout, or one with
        Gymnasium's methods.
    data
        Tasks, one JSON object per line, or a table with an input and perhaps the right answer (CSV, TSV, JSON, JSON
        Lines, Parquet). If omitted, those of the recorded runs; of an environment with Gymnasium's
        methods, different seeds.
    reward
        Reward of a run: the name of a built-in one, such as exact, or module:function. May be repeated; the first one
        says which runs are successes, from a half on. If omitted, the outcome of the environment.
    tasks
        At most this many tasks, chosen by the seed.
    bundle
        What the agent runs with: live (what is live in the store), none (the agent without any release), or the id of
        a Bundle in the store.
    policy
        Policy in the environment: a module:function of (bundle, seed). Can be omitted with --model, or if the
        environment brings one.
    model
        Folder or name of a causal language model that plays the environment by chat.
    system
        System message for that model.
    answer_tokens
        Most tokens of one of its answers.
    seed
        Random seed.
    prices
        A file of prices in dollars per million tokens: {"MODEL": {"prompt": 0.15, "output": 0.6}}.
    """
    from ..models.prices import known_prices
    from ..prove.report import report

    if (agent is None) == (env is None):
        raise InputError(
            "give an agent (whet baseline module:function) or an environment (--env), one of the two"
        )
    if agent is not None and not reward:
        raise InputError(
            "nothing says how good a run is: give --reward NAME (exact, thumbs or module:function)"
        )
    known = known_prices(prices)
    of_file = columns.tasks(data)
    # Without tasks of its own an agent is asked what was recorded: a missing record is not to be made.
    if agent is not None and data is None:
        existing(store)
    from ..judge import name_of
    from ..record.store import Store

    async def measure(
        opened: Store, measured: _Measured, bundle: Bundle
    ) -> tuple[list[Trajectory], str | None]:
        async with AsyncExitStack() as stack:
            rewards = await opened_rewards(
                reward, opened, base_url, stack, judge_model=judge_model, steers=True
            )
            runs = await _run(opened, measured, rewards, bundle, tasks, seed)
            return runs, name_of(rewards[0]) if rewards else "success" if agent is None else None

    with Store(store) as opened:
        ran_with = named_bundle(opened, bundle)
        if agent is not None:
            measured = _agent(opened, agent, of_file)
        else:
            measured = _environment(env or "", policy, model, (system, answer_tokens), of_file, tasks, seed)
        runs, score = asyncio.run(measure(opened, measured, ran_with))
    found = report(runs, known, score=score)
    decides = found.scores.get(score or "")
    # A reward that breaks on every run has measured nothing.
    code = int(decides is not None and 0 < decides.n <= decides.broke)
    if json:
        print_json({"report": plain(found), "bundle": ran_with.id})
        return code
    print(f"{counted(len(runs), 'run')} of {agent or env}; recorded in {store}")
    for line in table([found]):
        print(line)
    return code


class _Measured(NamedTuple):
    """What is run."""

    name: str
    env: Any
    policy: Any
    tasks: Sequence[Task]
    rewards: Sequence[Reward]
    """Beside those that were asked for."""


def _agent(store: Store, agent: str, tasks: Sequence[Task] | None) -> _Measured:
    from ..judge.agent_env import calls
    from ..models.heads import load_head
    from ..record.tracing import register_loader

    register_loader("head", load_head)
    function = named(agent)
    if tasks is None:
        tasks = tasks_of(store, function)
    return _Measured(agent, calls(function, record=store), None, tasks, ())


def _environment(
    env: str,
    policy: str | None,
    model: str,
    chat: tuple[str, int],
    tasks: Sequence[Task] | None,
    most: int,
    seed: int,
) -> _Measured:
    from ..learn.training.sampling_world import SamplingPlan

    plan = SamplingPlan(
        env=named(env),
        tasks=tasks,
        episodes=most if tasks is None else None,
        policy=None if policy is None else named(policy),
        system=chat[0],
        answer_tokens=chat[1],
        gate=False,
    )
    world = plan.world(model, resource="policy", temperature=1.0, seed=seed)
    return _Measured(env, world.env, world.policy, world.tasks, world.rewards)


async def _run(
    store: Store,
    measured: _Measured,
    rewards: Sequence[Reward],
    bundle: Bundle,
    most: int,
    seed: int,
) -> list[Trajectory]:
    """Run and record at most `most` of the tasks.

    Raises:
        InputError: there is no task.
    """
    from ..learn.experiment import Experiment
    from ..types import Split

    if not measured.tasks:
        raise InputError(f"no task for {measured.name}: record runs of it, or give --data FILE")
    chosen = [*measured.tasks]
    if len(chosen) > most:
        chosen = random.Random(seed).sample(chosen, most)
    # All of one split: nothing is learned here, so there is nothing to divide.
    chosen = [replace(task, split=Split.TRAIN) for task in chosen]
    experiment = Experiment(
        env=measured.env,
        policy=measured.policy,
        tasks=chosen,
        rewards=[*measured.rewards, *rewards],
        store=store,
        seed=seed,
        name=f"baseline/{measured.name}",
    )
    groups = await experiment.collect(bundle, label="baseline")
    return [run for group in groups for run in group.trajectories]
