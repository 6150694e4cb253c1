"""A deceptive landscape: in each module every switch but the last makes it worse.

Three switches on are worth 3, none 2, one 1, two 0, so a search that only climbs stays where it
began. Modules count independently: what was found in two programs comes together in a child of both.
"""

import importlib.util

NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")
WORTH = (2, 1, 0, 3)
BEST = 1.0


def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    counts = []
    for name in NAMES:
        switches = getattr(program, name)()
        if len(switches) != 3:
            raise ValueError(f"{name} has {len(switches)} switches, not 3")
        counts.append(sum(map(bool, switches)))
    worth = sum(WORTH[count] for count in counts)
    return {"combined_score": worth / (3 * len(NAMES)), "switches_on": sum(counts)}
