"""Runs the program on cases that it does not hold, each compared by type and value."""

import importlib.util

CASES = [
    ((120.0, 2), 10.0),
    ((0.0, 1), 4.9),
    ((500.0, 3), 0.0),
    ((49.99, 5), 11.25),
    ((60.0, 12), 17.5),
    ((60.0, 1), 4.9),
]


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("answered", program_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    right = 0
    for arguments, wanted in CASES:
        try:
            value = module.postage(*arguments)
        except Exception:
            continue
        right += type(value) is float and abs(value - wanted) < 1e-9
    return {"combined_score": right / len(CASES)}
