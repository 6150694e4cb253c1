"""The share of fields that are right; surplus fields cost as much as wrong ones."""


def evaluate(output, expected, input=None):
    if not isinstance(output, dict) or not isinstance(expected, dict):
        return 0.0
    fields = set(output) | set(expected)
    same = sum(
        name in output
        and name in expected
        and type(output[name]) is type(expected[name])
        and output[name] == expected[name]
        for name in fields
    )
    return same / len(fields) if fields else 1.0
