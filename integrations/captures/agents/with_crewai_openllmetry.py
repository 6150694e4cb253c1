# /// script
# dependencies = [
#     "crewai==1.15.30",
#     "opentelemetry-instrumentation-crewai==0.62.4",
#     "opentelemetry-instrumentation-openai==0.62.4",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""A CrewAI crew under OpenLLMetry's instrumentors of CrewAI and of OpenAI's client."""

import sys

from desk_tools import MODEL, QUESTION, REFUSED, provider, reserve, weather

made = provider()
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor

CrewAIInstrumentor().instrument(tracer_provider=made)
OpenAIInstrumentor().instrument(tracer_provider=made)

model = LLM(model=f"openai/{MODEL}")
desk = Agent(
    role="desk",
    goal="Answer guests",
    backstory="You are the desk of a hotel.",
    tools=[tool(weather), tool(reserve)],
    llm=model,
    max_retry_limit=0,
)
task = Task(
    description=REFUSED if "refused" in sys.argv else QUESTION, expected_output="An answer", agent=desk
)
agents, tasks = [desk], [task]
if "team" in sys.argv:
    editor = Agent(role="editor", goal="Make answers short", backstory="You edit.", llm=model)
    agents.append(editor)
    tasks.append(Task(description="Shorten the answer", expected_output="A short answer", agent=editor))
try:
    print(Crew(agents=agents, tasks=tasks).kickoff().raw)
except Exception as error:
    print(type(error).__name__)
