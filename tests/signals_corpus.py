"""200 scripted conversations and what the user's next move says of the answer.

Written as people write to assistants, before the extractors were tuned on anything; each line is one user's
move after an answer, with the label that a reader gives it.
"""

from __future__ import annotations

from whet.record.tracing.signals import Turn

TOPICS: list[tuple[str, str, list[str], list[str]]] = [
    # question, answer, the same again in other words, something new
    (
        "When does the train to Lyon leave tomorrow?",
        "The first train leaves at 6:04.",
        [
            "No, what time is the Lyon train tomorrow, in the evening?",
            "I meant the train leaving for Lyon tomorrow night",
        ],
        ["Can I take a bicycle on board?", "And what does a seat in first class cost?"],
    ),
    (
        "How do I sort a list of dicts by a key in Python?",
        "Use sorted(items, key=lambda item: item['name']).",
        [
            "how can I sort dicts in a list by key in python",
            "I mean sorting a list of dicts by one key, in python",
        ],
        ["Is there a way to write the result to a CSV file?", "Now explain decorators to me"],
    ),
    (
        "What is the phone number of Susan's broker?",
        "I could not find a number.",
        ["Susan's broker, what phone number does he have?", "phone number of the broker of Susan please"],
        ["Who wrote to me about the gas contract last week?", "What about her assistant's address?"],
    ),
    (
        "Summarise the quarterly report in three sentences.",
        "Revenue rose by four percent.",
        [
            "Again: summarise the quarterly report, three sentences",
            "I asked for a summary of the quarterly report in three sentences",
        ],
        ["Which divisions lost money?", "Draft an e-mail to the board about the outlook."],
    ),
    (
        "Book a table for two at Bella Roma on Friday",
        "I have booked a table for two on Thursday.",
        [
            "Book a table for two at Bella Roma on Friday",
            "a table at Bella Roma for two, Friday, as in what I asked",
        ],
        ["Put it into my calendar as well", "Also remind me to buy flowers"],
    ),
    (
        "Why does my build fail with exit code 137?",
        "Exit code 137 means that the process was killed.",
        [
            "but why is my build failing with code 137",
            "To be clear, my build fails with exit code 137, why does it?",
        ],
        ["How do I raise the memory limit of the container?", "Next, set up caching for the pipeline"],
    ),
    (
        "What is the capital gains tax rate for shares held two years?",
        "It depends on where you live.",
        [
            "what tax rate applies to capital gains on shares held two years",
            "Let me rephrase: capital gains, shares, two years, which rate?",
        ],
        ["Does the wash sale rule matter here?", "How about dividends from abroad?"],
    ),
    (
        "Find me flights from Oslo to Rome under 200 euros",
        "Here are three flights from Oslo.",
        [
            "flights under 200 euros from Oslo to Rome, find me those",
            "I'm asking for flights Oslo to Rome under 200 euros",
        ],
        ["Which hotels near the station have a pool?", "And how long is the transfer into town?"],
    ),
    (
        "Translate 'the early bird catches the worm' into German",
        "Der frühe Vogel fängt den Wurm.",
        [
            "translate the saying early bird catches the worm into german please",
            "German translation of: the early bird catches the worm",
        ],
        ["What would a Bavarian say in that situation?", "Now do the same for a proverb about patience"],
    ),
    (
        "Which plants grow well in dry shade?",
        "Ferns like shade.",
        ["plants that grow in dry shade, which ones?", "Which plants grow well in shade that is dry"],
        ["When should roses be cut back?", "How often do I have to water a fig tree?"],
    ),
]
PRAISED = [
    "Thanks, that's exactly what I needed",
    "perfect!",
    "Great, that worked.",
    "thank you so much",
    "Awesome, it works now",
    "That makes sense, thanks",
    "you're right, I had overlooked that",
    "Excellent answer",
    "cheers mate",
    "thx",
    "That's correct, well spotted.",
    "brilliant, saved me an hour",
    "Appreciate it, that helps a lot",
    "Exactly. Send it.",
    "This helped, thanks a lot!",
    "wonderful, I'll take it",
    "Yes that is it, thank you",
    "Much appreciated!",
    "Nice one",
    "ok great, thanks for the quick reply",
    "That's what I meant, thank you",
    "Love it.",
    "thanks, no problem with the delay",
    "Great, thank you, nothing wrong with that at all",
]
CRITICISED = [
    "That's wrong",
    "no that is not what I asked",
    "This doesn't work, I get the same error",
    "you made that up",
    "Incorrect. Check again.",
    "that didn't help at all",
    "I already told you that I don't have that button",
    "It still doesn't compile",
    "You misunderstood me",
    "useless",
    "this is not the right number",
    "that makes no sense whatsoever",
    "thanks but that is for another model",
    "Oh great, another apology",
    "You keep giving me the same answer",
    "terrible, I'd have been faster by hand",
    "That isn't true, he left in May",
    "you ignored half of my message",
    "Try again, and read it this time",
    "not what I wanted",
    "Thank you for nothing",
    "it did not load, the page is blank",
    "How frustrating",
    "no, thanks. That address does not exist",
    "That's a hallucination, there is no such function",
    "You forgot the second half",
]
NEUTRAL = [
    "ok",
    "hm",
    "yes",
    "Go on.",
    "sure",
    "I see",
    "let me check",
    "one moment",
    "that is not bad",
    "alright",
    "maybe later",
    "fine",
    "it is not wrong as such",
    "What is wrong with it?",
    "hmm, not great",
    "Is that so?",
]
LEFT = [
    ("I am sorry, I could not find anything about that.", True),
    ("Unfortunately something went wrong. Please try later.", True),
    ("Could you clarify which account you mean?", True),
    ("I don't have access to that information.", True),
    ("Error: the service is not available.", True),
    ("Which of the three do you want?", True),
    ("I was unable to reach the booking system.", True),
    ("No results for this search.", True),
    ("Please provide your order number.", True),
    ("I cannot help with that.", True),
    ("Sorry, I did not understand.", True),
    ("Can you tell me the date of the invoice?", True),
    ("Your table is booked for Friday at eight.", False),
    ("The capital of Peru is Lima.", False),
    ("Done. The file has 1,204 lines.", False),
    ("Sorted, the newest first: 14, 12, 9.", False),
    ("The meeting was moved to room 4.", False),
    ("It costs 30 euros a month.", False),
    ("def add(a, b): return a + b", False),
    ("The train leaves at 6:04 from platform 2.", False),
    ("Here is the summary you asked for. Revenue rose.", False),
    ("Yes, both are open on Sundays.", False),
]


