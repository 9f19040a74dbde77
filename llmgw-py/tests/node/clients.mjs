// The official Node clients, each of which does what its users do; says what came of it as one line of JSON.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { LLMGW_URL: url, LLMGW_KEY: key, LLMGW_MODEL: model, LLMGW_EMBEDDER: embedder, LLMGW_TOOLED: tooled } = process.env;
const messages = [{ role: "user", content: "Say hello." }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

async function refused(asking) {
  try {
    await asking;
    return null;
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code ?? error.error?.error?.code };
  }
}

async function openai() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const ask = { model, messages, max_tokens: 8, temperature: 0 };
  const whole = await client.chat.completions.create(ask);
  let streamed = "";
  let usage = null;
  const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  const tools = [{ type: "function", function: { name: "weather", parameters } }];
  const tooling = { model: tooled, messages, max_tokens: 1 };
  const plain = await client.chat.completions.create(tooling);
  const withTools = await client.chat.completions.create({ ...tooling, tools });
  const schema = { type: "object", properties: { blue: { type: "boolean" } }, required: ["blue"] };
  const structured = await client.chat.completions.create({
    ...ask,
    max_tokens: 64,
    response_format: { type: "json_schema", json_schema: { name: "sky", strict: true, schema } },
  });
  const input = "a red apple";
  const numbers = await client.embeddings.create({ model: embedder, input, encoding_format: "float" });
  const vector = await client.embeddings.create({ model: embedder, input });
  const response = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 8 });
  const events = [];
  for await (const event of await client.responses.create({ model, input: "Hi.", max_output_tokens: 4, stream: true })) {
    events.push(event.type);
  }
  const leaving = await client.chat.completions.create({ ...ask, max_tokens: 1500, stream: true, ignore_eos: true });
  for await (const _ of leaving) break;
  return {
    model: whole.model,
    whole: whole.choices[0].message.content,
    streamed,
    usage: [whole.usage.completion_tokens, usage?.completion_tokens],
    tools: [plain.usage.prompt_tokens, withTools.usage.prompt_tokens],
    structured: JSON.parse(structured.choices[0].message.content),
    vectors: [numbers.data[0].embedding, vector.data[0].embedding],
    response: response.output_text,
    events: [events[0], events.at(-1)],
    refused: await refused(client.chat.completions.create({ ...ask, model: "nobody" })),
  };
}

async function anthropic() {
  const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
  const ask = { model, messages, max_tokens: 8, temperature: 0 };
  const whole = await client.messages.create(ask);
  const stream = client.messages.stream(ask);
  let streamed = "";
  stream.on("text", (text) => {
    streamed += text;
  });
  const last = await stream.finalMessage();
  const tools = [{ name: "weather", input_schema: parameters }];
  const plain = await client.messages.countTokens({ model: tooled, messages });
  const withTools = await client.messages.countTokens({ model: tooled, messages, tools });
  const leaving = await client.messages.create({ ...ask, max_tokens: 1500, stream: true });
  for await (const _ of leaving) break;
  return {
    model: whole.model,
    whole: whole.content[0].text,
    streamed,
    usage: [whole.usage.output_tokens, last.usage.output_tokens],
    tools: [plain.input_tokens, withTools.input_tokens],
    refused: await refused(client.messages.create({ ...ask, model: "nobody" })),
  };
}

console.log(JSON.stringify(await { openai, anthropic }[process.argv[2]]()));
