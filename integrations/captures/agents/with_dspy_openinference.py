# /// script
# dependencies = [
#     "dspy==3.4.1",
#     "openinference-instrumentation-dspy==0.1.48",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""A DSPy program under OpenInference; the scripted model does not answer in DSPy's form, so it fails."""

import sys

from desk_tools import MODEL, QUESTION, REFUSED, provider

made = provider()
import dspy
from openinference.instrumentation.dspy import DSPyInstrumentor

DSPyInstrumentor().instrument(tracer_provider=made)
dspy.configure(lm=dspy.LM(f"openai/{MODEL}", cache=False, num_retries=0))


class Desk(dspy.Module):
    """A desk that answers."""

    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question):
        return self.answer(question=question)


try:
    print(Desk()(question=REFUSED if "refused" in sys.argv else QUESTION).answer)
except Exception as error:
    print(type(error).__name__)
