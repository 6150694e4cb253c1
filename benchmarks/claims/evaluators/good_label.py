"""Right if the answer is the expected label and nothing else, whatever the case."""


def evaluate(output, expected, input=None):
    if not isinstance(output, str):
        return {"score": 0.0, "feedback": "the answer is not a text"}
    same = output.strip().casefold() == str(expected).strip().casefold()
    return {"score": float(same), "feedback": "" if same else "another label"}
