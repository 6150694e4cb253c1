"""DSPy's COPRO optimises an instruction; `Evaluate` writes the results of both programs on tasks that it never saw."""

import json
import os
from pathlib import Path

import dspy
from dspy.teleprompt import COPRO

dspy.configure(
    lm=dspy.LM("openai/clerk", api_base=os.environ["OPENAI_BASE_URL"], api_key="none", cache=False)
)
prompter = dspy.LM("openai/prompter", api_base=os.environ["PROMPTER_BASE_URL"], api_key="none", cache=False)


def rows(name):
    lines = Path(name).read_text().splitlines()
    return [dspy.Example(**json.loads(line)).with_inputs("question") for line in lines]


def exact(example, prediction, trace=None):
    return float(prediction.answer == example.expected)


class Clerk(dspy.Module):
    def __init__(self):
        self.add = dspy.Predict(dspy.Signature("question -> answer", os.environ["PROMPT"]))

    def forward(self, question):
        return self.add(question=question)


first = Clerk()
optimizer = COPRO(prompt_model=prompter, metric=exact, breadth=2, depth=4)
best = optimizer.compile(first.deepcopy(), trainset=rows("train.jsonl"), eval_kwargs={"num_threads": 1})
held_out = rows("held_out.jsonl")
for name, program in (("before", first), ("after", best)):
    dspy.Evaluate(devset=held_out, metric=exact, num_threads=1, save_as_json=f"{name}.json")(program)
