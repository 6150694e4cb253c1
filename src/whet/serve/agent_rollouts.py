"""An unchanged agent in training: it runs in processes of its own, and the weights that learn answer its model calls.

The agent is a function that calls a model through OpenAI's or Anthropic's client, by itself or by a framework.  Between
it and the engine stands a gateway: it puts the served weights and the temperature in the place of what the agent asks
for, and records token ids and log-probabilities, which become the steps of the rollout.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..judge.agent_env import Calls
from ..learn.evolution.agents.agent_line import AgentProcess, AgentProcessEnded, fault_of_raised
from ..learn.training.remote import RemoteModels
from ..record.policy import Action, Policy
from ..record.store import Store
from ..record.store.releases import GATEWAY_MODEL, GATEWAY_PARAMETERS
from ..record.tracing.dialects import survey
from ..record.tracing.live import reads
from ..types import Bundle, Failure, Fault, Json, Step, Version, new_id
from .app import Server, running
from .auth import Access, new_tokens
from .gateway import Gateway
from .gateway.launch import child_environment
from .gateway.upstream import Upstream

CALLS = "calls.db"
"""In the folder of the engine: the model calls of rollouts, until they are steps."""
SECONDS = 600.0
"""That one call of the agent may take."""
_POINTED = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_OURS = ("WHET_BUNDLE", "WHET_STORE", "WHET_URL", "WHET_TOKEN", "WHET_RUN", "WHET_DEPLOYED")
"""What would have the agent's own traces recorded as production."""


class AgentFailed(Exception):
    """The agent gave no answer; carries whose fault it was, and its steps until then."""

    def __init__(self, failure: Failure, steps: Sequence[Step]) -> None:
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure, self.steps = failure, steps


@dataclass(frozen=True, kw_only=True)
class AgentRolloutPlan:
    """The agent, and how it is run."""

    entry: str
    """`module:function`, imported from the current folder; it takes a task's instruction, and the entries of its
    initial_state as keywords."""
    resource: str = "policy"
    temperature: float = 1.0
    """At which its model calls are sampled, whatever it asks for."""
    processes: int = 8
    seconds: float = SECONDS
    together: bool = False
    """Rollouts under several versions of full weights run at once, because answers are tagged with theirs and nothing
    waits for a version to be served again: where rollouts run beside training."""


@contextmanager
def agent_rollouts(plan: AgentRolloutPlan, models: RemoteModels, folder: Path) -> Iterator[AgentRollouts]:
    """The agent as an environment that brings its policy, while this is entered.

    Args:
        models: the weights that learn, and the engine that serves them.
        folder: where the calls are kept until they are steps.
    """
    access, current = Access(new_tokens()), dict[str, str]()
    engine = models.server
    upstream = Upstream(url=engine.base_url, key=engine.api_key, tokens=True)
    path = folder / CALLS
    _remove(path)
    with Store(path) as calls:
        gateway = Gateway(
            calls, {"engine": upstream}, durable=True, run_under_way=lambda run: current.get(run, run)
        )
        with running(Server(access, [gateway])) as url:
            slots = [_Slot(plan, url, access, current) for _ in range(plan.processes)]
            yield AgentRollouts(plan, models, gateway, calls, slots)
    _remove(path)


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)


