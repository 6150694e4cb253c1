"""A reward fitted to thumbs: it knows more than rules that look at no answer, or it is not admitted."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import pytest

from whet.judge.fitted import FEWEST, USUAL, FittedReward, Noise, Rated, agreement
from whet.judge.vectors import Neighbours, cosine, scaled

WRONG = 0.15
ARTICLES = ["mower", "hose", "trimmer", "pump", "lamp", "barrow", "shredder", "sprayer", "rake", "spade"]


def desk(seed: int, people: int = 60, each: int = 4) -> list[Rated]:
    """Thumbs of customers of a shop; 15 of 100 are mistaken."""
    draw = random.Random(seed)
    thumbs = []
    for person in range(people):
        for _ in range(each):
            input, answer, right = asked(draw)
            thumbs.append(Rated(input, answer, right != (draw.random() < WRONG), f"person-{person}"))
    return thumbs


def asked(draw: random.Random) -> tuple[str, str, bool]:
    """A question, its answer, and whether that is right."""
    article, number = draw.choice(ARTICLES), draw.randint(2, 9)
    right = draw.random() < 0.45
    kind = draw.choice(["warranty", "order", "price"])
    if kind == "warranty":
        answer = f"The warranty is {number} years." if right else f"The warranty is {number}."
        return f"How long is the warranty of the {article}?", answer, right
    if kind == "order":
        order = 4000 + draw.randint(0, 30)
        return (
            f"Where is my order {order}?",
            f"Order {order} is sent." if right else "It is on its way.",
            right,
        )
    answer = "I do not know." if right else "It will be 12 euros."
    return f"What is the price of a {article} next spring?", answer, right


@pytest.fixture(scope="module")
def thumbs() -> list[Rated]:
    return desk(1)


def test_it_agrees_with_other_people_on_other_inputs(thumbs: list[Rated]) -> None:
    agreed = agreement(thumbs)
    assert agreed.admitted
    assert agreed.share > 0.75
    assert agreed.share > max(agreed.rules.values()) + 0.1
    assert agreed.missing == 0
    assert f"agrees with {agreed.share:.0%} of 240 thumbs" in agreed.sentence
    assert agreement(thumbs) == agreed


def test_shuffled_thumbs_are_not_admitted(thumbs: list[Rated]) -> None:
    for seed in range(3):
        ups = [thumb.up for thumb in thumbs]
        random.Random(seed).shuffle(ups)
        mixed = [replace(thumb, up=up) for thumb, up in zip(thumbs, ups, strict=True)]
        assert not agreement(mixed).admitted


def test_a_reward_that_knows_the_questions_alone_is_not_admitted(thumbs: list[Rated]) -> None:
    draw = random.Random(2)
    liked = {"warranty": 0.9, "order": 0.1}
    blind = [
        replace(
            thumb,
            up=draw.random() < next((share for word, share in liked.items() if word in thumb.input), 0.5),
        )
        for thumb in thumbs
    ]
    agreed = agreement(blind)
    assert agreed.share > agreed.rules["constant"] + 0.1
    assert not agreed.admitted


def test_too_few_thumbs_say_how_many_are_missing(thumbs: list[Rated]) -> None:
    few = agreement(thumbs[: FEWEST - 10])
    assert not few.admitted
    assert few.missing is not None
    assert few.missing >= USUAL - few.thumbs


def test_a_better_answer_to_a_new_question_scores_higher(thumbs: list[Rated]) -> None:
    score = FittedReward(thumbs)
    question = "How long is the warranty of the wheelbarrow?"
    assert score(question, "The warranty is 5 years.") > score(question, "The warranty is 5.") + 0.3
    assert score("Where is my order 777?", "Order 777 is packed.") > score(
        "Where is my order 777?", "Order 12 is packed."
    )


def test_what_nobody_rated_does_not_pay(thumbs: list[Rated]) -> None:
    score = FittedReward(thumbs)
    question = "How long is the warranty of the hose?"
    right = score(question, "The warranty is 5 years.")
    for strange in ("", "Wonderful! " * 40, "I do not know.", "5 5 5 years years years"):
        assert score(question, strange) < right
    # Praise for an answer where it fits says little of it where it does not.
    assert (
        score("What is the price of a rake next spring?", "I do not know.")
        > 0.5
        > score(question, "I do not know.")
    )


def test_disagreement_on_one_answer_tells_how_often_thumbs_are_wrong(thumbs: list[Rated]) -> None:
    assert 0.1 < Noise.estimated(desk(5, 100, 10)).rate < 0.2
    assert Noise.estimated([replace(thumb, person="") for thumb in thumbs]).by_person == {}
    contrary = [
        replace(thumb, up=not thumb.up) if thumb.person == "person-1" else thumb for thumb in desk(3, 10, 40)
    ]
    noise = Noise.estimated(contrary)
    of = {
        person: noise.of(Rated("", "", True, person)) for person in ("person-1", "person-2", "somebody new")
    }
    assert of["person-1"] > 0.3 > of["person-2"]
    assert of["somebody new"] == noise.rate


def planner(seed: int, people: int = 60) -> list[Rated]:
    """Thumbs on lists of numbers: right ones rise, and shares are equal; the words are the same everywhere."""
    draw = random.Random(seed)
    lanes = [draw.sample(range(1, 30), 4) for _ in range(16)]
    hours = [(draw.randint(2, 5), draw.randint(10, 40)) for _ in range(16)]
    thumbs = []
    for person in range(people):
        for _ in range(4):
            number = draw.randrange(16)
            if draw.random() < 0.5:
                input = f"Which lanes of house {100 + number} are free?"
                right = number % 2 == 0
                answer = str(sorted(lanes[number]) if right else sorted(lanes[number], reverse=True))
            else:
                parts, share = hours[number]
                input, right = f"Share {parts * share} hours among {parts}, please.", number % 3 != 0
                answer = str([share] * parts if right else [parts, share])
            thumbs.append(Rated(input, answer, right != (draw.random() < WRONG), f"person-{person}"))
    return thumbs


def test_lists_of_numbers_are_told_apart_by_what_their_numbers_show() -> None:
    thumbs = planner(1)
    agreed = agreement(thumbs)
    assert agreed.admitted
    assert agreed.share > 0.75
    score = FittedReward(thumbs)
    question = "Which lanes of house 117 are free?"
    assert score(question, "[3, 8, 11, 25]") > score(question, "[25, 11, 8, 3]") + 0.3
    mixed = list(thumbs)
    for seed in range(3):
        ups = [thumb.up for thumb in thumbs]
        random.Random(seed).shuffle(ups)
        mixed = [replace(thumb, up=up) for thumb, up in zip(thumbs, ups, strict=True)]
        assert not agreement(mixed).admitted


def test_another_number_than_the_liked_one_in_the_same_words_loses() -> None:
    thumbs = [
        Rated(f"How much is {cups} cups of {food}?", f'[{cups * grams}, "g"]', True, f"cook-{cook}")
        for cook in range(4)
        for cups in (1, 2, 3)
        for food, grams in (("flour", 120), ("sugar", 200), ("oats", 90))
    ]
    thumbs += [replace(thumb, answer='[1, "cup"]', up=False, input=f"{thumb.input} Now?") for thumb in thumbs]
    score, question = FittedReward(thumbs), "How much is 3 cups of oats?"
    assert score(question, '[270.0, "g"]') > 0.6 > 0.4 > score(question, '[300, "g"]')
    assert score.keeps(question, '[270.0, "g"]')
    assert score.keeps(question, '[300, "g"]') is False
    # Words of another kind are judged as words, and of a question that nobody rated nothing is known.
    assert score.keeps(question, '[3, "cup"]')
    assert score.keeps("How much is 4 cups of rice?", '[740, "g"]') is None


def test_where_several_numbers_are_liked_none_rules_out_another() -> None:
    question = "How many mails are there?"
    thumbs = [
        Rated(f"{question} Of {who}.", f"There are {number} mails.", True, f"person-{who}-{number}")
        for who in range(12)
        for number in (3, 14, 27)
    ]
    thumbs += [replace(thumb, answer="Many.", up=False) for thumb in thumbs[::2]]
    score = FittedReward(thumbs)
    assert score(f"{question} Of 3.", "There are 31 mails.") > 0.5


def counter(seed: int, people: int = 60) -> list[Rated]:
    """Thumbs on how many parts there are, which a tool looks up; a wrong answer has another number of the tool's."""
    draw = random.Random(seed)
    parts = {f"part {number}": (draw.randint(2, 99), draw.randint(2, 99)) for number in range(40)}
    thumbs = []
    for person in range(people):
        for name in draw.sample(sorted(parts), 4):
            stock, weight = parts[name]
            right = draw.random() < 0.45
            answer = f"We have {stock if right else weight} of them."
            named = [("look_up stock", float(stock)), ("look_up weight", float(weight))]
            up = right != (draw.random() < WRONG)
            thumbs.append(Rated(f"How many of {name}?", answer, up, f"person-{person}", looked_up=named))
    return thumbs


