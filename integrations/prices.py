"""Remake src/whet/models/prices.json: python -m integrations.prices FOLDER

FOLDER is `mlflow/utils/model_catalog` of an installed MLflow (Apache License 2.0), whose files hold the list prices
that the providers publish.  Kept are the models for text alone, and of dated names those that cost something else.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from whet.models.prices import BUNDLED, price_for
from whet.models.spending import Price

PROVIDERS = ("openai", "anthropic", "gemini", "mistral", "deepseek", "xai")
_OTHER = re.compile(
    r"audio|realtime|image|tts|live|lyria|search|vision|robotics|computer-use|research|gemma|learnlm|vibe"
)


def table(folder: Path) -> dict[str, dict[str, float]]:
    """Model → its prices."""
    prices: dict[str, Price] = {}
    for provider in PROVIDERS:
        models: dict[str, Any] = json.loads((folder / f"{provider}.json").read_text())["models"]
        for name in sorted(models, key=len):
            pricing = models[name].get("pricing") or {}
            prompt, output = (pricing.get(f"{side}_per_million_tokens") for side in ("input", "output"))
            if (
                models[name].get("mode") not in ("chat", "responses")
                or not prompt
                or not output
                or _OTHER.search(name)
            ):
                continue
            price = Price(prompt=prompt, output=output, cached=pricing.get("cache_read_per_million_tokens"))
            if price_for(name, prices) != price:
                prices[name] = price
    return {
        name: {
            key: value for key in ("prompt", "output", "cached") if (value := getattr(price, key)) is not None
        }
        for name, price in sorted(prices.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stated", required=True, help="the day of that release, as YYYY-MM-DD")
    parser.add_argument("--version", required=True, help="of that MLflow")
    options = parser.parse_args()
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(price)}" for name, price in table(options.folder).items()
    )
    source = (
        f"the providers' public list prices, as in the model catalog of MLflow {options.version} (Apache-2.0)"
    )
    head = f' "stated": {json.dumps(options.stated)},\n "source": {json.dumps(source)},\n'
    BUNDLED.write_text(f'{{\n{head} "prices": {{\n{rows}\n }}\n}}\n')
    print(f"{BUNDLED}: {len(table(options.folder))} models")


if __name__ == "__main__":
    main()
