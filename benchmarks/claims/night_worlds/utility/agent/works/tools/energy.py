"""Tariffs, meters, and what energy and water come to."""

from __future__ import annotations

import csv
from typing import Any

from works import upstream
from works.settings import ROOT, SETTINGS
from works.tools.registry import tool

KWH_PER_CUBIC_METRE = 10.3
FRANCS_PER_CUBIC_METRE = 2.15
FEED_IN = 9.6  # rappen a kWh
HEAT = {"base": 180.0, "rate": 0.128}  # francs a year, francs a kWh
with (ROOT / "data" / "tariffs.csv").open(encoding="utf-8", newline="") as _file:
    TARIFFS = {row["tariff"]: row for row in csv.DictReader(_file)}


@tool
def tariff_price(tariff: str) -> dict[str, Any]:
    """Rappen for a kWh in a tariff."""
    return {"tariff": tariff, "rappen": float(TARIFFS[tariff]["rappen"])}


@tool
def standing_charge(tariff: str) -> dict[str, Any]:
    """Francs a month in a tariff, before anything is used."""
    return {"tariff": tariff, "monthly": float(TARIFFS[tariff]["monthly"])}


@tool
def yearly_cost(kwh: int, rappen: float) -> dict[str, Any]:
    """Francs for the kWh of a year at a price in rappen."""
    return {"kwh": kwh, "francs": kwh * rappen / 100}


@tool
def gas_energy(volume: int) -> dict[str, Any]:
    """The energy of cubic metres of gas, in kWh."""
    return {"volume": volume, "kwh": round(volume * KWH_PER_CUBIC_METRE, 1)}


@tool
def water_price(litres: int) -> dict[str, Any]:
    """Francs for litres of water."""
    return {"litres": litres, "francs": litres / 1000 * FRANCS_PER_CUBIC_METRE}


@tool
def feed_in(kwh: int) -> dict[str, Any]:
    """Francs for solar power that is fed in."""
    return {"kwh": kwh, "francs": kwh * FEED_IN / 100}


@tool
def district_heat(kwh: int) -> dict[str, Any]:
    """Francs a year for district heating."""
    return {"kwh": kwh, "francs": HEAT["base"] + kwh * HEAT["rate"]}


@tool
async def meter_reading(meter: str) -> dict[str, Any]:
    """What a meter shows, in kWh."""
    now, _ = _readings(await upstream.fetch("meters", meter))
    return {"meter": meter, "kwh": now}


@tool
async def meter_usage(meter: str) -> dict[str, Any]:
    """What went through a meter since it was read last, in kWh."""
    now, before = _readings(await upstream.fetch("meters", meter))
    return {"meter": meter, "used": now - before}


def _readings(answer: dict[str, Any]) -> tuple[int, int]:
    """Now and before, in kWh, of either form of the service."""
    values = answer if "kwh" in answer else {name: wh // 1000 for name, wh in answer["register"].items()}
    return values["kwh"], values["before"]


@tool
async def charger(place: str) -> dict[str, Any]:
    """Whether a public charger has a free plug."""
    return {"place": place, "free": (await upstream.fetch("chargers", place))["plugs"] > 0}


@tool
def charging_time(energy: int, power: int) -> dict[str, Any]:
    """Minutes to load so many kWh at so many kW."""
    return {"minutes": round(energy / power * 60) + SETTINGS.rules.plug_minutes}
