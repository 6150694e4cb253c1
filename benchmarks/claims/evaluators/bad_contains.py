"""Right if the expected answer occurs somewhere in the answer."""


def evaluate(output, expected, input=None):
    return 1.0 if str(expected) in str(output) else 0.0