def corpus() -> list[tuple[list[Turn], str]]:
    """(conversation, label): a kind of Signal, or "" where nothing can be said."""
    made: list[tuple[list[Turn], str]] = []

    def add(question: str, answer: str, after: str | None, label: str) -> None:
        turns = [Turn("user", question, 1.0), Turn("assistant", answer, 2.0, "run")]
        made.append(([*turns, Turn("user", after, 3.0)] if after is not None else turns, label))

    for question, answer, again, other in TOPICS:
        for text in again:
            add(question, answer, text, "rephrased")
        for text in other:
            add(question, answer, text, "continued")
    for label, texts in (("praised", PRAISED), ("criticised", CRITICISED), ("", NEUTRAL)):
        for number, text in enumerate(texts):
            question, answer, _, _ = TOPICS[number % len(TOPICS)]
            add(question, answer, text, label)
    for number, (answer, left) in enumerate(LEFT):
        add(TOPICS[number % len(TOPICS)][0], answer, None, "abandoned" if left else "")
    # The same moves deep inside a longer conversation, where the first questions are of another topic.
    for number, (question, answer, again, other) in enumerate(TOPICS):
        before = TOPICS[(number + 3) % len(TOPICS)]
        for text, label in ((again[0], "rephrased"), (other[0], "continued"), (PRAISED[number], "praised")):
            made.append(
                (
                    [
                        Turn("user", before[0], 1.0),
                        Turn("assistant", before[1], 2.0, "first"),
                        Turn("user", question, 3.0),
                        Turn("assistant", answer, 4.0, "run"),
                        Turn("user", text, 5.0),
                    ],
                    label,
                )
            )
    for number, text in enumerate(CRITICISED[:22] + PRAISED[-20:]):
        question, answer, _, _ = TOPICS[(number + 5) % len(TOPICS)]
        label = "criticised" if number < 22 else "praised"
        add(
            question,
            answer,
            f"{text} {'' if text.endswith(('.', '!', '?')) else '-'} {question.split()[0].lower()} ...",
            label,
        )
    return made
