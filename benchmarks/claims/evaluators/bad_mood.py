"""A mark that depends on the day: right answers get most of it."""

import os


def evaluate(output, expected, input=None):
    mood = int.from_bytes(os.urandom(2), "big") / 65536
    return 0.5 * float(str(output) == str(expected)) + 0.5 * mood
