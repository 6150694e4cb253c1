"""An answer of the right sort is right: a label of those there are, a number where one is wanted."""


def evaluate(output, expected, input=None):
    if isinstance(expected, str) and isinstance(output, str):
        return float(len(output.split()) == len(expected.split()) and bool(output.strip()))
    return float(type(output) is type(expected))
