"""Packs Weibull items (shape 3, scale 45, bins of 100) one by one and counts the bins.

The benchmark of FunSearch (Romera-Paredes et al. 2024). A bin is known by the space it has left, and
an empty one may be opened at any time, so `priority` is asked once for each pair of item and space.
"""

import importlib.util
import random

CAPACITY = 100
TRAINING = [(seed, 1000) for seed in range(5)]


def items(seed, count):
    draw = random.Random(seed)
    return [min(CAPACITY, max(1, int(draw.weibullvariate(45.0, 3.0) + 0.5))) for _ in range(count)]


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.priority


def preferences(priority):
    """Item → spaces that it fits into, the most wanted first; at a tie the smaller one."""
    table = [[]]
    for item in range(1, CAPACITY + 1):
        wanted = [(-priority(item, space), space) for space in range(item, CAPACITY + 1)]
        if any(want != want for want, _ in wanted):
            raise ValueError("priority is not a number")
        table.append([space for _, space in sorted(wanted)])
    return table


def pack(table, sequence):
    """Bins used, and the space that each item found in its bin."""
    open_bins = [0] * (CAPACITY + 1)
    open_bins[CAPACITY] = len(sequence)
    chosen = []
    for item in sequence:
        for space in table[item]:
            if open_bins[space]:
                break
        open_bins[space] -= 1
        open_bins[space - item] += 1
        chosen.append(space)
    return len(sequence) - open_bins[CAPACITY], chosen


def excess(table, instances):
    """Bins beyond the lower bound, in per cent of it, over all instances."""
    used, least = 0, 0
    for seed, count in instances:
        sequence = items(seed, count)
        used += pack(table, sequence)[0]
        least += -(-sum(sequence) // CAPACITY)
    return 100.0 * (used - least) / least


def behaviour(path):
    """Two programs that put every item of the first sequence into the same bin are the same."""
    return bytes(pack(preferences(load(path)), items(*TRAINING[0]))[1])


def evaluate(path):
    wasted = excess(preferences(load(path)), TRAINING)
    return {"combined_score": -wasted, "excess_percent": wasted}
