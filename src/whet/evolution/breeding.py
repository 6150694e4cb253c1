"""The children of a generation: drawn from what settings have been worth, bred from the best, or a step from them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .archive import Candidate, Member
from .effects import Effects
from .operators import Knob, crossover, merge, mutate, stepped
from .search_state import EvolveOptions, SearchState

FEW = 3
"""So many knobs are climbed: half the children are one step from the best, and each generation's best is run on all
tasks. With more of them a generation's luckiest is hardly ever its best, and the effects decide."""
_TRIES = 20
"""Draws per child: in a small space most have been seen."""


def proposed(
    search: SearchState,
    start: Candidate,
    places: Sequence[Knob],
    effects: Effects,
    options: EvolveOptions,
    rng: random.Random,
) -> list[Member]:
    """New contents, twice as many in the first generation; fewer, or none, where all within reach have been tried."""
    parents = [search.archive.members[id].candidate for id in search.archive.population]
    weights = [1.0 / (rank + 1) for rank in range(len(parents))]
    count = options.children if search.generation else 2 * options.children
    children: list[Member] = []
    for _ in range(count * _TRIES):
        if len(children) >= count:
            break
        base = rng.choices(parents, weights)[0]
        if len(places) <= FEW and rng.random() < 0.5:
            child, move = stepped(base, places, rng), "step"
        elif not search.generation:
            child, move = effects.scattered(base, rng), "random"
        elif rng.random() < options.drawn:
            child, move = effects.drawn(base, rng), "drawn"
        else:
            child, move = _bred(base, parents, start, places, options, rng)
        if search.archive.fresh(child):
            children.append(Member(child, search.generation + 1, move))
        else:
            search.repeats += 1
    return children


def _bred(
    child: Candidate,
    parents: Sequence[Candidate],
    start: Candidate,
    places: Sequence[Knob],
    options: EvolveOptions,
    rng: random.Random,
) -> tuple[Candidate, str]:
    if len(parents) > 1 and rng.random() < options.crossover:
        other = rng.choice(parents)
        if rng.random() < 0.5:
            return merge(child, other, start, places), "merge"
        child = crossover(child, other, places, rng)
        if rng.random() < 0.5:
            return child, "crossover"
    return mutate(child, places, rng, strength=options.strength), "mutate"
