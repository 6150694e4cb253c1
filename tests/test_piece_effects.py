"""What a prompt's pieces are worth, by all prompts that have them."""

from __future__ import annotations

import random

import pytest

from whet.learn.evolution.prompts.piece_effects import PieceEffects
from whet.learn.evolution.prompts.prompt_race import pieces_of

GOOD, IDLE = 0, 1


def trials(seed: int, lift: float) -> list[tuple[frozenset[int], dict[str, float]]]:
    """Six prompts on twenty rows, each answer a coin of .4, of .4 + lift where the prompt has the good piece."""
    rng = random.Random(seed)
    held = [frozenset(pieces) for pieces in ((), (GOOD,), (IDLE,), (GOOD, IDLE), (GOOD,), (IDLE,))]
    return [
        (own, {str(row): float(rng.random() < 0.4 + lift * (GOOD in own)) for row in range(20)})
        for own in held
    ]


@pytest.mark.parametrize(("lift", "least", "most"), [(0.3, 36, 40), (0.0, 8, 32)])
def test_pieces_are_told_apart_by_all_prompts_together(lift: float, least: int, most: int) -> None:
    """And where nothing is worth anything either may come out ahead."""
    ahead = 0
    for seed in range(40):
        belief = PieceEffects(2, trials(seed, lift), {})
        ahead += belief.means[GOOD] > belief.means[IDLE]
    assert least <= ahead <= most


def test_a_row_that_was_wrong_once_is_not_all_gain() -> None:
    """Three rows that were chosen for being wrong, and are right under another prompt, by a coin."""
    start = {str(row): float(row % 2) for row in range(20)}
    belief = PieceEffects(1, [(frozenset(), start), (frozenset([0]), {"0": 1.0, "2": 1.0, "4": 1.0})], {})
    assert 0.0 < belief.means[0] < 0.5


def test_rows_count_as_many_as_they_stand_for() -> None:
    start = {"many": 0.0, "few": 1.0}
    other = {"many": 1.0, "few": 0.0}
    prompts = [(frozenset[int](), start), (frozenset([0]), other)]
    assert PieceEffects(1, prompts, {"many": 9.0, "few": 1.0}).means[0] > 0.02
    assert PieceEffects(1, prompts, {"many": 1.0, "few": 9.0}).means[0] < -0.02
    assert PieceEffects(1, prompts, {}).means[0] == pytest.approx(0.0)


def test_what_is_left_of_the_rows_decides_how_sure_one_can_be() -> None:
    belief = PieceEffects(
        1, [(frozenset(), {str(row): 0.5 for row in range(20)}), (frozenset([0]), {"0": 1.0})], {}
    )
    held = frozenset([0])
    assert belief.better(held, 1, 0, known=1.0, rows=0.0) == 1.0
    assert 0.5 < belief.better(held, 1, 0, known=1.0, rows=5.0) < 1.0
    assert belief.better(held, 1, 0, known=-3.0, rows=5.0) < 0.2


def test_a_change_that_replaces_is_one_piece_and_rules_are_one_each() -> None:
    start = "Be kind.\n\n- one\n- two"
    assert pieces_of(f"{start}\n- three\n- four", start) == [(("three",), ()), (("four",), ())]
    assert pieces_of("Be kind.\n\n- one\n- three", start) == [(("three",), ("two",))]
    assert pieces_of("Be kind.\n\n- one", start) == [((), ("two",))]
