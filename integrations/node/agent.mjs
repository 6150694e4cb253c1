// An agent in JavaScript with nothing but fetch: it asks the model, calls a tool, and posts its own
// spans as OTLP/JSON.  Where both go stands in the environment.  It knows nothing of whet.

import { randomBytes } from "node:crypto";

const { OPENAI_BASE_URL, OPENAI_API_KEY, OTEL_EXPORTER_OTLP_ENDPOINT } = process.env;
const pairs = (text) => Object.fromEntries((text ?? "").split(",").filter(Boolean).map((each) => each.split("=")));

async function post(url, body, headers) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer.json();
}

const traceId = randomBytes(16).toString("hex");
const now = () => `${BigInt(Date.now()) * 1000000n}`;
const spans = [];

function begun(name, parentSpanId) {
  const span = { traceId, spanId: randomBytes(8).toString("hex"), name, startTimeUnixNano: now() };
  if (parentSpanId) span.parentSpanId = parentSpanId;
  return span;
}

function ended(span, attributes) {
  const of = ([key, text]) => ({ key, value: { stringValue: text } });
  spans.push({ ...span, endTimeUnixNano: now(), attributes: Object.entries(attributes).map(of) });
}

const root = begun("invoke_agent guide");
const messages = [
  { role: "system", content: "You are a kind assistant. Be brief." },
  { role: "user", content: "What is the weather in Paris?" },
];

async function model() {
  const span = begun("chat scripted", root.spanId);
  const said = await post(
    `${OPENAI_BASE_URL}/chat/completions`,
    { model: "scripted", messages },
    { authorization: `Bearer ${OPENAI_API_KEY}`, traceparent: `00-${traceId}-${span.spanId}-01` },
  );
  ended(span, { "gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted" });
  return said.choices[0].message;
}

function weather(call) {
  const span = begun("execute_tool weather", root.spanId);
  const result = `22 degrees in ${JSON.parse(call.function.arguments).city}`;
  ended(span, {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": call.function.name,
    "gen_ai.tool.call.id": call.id,
    "gen_ai.tool.call.arguments": call.function.arguments,
    "gen_ai.tool.call.result": result,
  });
  return result;
}

let message = await model();
while (message.tool_calls?.length) {
  messages.push(message);
  for (const call of message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: weather(call) });
  }
  message = await model();
}
ended(root, { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide" });
const attributes = Object.entries(pairs(process.env.OTEL_RESOURCE_ATTRIBUTES)).map(([key, text]) => ({
  key,
  value: { stringValue: decodeURIComponent(text) },
}));
await post(
  `${OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`,
  { resourceSpans: [{ resource: { attributes }, scopeSpans: [{ scope: { name: "guide" }, spans }] }] },
  pairs(process.env.OTEL_EXPORTER_OTLP_HEADERS),
);
console.log(message.content);