class _Slot:
    """A process of the agent, with an address of its own for its model calls."""

    def __init__(self, plan: AgentRolloutPlan, url: str, access: Access, current: dict[str, str]) -> None:
        self.name, self._current, self._seconds = f"agent-{new_id()}", current, plan.seconds
        token = access.runs.mint(self.name, math.inf)
        pointed = child_environment(os.environ, url=url, run=self.name, token=token, own_key=True)
        environment = {name: text for name, text in os.environ.items() if name not in _OURS}
        environment |= {name: pointed[name] for name in _POINTED}
        paths = [str(Path.cwd()), str(Path.cwd() / "src"), os.environ.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self.process = AgentProcess(plan.entry, Path.cwd(), environment)

    async def call(self, run: str, arguments: Sequence[Json], keywords: Mapping[str, Json]) -> Json:
        """The agent's answer; its model calls meanwhile are those of `run`.

        Raises:
            AgentFailed: it has none; without steps.
        """
        self._current[self.name] = run
        try:
            async with asyncio.timeout(self._seconds):
                message = await self.process.call(list(arguments), dict(keywords))
        except AgentProcessEnded as ended:
            raise AgentFailed(Failure(Fault.AGENT, "Ended", str(ended)), ()) from ended
        except (
            BaseException
        ) as error:  # it goes on with a call that nobody waits for: the next needs a fresh one
            self.process.end()
            if not isinstance(error, TimeoutError):
                raise
            late = Failure(Fault.AGENT, "Timeout", f"no answer within {self._seconds:g} s")
            raise AgentFailed(late, ()) from error
        finally:
            # What a thread that it left behind still asks belongs to no rollout.
            self._current[self.name] = f"{self.name}-idle"
        if "raised" in message:
            failure = Failure(fault_of_raised(message), message["raised"], message["message"])
            raise AgentFailed(failure, ())
        value: Json = message["value"]
        return value


class AgentRollouts(Calls):
    """Environment and policy of the agent; made by `agent_rollouts`."""

    def __init__(
        self,
        plan: AgentRolloutPlan,
        models: RemoteModels,
        gateway: Gateway,
        calls: Store,
        slots: Sequence[_Slot],
    ) -> None:
        super().__init__(lambda *_: None, record="live", divergence="exclude", live=())
        self.plan, self.models, self.gateway, self.store = plan, models, gateway, calls
        self._slots, self._free = slots, asyncio.Queue[_Slot]()
        for slot in slots:
            self._free.put_nowait(slot)
        self._serving = _OneVersion()

    def policy(self, bundle: Bundle, seed: int, /) -> Policy:
        return _AgentPolicy(self, bundle[self.plan.resource], seed)

    def end(self) -> None:
        """End the agent's processes, in the loop in which they were started."""
        for slot in self._slots:
            slot.process.end()

    async def run(
        self, version: Version, seed: int, arguments: Sequence[Json], keywords: Mapping[str, Json]
    ) -> Action:
        """One call of the agent under these weights, with the steps that it took.

        Raises:
            AgentFailed: it gave no answer.
            ModelError: the engine did not take the weights.
        """
        async with self._slot() as slot, self._served(version) as (policy_version, model):
            run = new_id()
            self.gateway.assignments.assign(run, self._bundle(model, seed))
            try:
                value = await slot.call(run, arguments, keywords)
            except AgentFailed as failed:
                steps = await self._steps(run, policy_version)
                raise AgentFailed(failed.failure, steps) from failed
            return Action(value, steps=await self._steps(run, policy_version))

    def _bundle(self, model: str, seed: int) -> Bundle:
        # Masked: some engines take a seed of 32 bits, signed.
        parameters: dict[str, Json] = {"temperature": self.plan.temperature, "seed": seed & 0x7FFFFFFF}
        contents: dict[str, Json] = {GATEWAY_MODEL: model, GATEWAY_PARAMETERS: parameters}
        return Bundle({name: Version(resource=name, content=content) for name, content in contents.items()})

    async def _steps(self, run: str, policy_version: str) -> list[Step]:
        spans = await asyncio.to_thread(self.store.spans.run, run)
        steps = [step for trajectory in survey(spans).trajectories for step in trajectory.steps]
        return [
            replace(step, tokens=replace(step.tokens, policy_version=policy_version))
            if step.tokens is not None and step.tokens.policy_version is None
            else step
            for step in steps
        ]

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[_Slot]:
        slot = await self._free.get()
        try:
            yield slot
        finally:
            self._free.put_nowait(slot)

    @asynccontextmanager
    async def _served(self, version: Version) -> AsyncIterator[tuple[str, str]]:
        """The engine serves these weights: their policy version, and the name to ask for."""
        if self.plan.together:
            policy_version, adapter = await self.models.publish(version)
            yield policy_version, adapter or self.models.server.model
            return
        async with self._serving.of(f"{version.id}/{version.meta.get('policy_version')}"):
            policy_version, adapter = await self.models.publish(version)
            yield policy_version, adapter or self.models.server.model


class _OneVersion:
    """Rollouts under one version at a time: full weights take the place of those before."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._key, self._under_way = "", 0

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._under_way or self._key == key)
            self._key, self._under_way = key, self._under_way + 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()


class _AgentPolicy:
    """The agent in one rollout: its one action is its answer."""

    def __init__(self, rollouts: AgentRollouts, version: Version, seed: int) -> None:
        self._rollouts, self._version, self._seed = rollouts, version, seed

    async def act(self, observation: Json, /) -> Action:
        if (
            noted := reads.get()
        ) is not None:  # the gate asks whether the two sides differed in what was read
            noted[self._version.resource] = self._version.id
        if not isinstance(observation, dict):
            return await self._rollouts.run(self._version, self._seed, [observation], {})
        keywords = dict(observation)
        positional = [keywords.pop("instruction")] if "instruction" in keywords else []
        return await self._rollouts.run(self._version, self._seed, positional, keywords)