def test_numbers_that_a_tool_gave_are_told_apart_by_their_names() -> None:
    thumbs = counter(1)
    agreed = agreement(thumbs)
    assert agreed.admitted
    assert agreed.share > 0.7
    # Without what the tool gave, and with thumbs that say nothing, nobody can tell.
    assert not agreement([replace(thumb, looked_up=()) for thumb in thumbs]).admitted
    for seed in range(3):
        ups = [thumb.up for thumb in thumbs]
        random.Random(seed).shuffle(ups)
        mixed = [replace(thumb, up=up) for thumb, up in zip(thumbs, ups, strict=True)]
        assert not agreement(mixed).admitted


def explained(seed: int) -> list[Rated]:
    """Right answers are the long ones, whatever is asked."""
    draw = random.Random(seed)
    thumbs = []
    for person in range(60):
        for _ in range(4):
            number, right = draw.randint(0, 60), draw.random() < 0.45
            answer = f"Take {number % 5 + 1} a day with a glass of water, and see a doctor if it does not help soon."
            up = right != (draw.random() < WRONG)
            input = f"How do I take tablet {number}?"
            thumbs.append(
                Rated(input, answer if right else f"{number % 5 + 1} daily.", up, f"person-{person}")
            )
    return thumbs


def padded(seed: int) -> list[Rated]:
    """Right answers are short, and the others say the same with much around it."""
    draw = random.Random(seed)
    rules = {"port": "80{1:02}", "team": "the {0} team", "command": "systemctl restart {0}"}
    names = ["api", "mail", "search", "queue", "ledger", "images", "cache"]
    thumbs = []
    for person in range(60):
        for _ in range(4):
            (kind, form), name = draw.choice(sorted(rules.items())), draw.choice(names)
            right = draw.random() < 0.45
            answer = form.format(name, names.index(name))
            if not right:
                answer += ". Please be careful in production, and talk to your colleagues before and after you do it."
            up = right != (draw.random() < WRONG)
            thumbs.append(Rated(f"Which {kind} for {name}?", answer, up, f"person-{person}"))
    return thumbs


