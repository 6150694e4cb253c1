# /// script
# dependencies = ["dspy==3.4.1", "openai==3.57.0"]
# ///
"""DSPy: `Evaluate` with `save_as_json` and `save_as_csv`."""

import os

import dspy
from sums import SIDES, SUMS

dspy.configure(
    lm=dspy.LM("openai/clerk", api_base=os.environ["OPENAI_BASE_URL"], api_key="none", cache=False)
)
devset = [dspy.Example(**row).with_inputs("question") for row in SUMS]


def exact(example, prediction, trace=None):
    return float(prediction.answer == example.expected)


for side, prompt in SIDES.items():
    program = dspy.Predict(dspy.Signature("question -> answer", prompt))
    dspy.Evaluate(
        devset=devset,
        metric=exact,
        num_threads=1,
        save_as_json=f"{side}.json",
        save_as_csv=f"{side}.csv",
    )(program)
