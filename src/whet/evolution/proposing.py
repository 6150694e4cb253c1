"""Who proposes beside the edits: the models of a config, asked in one of three ways, and a command.

Every answer goes into the log of the search before it is used, so none is paid for twice.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..budget import Meter
from ..errors import InputError
from ..loop import Context
from ..models import Ensemble, OpenAIModel, Price, Recorded
from ..models.base import Model
from ..types import Json
from .commands import Agent, Command
from .openevolve import Config, ModelConfig
from .proposers import SYSTEM, Proposer, Proposes
from .reflection import Gepa, Gradient


@dataclass
class Proposing:
    """Models and commands that are opened for one step of an optimizer.

    Args:
        models: asked instead of those of the config.
        offline: ask no model, whatever is configured.
        ask: how they are asked: for `changes` as the config says, by `apo`, or by `gepa` (`reflection.py`).
        price: of the models, where dollars are limited or estimated.
        command: proposes, too (`commands.py`); split as a shell would, run without one.

    Raises:
        InputError: another way of asking, or a command that cannot be run.
    """

    config: Config = field(default_factory=Config)
    models: Sequence[Model] | None = None
    offline: bool = False
    ask: str = "changes"
    price: Price | None = None
    command: str = ""
    command_seconds: float = 600.0
    names: Sequence[str] = ()
    """What a report calls those that were opened: a model by its own name."""
    _meter: Meter = field(default_factory=Meter)
    _words: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.ask not in ("changes", "apo", "gepa"):
            raise InputError(f"--ask {self.ask!r}: models can be asked for changes, by apo or by gepa")
        self._words = words_of(self.command)

    @property
    def spent(self) -> dict[str, Json]:
        """What the models took in this run: calls, tokens, and dollars, None where no price is known."""
        calls, tokens, dollars = (self._meter.spent[name] for name in ("calls", "tokens", "dollars"))
        known = self.price is not None or not calls
        return {"calls": int(calls), "tokens": int(tokens), "dollars": round(dollars, 6) if known else None}

    async def open(self, context: Context, stack: AsyncExitStack) -> list[Proposes]:
        """One proposer per model, or one for all where the config weights them, and the command.

        Raises:
            InputError: dollars are limited and there is no price.
            MissingExtra: gepa is not installed.
        """
        self._meter = context.meter
        found = [] if self.offline else await self._asked(context, stack)
        if self._words:
            agent = Agent(self._words, seconds=self.command_seconds)
            found.append(Command(Recorded(agent, context.log)))
        self.names = [each.model.name if isinstance(each, Proposer) else each.name for each in found]
        return found

    async def _asked(self, context: Context, stack: AsyncExitStack) -> list[Proposes]:
        pairs: list[tuple[Model, ModelConfig]] = []
        if self.models is not None:
            pairs = [(model, ModelConfig(name=model.name)) for model in self.models]
        else:
            if self.config.models and self.price is None and context.meter.left("dollars") is not None:
                raise InputError(
                    "--dollars limits what models cost, and no price is known: give --price with the dollars per "
                    "million tokens of prompt and of output"
                )
            for each in self.config.models:
                pairs.append((await stack.enter_async_context(self._endpoint(each, context.meter)), each))
        weights = {each.weight for _, each in pairs}
        if len(weights) > 1:
            ensemble = Ensemble([(model, each.weight) for model, each in pairs], seed=self.config.seed)
            pairs = [(ensemble, pairs[0][1])]
        kept = [(Recorded(model, context.log), each) for model, each in pairs]
        config = self.config
        if self.ask != "changes":
            made_by = Gradient if self.ask == "apo" else Gepa
            return [made_by(model, feedback=config.feedback, settings=each.settings) for model, each in kept]
        return [
            Proposer(
                model,
                system=config.system or SYSTEM,
                diff=config.diff,
                feedback=config.feedback,
                feedback_characters=config.feedback_characters,
                settings=each.settings,
            )
            for model, each in kept
        ]

    def _endpoint(self, given: ModelConfig, meter: Meter) -> OpenAIModel:
        key = given.api_key or os.environ.get("OPENAI_API_KEY")
        prices = {given.name: self.price} if self.price is not None else None
        return OpenAIModel(
            given.api_base, given.name, api_key=key, retry=given.retry, meter=meter, prices=prices
        )


def words_of(command: str) -> list[str]:
    """A command's words; it runs in a folder of its own, so those that name a file from here are made absolute.

    Raises:
        InputError: no command, no such program, or quotes that are not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--command {command!r}: {error}") from error
    # Not resolved: the link of a virtual environment to its interpreter is what makes it one.
    words = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]
    if words and shutil.which(words[0]) is None:
        raise InputError(f"--command {command!r}: there is no program {words[0]} that can be run")
    return words