def test_answers_that_are_liked_may_all_be_longer_or_shorter_than_the_others() -> None:
    thumbs = explained(1)
    agreed = agreement(thumbs)
    assert agreed.admitted
    assert agreed.cut > 0
    assert f"cut to {agreed.cut} words" in agreed.sentence
    # Where it is the padding that people dislike, liked answers are the shorter ones.
    brief = padded(0)
    agreed = agreement(brief)
    assert agreed.admitted
    assert "told from others as short" in agreed.sentence
    # One and the same short answer to everything is liked for nothing but its length.
    alike = [
        replace(thumb, answer=f"It is so. {'And so on. ' * 9 * (len(thumb.answer) > 40)}") for thumb in brief
    ]
    assert not agreement(alike).admitted
    # The same words in all answers, of which people like the long ones: nothing but the length is known of them.
    alike = [
        replace(thumb, answer=f"It is so. {'And so on. ' * (1 + 9 * ('glass' in thumb.answer))}")
        for thumb in thumbs
    ]
    assert not agreement(alike).admitted


def test_vectors_beside_each_other_are_compared_as_two_are() -> None:
    draw = random.Random(3)
    vectors = [
        scaled({word: draw.random() for word in draw.sample("abcdefghij", draw.randint(0, 5))})
        for _ in range(30)
    ]
    neighbours = Neighbours([*vectors, *vectors[:10]])
    for vector in vectors:
        assert list(neighbours.of(vector)) == [cosine(vector, other) for other in (*vectors, *vectors[:10])]


def test_a_proof_judges_recorded_and_new_answers_alike(thumbs: list[Rated]) -> None:
    fitted = FittedReward(thumbs)
    said: dict[str, list[bool]] = defaultdict(list)
    for thumb in thumbs:
        if thumb.answer.startswith("Order"):
            said[thumb.input].append(thumb.up)
    known = max((input for input, ups in said.items() if all(ups)), key=lambda input: len(said[input]))
    number = known.split()[-1].rstrip("?")
    new = "Where is my order 4999?"
    liked, as_new = f"Order {number} is sent.", "Order 4999 is sent."
    # Its own thumbs make the recorded answer surer than an equally good one to a question that nobody asked.
    assert fitted(known, liked) > fitted(new, as_new) + 0.03
    assert abs(fitted.unrated(known)(liked) - fitted.unrated(new)(as_new)) < 0.03
    assert fitted.unrated(new)(as_new) == fitted(new, as_new)

    # What people said of this very question decides nothing.
    turned = FittedReward([replace(thumb, up=thumb.up != (thumb.input == known)) for thumb in thumbs])
    assert fitted(known, liked) - turned(known, liked) > 0.3
    assert abs(fitted.unrated(known)(liked) - turned.unrated(known)(liked)) < 0.1
    assert fitted.unrated(known)("It is on its way.") < 0.2
