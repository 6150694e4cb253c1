"""The share of neighbours that stand as in the expected order; 0 for other things than were to be ordered."""


def evaluate(output, expected, input=None):
    if not isinstance(output, list) or not isinstance(expected, list):
        return 0.0
    if sorted(map(repr, output)) != sorted(map(repr, expected)):
        return 0.0
    pairs = max(1, len(expected) - 1)
    return (
        sum(output[n : n + 2] == expected[n : n + 2] for n in range(pairs)) / pairs
        if len(expected) > 1
        else 1.0
    )
