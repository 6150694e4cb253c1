from __future__ import annotations

AMOUNTS = {
    "pancakes": ("flour", 125),
    "risotto": ("rice", 80),
    "brioche": ("butter", 60),
    "pesto": ("basil", 35),
    "gnocchi": ("potatoes", 230),
    "lentil soup": ("lentils", 70),
    "granola": ("oats", 55),
}
BAKES = {
    "focaccia": (220, 25),
    "sponge cake": (175, 35),
    "meringue": (100, 90),
    "rye bread": (230, 50),
    "scones": (210, 14),
    "lasagne": (190, 40),
}
SWAPS = {
    "buttermilk": ("milk with lemon juice", "1 to 1"),
    "an egg": ("flaxseed in water", "1 to 3"),
    "honey": ("maple syrup", "4 to 3"),
    "cream": ("coconut milk", "1 to 1"),
    "baking powder": ("baking soda", "3 to 1"),
    "fresh yeast": ("dried yeast", "3 to 1"),
}


def right(question, answer):
    if not isinstance(answer, dict):
        return False
    text = str(answer.get("answer", "")).lower()
    if len(text.split()) > 40:
        return False
    for name, (_, grams) in AMOUNTS.items():
        if name in question:
            return f"{grams} g" in text and "per person" in text
    for name, (degrees, minutes) in BAKES.items():
        if name in question:
            return f"{degrees} degrees" in text and f"{minutes} minutes" in text
    for name, (other, ratio) in SWAPS.items():
        if name in question:
            return other in text and ratio in text
    return False
