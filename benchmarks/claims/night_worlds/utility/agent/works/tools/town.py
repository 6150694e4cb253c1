"""Waste, streets, counters and people of the works."""

from __future__ import annotations

import csv
import json
from typing import Any

from works import upstream
from works.settings import ROOT
from works.tools.registry import tool


def _table(name: str) -> dict[str, dict[str, str]]:
    with (ROOT / "data" / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {next(iter(row.values())): row for row in rows}


STREETS = _table("streets.csv")
BINS = _table("bins.csv")
WATER = _table("water.csv")
OFFICE = json.loads((ROOT / "data" / "office.json").read_text(encoding="utf-8"))


@tool
async def next_collection(waste: str, quarter: str) -> dict[str, Any]:
    """The weekday on which a quarter's waste of a kind is collected."""
    return {"waste": waste, "weekday": (await upstream.fetch("calendar", f"{quarter}/{waste}"))["weekday"]}


@tool
async def interruption(quarter: str) -> dict[str, Any]:
    """When the power of a quarter will be off."""
    return {"quarter": quarter, **await upstream.fetch("interruptions", quarter)}


@tool
async def opening_hours(counter: str, weekday: str) -> dict[str, Any]:
    """When a counter opens on a weekday."""
    return {"counter": counter, **await upstream.fetch("counters", f"{counter}/{weekday}")}


@tool
async def instructions(task: str) -> dict[str, Any]:
    """How something is done."""
    return {"task": task, "steps": (await upstream.fetch("guides", task))["steps"]}


@tool
def permit(work: str) -> dict[str, Any]:
    """Whether a work needs a permit."""
    return {"work": work, "permit": OFFICE["permits"][work]}


@tool
def hardness(quarter: str) -> dict[str, Any]:
    """The hardness of a quarter's water."""
    return {"quarter": quarter, "hardness": int(WATER[quarter]["hardness"])}


@tool
async def lamp(number: str) -> dict[str, Any]:
    """Whether a street lamp has been repaired."""
    answer = await upstream.fetch("lamps", number)
    return {
        "lamp": number,
        "repaired": answer["repaired"] if "repaired" in answer else answer["state"] == "R",
    }


@tool
async def first_visit(trade: str) -> dict[str, Any]:
    """The first free visit of a technician."""
    answer = await upstream.fetch("visits", trade)
    return {"trade": trade, "first": answer["first"] if "first" in answer else answer["slots"][0]["on"]}


@tool
def gas_network(street: str) -> dict[str, Any]:
    """Whether there is gas in a street."""
    return {"street": street, "gas": STREETS[street]["gas"] == "yes"}


@tool
def bin_fee(size: int) -> dict[str, Any]:
    """Francs a year for a bin of so many litres."""
    return {"litres": size, "fee": float(BINS[str(size)]["fee"])}


@tool
def boiler_filter(boiler: str) -> dict[str, Any]:
    """The filter that fits a boiler."""
    return {"boiler": boiler, "filter": OFFICE["filters"][boiler]}


@tool
def subsidy(device: str) -> dict[str, Any]:
    """What the works pay towards a device, in francs."""
    return {"device": device, "subsidy": OFFICE["subsidies"][device]}


@tool
def contact(trade: str) -> dict[str, Any]:
    """Who looks after a trade."""
    return {"trade": trade, "name": OFFICE["contacts"][trade]}


@tool
def sack_colour(waste: str) -> dict[str, Any]:
    """The colour of the sack for a kind of waste."""
    return {"waste": waste, "colour": OFFICE["colours"][waste]}


@tool
async def counter_address(counter: str) -> dict[str, Any]:
    """Where a counter is."""
    return {"counter": counter, "street": (await upstream.fetch("addresses", counter))["street"]}
