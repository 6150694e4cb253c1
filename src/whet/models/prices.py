"""What models cost: a table of public list prices with its date and source, under a person's own table.

It is never fetched.  A model that is in no table has no price, and what it costs is unknown and not 0.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import InputError, NotFoundError
from ..escapes import read_json
from .spending import Price

BUNDLED = Path(__file__).with_name("prices.json")
"""Made by `integrations/prices.py`."""
VARIABLE = "WHET_PRICES"
"""Names a file of a person's own prices, which go before the bundled ones."""
_DATED = re.compile(r"[@:].+|-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|\d{3}|latest)")
"""How the name of a model goes on in that of one of its versions; `-mini` or `-audio` is another model."""
_CUT = re.compile(r"[@:-]")
"""Where that may begin."""
_PROVIDERS = frozenset(
    [
        "openai",
        "anthropic",
        "google",
        "gemini",
        "models",
        "mistral",
        "mistralai",
        "deepseek",
        "xai",
        "x-ai",
        "vertex_ai",
        "azure",
    ]
)


class PriceTable(msgspec.Struct, frozen=True):
    """The bundled table."""

    stated: str
    """The day up to which the prices were published."""
    source: str
    prices: dict[str, Price]


@functools.cache
def bundled() -> PriceTable:
    """Public list prices, as this version of whet knows them."""
    return msgspec.json.decode(BUNDLED.read_bytes(), type=PriceTable)


def known_prices(path: str | os.PathLike[str] | None = None) -> Mapping[str, Price]:
    """Model → its price: of a file, else of the file that $WHET_PRICES names, else of the bundled table.

    Raises:
        NotFoundError, InputError: one of the files is missing, or no price table.
    """
    named = os.environ.get(VARIABLE)
    if not named and path is None:
        return bundled().prices  # not a copy: it is asked for with every run that is scored
    if named and path is None:
        return _beside_own(named, _changed(named))
    own = read_prices(named) if named else {}
    return {**bundled().prices, **own, **({} if path is None else read_prices(path))}


def _changed(path: str) -> tuple[int, int]:
    try:
        about = os.stat(path)
    except OSError:
        return 0, 0  # reading it says why
    return about.st_mtime_ns, about.st_size


@functools.lru_cache(maxsize=4)
def _beside_own(path: str, _: tuple[int, int]) -> Mapping[str, Price]:
    return {**bundled().prices, **read_prices(path)}


def price_for(model: str, prices: Mapping[str, Price]) -> Price | None:
    """A model's price: by its name, by that without the provider's, or by the name of which it is a dated version."""
    provider, slash, name = model.partition("/")
    for candidate in (model, name) if slash and provider in _PROVIDERS else (model,):
        if candidate in prices:
            return prices[candidate]
        for cut in reversed([match.start() for match in _CUT.finditer(candidate)]):  # the longest name first
            if candidate[:cut] in prices and _DATED.fullmatch(candidate, cut):
                return prices[candidate[:cut]]
    return None


def read_prices(path: str | os.PathLike[str]) -> dict[str, Price]:
    """Read a price table: `{"MODEL": {"prompt": DOLLARS, "output": DOLLARS}}`, by the million tokens.

    Raises:
        NotFoundError: there is no such file.
        InputError: it holds something else, or a price below 0.
    """
    file = Path(path)
    try:
        table = read_json(msgspec.json.Decoder(dict[str, Price]).decode, file.read_bytes())
    except FileNotFoundError:
        raise NotFoundError(f"no price table at {file}") from None
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise InputError(
            f'{file} is not a price table, {{"MODEL": {{"prompt": 0.15, "output": 0.6}}}} '
            f"in dollars a million tokens: {error}"
        ) from error
    for name, price in table.items():
        stated = (price.prompt, price.output, price.cached or 0.0)
        if not all(0 <= value < math.inf for value in stated):
            raise InputError(f"{file}: the price of {name!r} is below 0 or endless")
    return table
