"""What is right of an ascent, what to carry, dangers and prices; lists, and numbers as they are written in French."""

from __future__ import annotations

import re

SPACE = "\u202f"
"""Stands within numbers, before a unit and before a question mark."""
SUMMITS = {
    "Pic Rouge": (2450, ("cabane du Lac", 1680), ("col des Vents", 2110), 3),
    "Dent Noire": (2980, ("pont de pierre", 1840), ("brèche du Loup", 2630), 5),
    "Grand Mulet": (2215, ("forêt de Brame", 1520), ("crête des Fées", 1995), 2),
    "Aiguille Blanche": (3120, ("moraine", 2040), ("glacier du Tour", 2710), 4),
    "Tour de Mai": (1985, ("bergerie", 1450), ("pas de l'Ours", 1760), 1),
    "Rocher du Midi": (2330, ("cascade", 1590), ("selle du Midi", 2075), 2),
    "Tête Ronde": (2065, ("chapelle", 1410), ("plateau", 1830), 1),
    "Pointe du Sel": (2740, ("lac Vert", 1760), ("couloir nord", 2390), 4),
    "Mont Clair": (2190, ("croix de bois", 1480), ("épaule", 1920), 3),
    "Arête du Coq": (2605, ("vire", 1705), ("fenêtre", 2280), 5),
}
"""Height, two places on the way, and how dangerous."""
GEAR = {
    "corde": 2900,
    "casque": 310,
    "piolet": 480,
    "crampons": 870,
    "lampe": 95,
    "sifflet": 20,
    "gourde": 180,
}
GROUPS = (2, 3, 4, 5, 6, 7)
START = 1180
LONGEST = 110
"""Words of a right answer, at most."""


def metres(height: int) -> str:
    """2450 → 2 450 m."""
    return f"{height // 1000}{SPACE}{height % 1000:03}{SPACE}m"


def euros(cents: int) -> str:
    """12740 → 127,40 €."""
    return f"{cents // 100},{cents % 100:02}{SPACE}€"


def gear_of(summit: str) -> dict[str, int]:
    """What is needed there, with its weight in grams."""
    names, first = sorted(GEAR), sorted(SUMMITS).index(summit)
    return {name: GEAR[name] for name in (names[(first + step) % len(names)] for step in (0, 1, 3, 4))}


def posts(group: int, demi: bool) -> dict[str, int]:
    """What so many people pay, in cents."""
    known = {"nuit": 2450 * group, "taxe de séjour": 85 * group}
    return known | ({"demi-pension": 2790 * group} if demi else {"petit déjeuner": 940 * group})


def asked_of(question: str) -> tuple[str, str]:
    """The kind of a question, and the summit; "prix" has none."""
    if "personnes" in question:
        return "prix", ""
    summit = next(name for name in SUMMITS if name in question)
    if "emporter" in question or "dans le sac" in question:
        return "sac", summit
    return ("danger" if "danger" in question or "risque" in question else "chemin"), summit


def group_of(question: str) -> tuple[int, bool]:
    """How many people, and if they eat in the evening."""
    match = re.search(r"(\d+) personnes", question)
    assert match is not None
    return int(match[1]), "demi-pension" in question


def right(question: str, answer: str) -> bool:
    """True if a hiker can rely on the answer and read it on the way."""
    if len(answer.split()) > LONGEST:
        return False
    kind, summit = asked_of(question)
    lines = answer.splitlines()
    if kind == "prix":
        total = euros(sum(posts(*group_of(question)).values()))
        return any("Total" in line and total in line for line in lines)
    if kind == "sac":
        wanted = [f"- {name} ({grams}{SPACE}g)" for name, grams in gear_of(summit).items()]
        return set(wanted) <= set(lines)
    height, *way, level = SUMMITS[summit]
    if kind == "danger":
        return f"niveau {level} sur 5" in answer.lower()
    places = [metres(START), *(metres(place[1]) for place in way), metres(height)]
    return all(
        any(line.startswith(f"{number}. ") and place in line for line in lines)
        for number, place in enumerate(places, 1)
    )
