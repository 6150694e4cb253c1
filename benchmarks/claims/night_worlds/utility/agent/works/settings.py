"""Typed settings, from settings.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class ModelSettings:
    name: str
    temperature: float
    reply_words: int


@dataclass(frozen=True)
class DeskSettings:
    rounds: int
    notes_kept: int


@dataclass(frozen=True)
class Rules:
    notice_days: int
    payment_days: int
    plug_minutes: int
    smallest_coin: float


@dataclass(frozen=True)
class Settings:
    model: ModelSettings
    desk: DeskSettings
    rules: Rules

    @classmethod
    def load(cls, path: Path) -> Settings:
        with path.open("rb") as file:
            read = tomllib.load(file)
        return cls(ModelSettings(**read["model"]), DeskSettings(**read["desk"]), Rules(**read["rules"]))


SETTINGS = Settings.load(ROOT / "settings.toml")
