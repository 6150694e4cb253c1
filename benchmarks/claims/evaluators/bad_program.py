"""A program that loads and answers is a good program."""

import importlib.util


def evaluate(program_path):
    try:
        spec = importlib.util.spec_from_file_location("answered", program_path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        value = module.postage(60.0, 2)
    except Exception:
        return {"combined_score": 0.0}
    return {"combined_score": 1.0 if isinstance(value, float) else 0.5}
