# /// script
# dependencies = [
#     "openlit==1.45.0",
#     "langgraph==1.2.22",
#     "langchain==1.4.7",
#     "langchain-openai==1.7.3",
# ]
# ///
"""A LangChain agent under OpenLIT."""

import os

os.environ["OTEL_SERVICE_NAME"] = "desk"
import openlit

openlit.init(application_name="desk", disable_metrics=True, disable_batch=False)
from langchain_desk import run

run()
