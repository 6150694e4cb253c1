"""Words in common with the expected answer, in their order: twice the longest common subsequence over both lengths."""


def evaluate(output, expected, input=None):
    if not isinstance(output, str):
        return 0.0
    one, two = output.casefold().split(), str(expected).casefold().split()
    if not one or not two:
        return float(one == two)
    row = [0] * (len(two) + 1)
    for word in one:
        before = 0
        for place, other in enumerate(two, 1):
            row[place], before = (
                (before + 1 if word == other else max(row[place], row[place - 1])),
                row[place],
            )
    return 2 * row[-1] / (len(one) + len(two))
