"""The agents of the main job as policies of one environment, all built from a Bundle.

The outside program `mail_agent` answers in one go, with its own parser, search order and
decision; the slot policy acts turn by turn.  Which of them takes a question is in the
Bundle too (`arm`, or a learned `router`), so that whatever is released is one Bundle.

    resource    kind      what it is
    parser      value     knobs of the agent's question parser
    rule        value     knobs of its search-and-accept rule
    decide      head      learned decision in place of the agent's own
    policy      weights   the slot policy
    decoding    value     its temperature
    arm         value     rule · head · policy · naive
    router      router    table: which arm takes which question
    parse       true clues  only to measure what parsing costs: the question maker's own
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...models.heads import RouterTable, load_head
from ...record import tracing
from ...record.policy import Action, Policy
from ...types import Bundle, Json, Step, Task
from ..email import Clues, MailWorld, extract
from ..email.slots import END, MAX_WORDS, TOKENS, InvalidSlot, SlotView

if TYPE_CHECKING:
    from ...learn.training.local import LocalModels

UNKNOWN = {"tool": "unknown"}


def agent_folder() -> Path:
    """Where the outside program lies: beside the package when installed, in examples/ in a checkout."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "examples", here.parents[4] / "examples"):
        if (folder / "mail_agent" / "agent.py").is_file():
            return folder
    raise InputError(f"the example agent was not found beside {here.parent}; reinstall whet")


