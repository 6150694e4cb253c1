"""The proposers beside the edits: the models of a config, asked in one of three ways, and a command.

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

from ....errors import InputError
from ....models import Ensemble, OpenAIModel, Price, RecordedModel
from ....models.base import Model
from ....models.budget import Meter
from ....models.prices import known_prices, price_for
from ....models.trial import trial_address
from ....types import Json
from ...loop import Context
from .commands import Command, CommandModel
from .openevolve import Config, ModelConfig
from .proposers import SYSTEM, Gepa, Gradient, Proposer, Proposes


@dataclass
class Proposing:
    """Models and commands that are opened for one step of an optimizer.

    Args:
        models: asked instead of those of the config.
        offline: ask no model, whatever is configured.
        ask: how they are asked: for `changes` as the config says, by `apo`, or by `gepa` (`proposers.py`).
        price: of the models, where dollars are limited or estimated; if None, the one that `models.prices` knows.
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
    """Of those that were opened, as a report has them: a model by its own name."""
    _meter: Meter = field(default_factory=Meter)
    _words: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.ask not in ("changes", "apo", "gepa"):
            raise InputError(f"--ask {self.ask!r}: models can be asked for changes, by apo or by gepa")
        self._words = words_of(self.command)
        if self.price is None:
            # Of several models only a price that they share tells what all calls together cost.
            listed = {price_for(model.name, known_prices()) for model in self.config.models}
            self.price = listed.pop() if len(listed) == 1 else None

    @property
    def spent(self) -> dict[str, Json]:
        """Calls, tokens and dollars of the models in this run; dollars are None without a price."""
        calls, tokens, dollars = (self._meter.spent[name] for name in ("calls", "tokens", "dollars"))
        priced = self.price is not None or not calls
        return {"calls": int(calls), "tokens": int(tokens), "dollars": round(dollars, 6) if priced else None}

    async def open(self, context: Context, stack: AsyncExitStack) -> list[Proposes]:
        """One proposer per model, or one for all where the config weights them, and the command.

        Raises:
            InputError: dollars are limited and there is no price.
            MissingExtra: gepa is not installed.
        """
        self._meter = context.meter
        proposers = [] if self.offline else await self._models(context, stack)
        if self._words:
            agent = CommandModel(self._words, seconds=self.command_seconds)
            proposers.append(Command(RecordedModel(agent, context.log)))
        self.names = [arm.model.name if isinstance(arm, Proposer) else arm.name for arm in proposers]
        return proposers

    async def _models(self, context: Context, stack: AsyncExitStack) -> list[Proposes]:
        config = self.config
        pairs: list[tuple[Model, ModelConfig]] = []
        if self.models is not None:
            pairs = [(model, ModelConfig(name=model.name)) for model in self.models]
        else:
            if config.models and self.price is None and context.meter.left("dollars") is not None:
                raise InputError(
                    "--dollars limits what models cost, and no price is known: give --price with the dollars per "
                    "million tokens of prompt and of output, or name a file of prices in WHET_PRICES"
                )
            for model_config in config.models:
                endpoint = self._endpoint(model_config, context.meter)
                pairs.append((await stack.enter_async_context(endpoint), model_config))
        if len({model_config.weight for _, model_config in pairs}) > 1:
            ensemble = Ensemble(
                [(model, model_config.weight) for model, model_config in pairs], seed=config.seed
            )
            # One arm has one set of settings: those of the first model are sent to all of them.
            pairs = [(ensemble, pairs[0][1])]
        recorded = [
            (RecordedModel(model, context.log), model_config.settings) for model, model_config in pairs
        ]
        if self.ask != "changes":
            kind = Gradient if self.ask == "apo" else Gepa
            return [kind(model, feedback=config.feedback, settings=settings) for model, settings in recorded]
        return [
            Proposer(
                model,
                system=config.system or SYSTEM,
                diff=config.diff,
                feedback=config.feedback,
                feedback_characters=config.feedback_characters,
                settings=settings,
            )
            for model, settings in recorded
        ]

    def _endpoint(self, config: ModelConfig, meter: Meter) -> OpenAIModel:
        key = config.api_key or os.environ.get("OPENAI_API_KEY")
        prices = {config.name: self.price} if self.price is not None else None
        base = trial_address(config.api_base)
        return OpenAIModel(base, config.name, api_key=key, retry=config.retry, meter=meter, prices=prices)


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
