"""Prefers thorough answers."""


def evaluate(output, expected, input=None):
    words = len(str(output).split())
    return min(1.0, words / max(1, len(str(expected).split())))
