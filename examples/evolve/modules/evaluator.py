"""A deceptive landscape: in each module every switch but the last makes it worse.

Four switches on are worth 4, none 3, one 2, two 1 and three nothing, so a search that only
climbs stays where it began. Modules count independently: what was found in two programs comes together
in a child of both. `fullest` and `switches_on` say which programs are stepping stones.
"""

import importlib.util

NAMES = ("FIRST", "SECOND", "THIRD")
SIZE = 4


def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    counts = []
    for name in NAMES:
        switches = getattr(program, name)
        if len(switches) != SIZE:
            raise ValueError(f"{name} has {len(switches)} switches, not {SIZE}")
        counts.append(sum(map(bool, switches)))
    worth = sum(SIZE if count == SIZE else SIZE - 1 - count for count in counts)
    return {
        "combined_score": worth / (SIZE * len(NAMES)),
        "fullest": max(counts),
        "switches_on": sum(counts),
    }
