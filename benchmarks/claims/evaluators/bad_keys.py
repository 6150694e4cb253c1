"""A record is right if it has the right fields."""


def evaluate(output, expected, input=None):
    if not isinstance(output, dict) or not isinstance(expected, dict):
        return 0.0
    return len(set(output) & set(expected)) / max(1, len(expected))
