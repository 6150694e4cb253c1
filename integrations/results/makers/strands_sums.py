# /// script
# dependencies = ["strands-agents-evals==1.7.0"]
# ///
"""Strands: the report of an experiment of `strands_evals`."""

from strands_evals import Case, Experiment
from strands_evals.evaluators import Equals
from sums import SIDES, SUMS, ask


def evaluate(side, prompt):
    def task(case):
        return ask(prompt, case.input)

    cases = [
        Case(
            name=row["id"],
            input=row["question"],
            expected_output=row["expected"],
            metadata={"group": row["group"]},
        )
        for row in SUMS
    ]
    report = Experiment(cases=cases, evaluators=[Equals()]).run_evaluations(task)
    report.to_file(f"{side}.json")


for side, prompt in SIDES.items():
    evaluate(side, prompt)
