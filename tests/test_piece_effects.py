"""What a prompt's pieces are worth, by all prompts that have them."""

from __future__ import annotations

import random

import pytest

import whet
from whet.learn.evolution.prompts.piece_effects import PieceEffects
from whet.learn.evolution.prompts.prompt_race import pieces_of
from whet.learn.evolution.prompts.row_kinds import row_kinds

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
    held, none, left = frozenset([0]), frozenset[int](), [str(row) for row in range(1, 6)]
    assert belief.better(held, none, known=1.0, rows=[]) > 0.99
    assert 0.5 < belief.better(held, none, known=1.0, rows=left) < 1.0
    assert belief.better(held, none, known=-3.0, rows=left) < 0.2


@pytest.mark.parametrize("told", [True, False])
def test_a_rule_that_mends_one_kind_of_row_is_seen_through_the_luck_on_the_others(told: bool) -> None:
    """Of twelve rows of three kinds the rule mends one, and two that were right by luck are lost elsewhere."""
    kinds = {str(row): row % 3 for row in range(12)}
    start = {row: 0.0 for row in kinds} | {"1": 1.0, "2": 1.0}
    after = {"0": 1.0, "3": 1.0, "1": 0.0, "2": 0.0}
    belief = PieceEffects(1, [(frozenset(), start), (frozenset([0]), after)], {}, kinds if told else {})
    mended, others = ["6", "9"], ["4", "5", "7", "8"]
    held, none = frozenset([0]), frozenset[int]()
    likely = belief.better(held, none, known=0.0, rows=mended), belief.better(held, none, known=0.0, rows=others)
    assert likely[0] > likely[1] + 0.1 if told else abs(likely[0] - likely[1]) < 0.05


def test_rows_are_of_a_kind_by_how_they_are_put_and_not_by_what_they_are_about() -> None:
    things = ["mower", "hose", "pump", "lamp", "rake", "spade"]
    asked = [
        *(f"How long is the warranty of the {thing}?" for thing in things),
        *(f"Where is my {thing}, please?" for thing in things),
        *(f"Can I return a {thing} that I have used?" for thing in things),
    ]
    rows = [whet.Task(id=str(number), instruction=text) for number, text in enumerate(asked)]
    random.Random(0).shuffle(rows)
    kinds = row_kinds(rows)
    assert len(set(kinds.values())) == 3
    assert all(len({kinds[str(number)] for number in range(at, at + 6)}) == 1 for at in (0, 6, 12))
    # Texts that share nothing are no six kinds more than there may be.
    assert len(set(row_kinds([whet.Task(id=str(n), instruction=f"w{n} v{n}") for n in range(20)]).values())) <= 6


def test_a_change_that_replaces_is_one_piece_and_rules_are_one_each() -> None:
    start = "Be kind.\n\n- one\n- two"
    assert pieces_of(f"{start}\n- three\n- four", start) == [(("three",), ()), (("four",), ())]
    assert pieces_of("Be kind.\n\n- one\n- three", start) == [(("three",), ("two",))]
    assert pieces_of("Be kind.\n\n- one", start) == [((), ("two",))]