def load_agent() -> ModuleType:
    """The outside program, wired up as its second entry file shows."""
    folder = str(agent_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    agent = importlib.import_module("mail_agent.agent")
    if not hasattr(agent, "__whet__"):
        tracing.attach(agent, "RULE", "PARSER", "decide", "parse")
        tracing.register_loader("head", load_head)
        agent.__whet__ = True  # type: ignore[attr-defined]
    return agent


IDS = {token: index for index, token in enumerate(TOKENS)}
LONGEST = 4 + MAX_WORDS
"""Tokens of the longest action: a search with every clue."""


class AgentPolicy:
    """The outside program as a policy: one action, with its tool calls as inner steps."""

    def __init__(self, agent: ModuleType, world: MailWorld, bundle: Bundle) -> None:
        self.agent, self.world, self.bundle = agent, world, bundle

    async def act(self, observation: Json, /) -> Action:
        inbox = self.world.episodes[observation["episode"]]
        with tracing.using(self.bundle), tracing.collecting() as collected:
            text = self.agent.answer(observation["question"], inbox)
        steps = [
            Step(
                kind="tool", name=call.tool, observation=call.arguments, action=call.found, id=f"call{number}"
            )
            for number, call in enumerate(inbox.log)
        ]
        text_answer, _, source = text.partition("\nSource: ")
        call = {"tool": "answer", "text": text_answer, "sources": [source] if source else []}
        return Action(call, steps=[*steps, *(step for step in collected if isinstance(step, Step))])


class NaivePolicy:
    """BM25 and the first result, unknown when it holds no such value: the rule that anyone would write first."""

    def __init__(self, agent: ModuleType, world: MailWorld) -> None:
        self.agent, self.world = agent, world

    async def act(self, observation: Json, /) -> Action:
        inbox = self.world.episodes[observation["episode"]]
        clues = parsed(self.agent, observation["question"], Bundle())
        hits = inbox.search(clues["words"], match="any", sender=clues["sender"])
        if not hits:
            return Action(UNKNOWN)
        mail = inbox.read(hits[0].id)
        values = extract(clues["kind"], mail)
        return Action({"tool": "answer", "text": values[0], "sources": [mail.id]} if values else UNKNOWN)


def parsed(agent: ModuleType, question: str, bundle: Bundle) -> Mapping[str, Json]:
    """The question's clues, as the agent's parser reads them under `bundle`."""
    with tracing.using(bundle):
        clues: Mapping[str, Json] = agent.parse(question, agent.PARSER)
        return clues


class SlotPolicy:
    """The local model, acting by slot."""

    def __init__(
        self, agent: ModuleType, world: MailWorld, bundle: Bundle, models: LocalModels, seed: int
    ) -> None:
        self.agent, self.world, self.bundle = agent, world, bundle
        temperature = bundle["decoding"].content["temperature"] if "decoding" in bundle else 1.0
        # Greedy is a mode of its own: logits are divided by the temperature, which cannot be 0.
        sampler = models.sampler(bundle["policy"], greedy=temperature == 0, temperature=temperature or 1.0)
        self.session = sampler.session(seed)
        self.view: SlotView | None = None

    async def act(self, observation: Json, /) -> Action:
        if self.view is None:
            inbox = self.world.episodes[observation["episode"]]
            self.view = SlotView(parsed(self.agent, observation["question"], self.bundle), inbox)
            tokens = self.view.opening()
        else:
            tokens = observed(self.view, observation)
        sampled = await self.session.generate(
            [IDS[token] for token in tokens], stop_id=IDS[END], max_new_tokens=LONGEST
        )
        try:
            call = self.view.decode([TOKENS[index] for index in sampled.output_ids])
        except InvalidSlot as error:
            call = {"tool": "invalid", "why": str(error)}
        if call["tool"] == "answer":
            mail = self.view.inbox.index.read(call["id"])
            values = extract(self.view.kind, mail)
            call = {"tool": "answer", "text": values[0], "sources": [mail.id]} if values else UNKNOWN
        return Action(call, tokens=sampled.tokens)


def observed(view: SlotView, observation: Mapping[str, Any]) -> list[str]:
    """Tokens of the environment's answer to the last tool call."""
    if "results" in observation:
        return view.observe_search([hit["id"] for hit in observation["results"]])
    return view.observe_read(observation["id"]) if "id" in observation else ["error"]


class RoutedPolicy:
    """Lets a learned table choose the arm when it has seen the question."""

    def __init__(self, agents: MailAgents, bundle: Bundle, seed: int) -> None:
        self.agents, self.bundle, self.seed = agents, bundle, seed
        self.chosen: Policy | None = None

    async def act(self, observation: Json, /) -> Action:
        if self.chosen is None:
            features = question_features(parsed(self.agents.agent, observation["question"], self.bundle))
            arm = RouterTable.of(self.bundle["router"]).choose(features)
            self.chosen = self.agents.arm(arm, self.bundle, self.seed)
        return await self.chosen.act(observation)


def question_features(clues: Mapping[str, Json]) -> dict[str, str]:
    """The features for a router: the shape of a question, none of its words."""
    count = len(clues["words"])
    return {
        "kind": clues["kind"],
        "words": str(count) if count < 3 else "3-4" if count < 5 else "5+",
        "sender": "given" if clues["sender"] else "none",
        "month": "given" if clues["month"] else "none",
    }


class MailAgents:
    """The PolicyFactory of the main job.

    Args:
        models: samplers of local weights; None where torch is not installed.
    """

    def __init__(self, world: MailWorld, models: LocalModels | None = None) -> None:
        self.world, self.models, self.agent = world, models, load_agent()
        self.true_clues: dict[str, Clues] = {}
        """Question → what its maker meant, for measuring what parsing costs."""
        tracing.register_loader("true clues", lambda version, original: self._meant)

    def _meant(self, question: str, options: Mapping[str, Json]) -> dict[str, Json]:
        clues = self.true_clues[question]
        return {
            "kind": clues.kind,
            "words": [word.text for word in clues.words],
            "sender": clues.sender.lstrip("@") if clues.sender else None,
            "month": clues.month,
            "title": clues.subject,
        }

    def __call__(self, bundle: Bundle, seed: int, /) -> Policy:
        if "router" in bundle:
            return RoutedPolicy(self, bundle, seed)
        default = "head" if "decide" in bundle else "rule"
        return self.arm(bundle["arm"].content if "arm" in bundle else default, bundle, seed)

    def arm(self, name: str, bundle: Bundle, seed: int) -> Policy:
        """One of the agents, by name."""
        if name == "naive":
            return NaivePolicy(self.agent, self.world)
        if name == "policy":
            if self.models is None:
                raise InputError("this Bundle needs a local model: pip install 'whet[train]'")
            return SlotPolicy(self.agent, self.world, bundle, self.models, seed)
        # Without its head, the agent decides by its own rule.
        without_head = (
            bundle
            if name == "head"
            else Bundle([version for version in bundle.values() if version.resource != "decide"])
        )
        return AgentPolicy(self.agent, self.world, without_head)

    def features(self, task: Task, bundle: Bundle) -> dict[str, str]:
        """`question_features` of a task, by the bundle's parser."""
        return question_features(parsed(self.agent, task.instruction, bundle))
