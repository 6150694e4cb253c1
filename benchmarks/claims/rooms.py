"""The text world's agents: a rule with three knobs that reads the sentences, and a small policy that learns them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from whet.learn.training.vocabulary import Vocabulary
from whet.record.policy import Action, Policy
from whet.types import Bundle, Json
from whet.worlds.text import ACTIONS, WORDS, spoken

VOCABULARY = Vocabulary(WORDS)
RULE: dict[str, Json] = {"turn": "left", "walk": 6, "careless": 0.1}
"""As it came: out of sight it walks to the wall before it turns, and one step in ten is by chance.

Not more of them: cloned from what succeeded, chance is half of what is done out of sight, and then any
change of the weights at all, by worthless rewards too, may turn the likeliest step into a better one.
"""
KNOBS: dict[str, tuple[Json, ...]] = {
    "turn": ("left", "right"),
    "walk": (0, 1, 2, 3, 6),
    "careless": (0.0, 0.1),
}
_SEEN = re.compile(
    r"You see a (?P<what>\w+ \w+) ?(?:(?P<ahead>\d) steps? forward)?(?: ?(?:and )?(?P<aside>\d) steps? (?P<side>\w+))?$"
)
_WALL = re.compile(r"You see a wall (\d) steps? forward")


class RulePolicy:
    """Walks to what the mission names; a simple program that somebody would write."""

    def __init__(self, rule: Mapping[str, Any], seed: int) -> None:
        self.rule, self._walked, self._random = rule, 0, random.Random(seed)

    async def act(self, observation: Json, /) -> Action:
        if self._random.random() < self.rule["careless"]:
            return Action(self._random.choice(ACTIONS[:3]))
        wanted = " ".join(observation["mission"].split()[-2:])
        found = [_SEEN.match(line) for line in observation["seen"]]
        goal = next((one for one in found if one and one["what"] == wanted), None)
        if goal is None:
            return Action(self._looking(observation["seen"]))
        return Action("go forward" if goal["ahead"] else f"turn {goal['side']}")

    def _looking(self, seen: list[str]) -> str:
        wall = next((int(one[1]) for line in seen if (one := _WALL.match(line))), 9)
        if wall > 1 and self._walked < self.rule["walk"]:
            self._walked += 1
            return "go forward"
        self._walked = 0
        return f"turn {self.rule['turn']}"


class WordPolicy:
    """A small language model that is told what is to be seen, and says what it does."""

    def __init__(self, models: Any, bundle: Bundle, seed: int) -> None:
        temperature = bundle["decoding"].content["temperature"] if "decoding" in bundle else 1.0
        sampler = models.sampler(bundle["policy"], greedy=temperature == 0, temperature=temperature or 1.0)
        self._session = sampler.session(seed)
        self._begun = False

    async def act(self, observation: Json, /) -> Action:
        words = VOCABULARY
        ids = [*words.encode(spoken(observation, mission=not self._begun)), words.act]
        sampled = await self._session.generate(
            ids if self._begun else [words.bos, *ids], stop_id=words.eos, max_new_tokens=3
        )
        self._begun = True
        said = words.decode(one for one in sampled.output_ids if one != words.eos)
        return Action(" ".join(said), sampled.tokens, sampled.usage)


class Rooms:
    """The PolicyFactory of the text world: the policy where a Bundle has one, else the rule.

    Args:
        models: samplers of local weights.
    """

    def __init__(self, models: Any) -> None:
        self.models = models

    def __call__(self, bundle: Bundle, seed: int, /) -> Policy:
        if "policy" in bundle:
            return WordPolicy(self.models, bundle, seed)
        return RulePolicy(bundle["rule"].content if "rule" in bundle else RULE, seed)
