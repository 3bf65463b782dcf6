// client.test.mjs - the HTTP interface as clients use it: the official `openai` client, plain requests where
// a client would hide what is sent, and what scripts written for other servers rely on.
import assert from "node:assert/strict";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { canStart, getJson, hasServer, Pacer, postJson, startServer } from "./server.mjs";

const GREEDY = { temperature: 0, seed: 1, max_tokens: 24, ignore_eos: true };
const SENTENCE = "The experts of a layer share the work, and the gate chooses a few of them for every token. ";

let server, props, client, LONG;

before(async () => {
  if (!hasServer) return;
  server = await startServer();
  props = await getJson(server.url, "/props");
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  // A prompt that fills a third of the context, but not more than needed to fill pages of a cache.
  const { tokens } = await (await postJson(server.url, "/tokenize", { content: SENTENCE })).json();
  LONG = SENTENCE.repeat(Math.max(1, Math.min(8, Math.floor(props.n_ctx / 3 / tokens.length))));
});
after(() => server?.stop());

const skip = hasServer ? false : "needs DSMOE and MODEL, or DSMOE_URL";
const hasChat = () => props.chat_template !== null;
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The same question in both forms: as a chat, if the model has one, and as text.
const ask = (text, more = {}) =>
  client.chat.completions.create({
    model: props.model,
    messages: [{ role: "user", content: text }],
    ...GREEDY,
    ...more,
  });
const complete = (prompt, more = {}) => client.completions.create({ model: props.model, prompt, ...GREEDY, ...more });

async function joined(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const text = chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? chunk.choices[0]?.text ?? "").join("");
  return { chunks, text };
}

// The events of a stream, unparsed.
async function rawEvents(path, body) {
  const answer = await postJson(server.url, path, { ...body, stream: true });
  assert.equal(answer.status, 200);
  assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
  const text = await answer.text();
  assert.ok(text.endsWith("\n\n"));
  return text
    .split("\n\n")
    .flatMap((event) => event.split("\n"))
    .filter((line) => line.startsWith("data: "))
    .map((line) => line.slice(6));
}

async function slotsIdle(within = 2000) {
  for (const began = Date.now(); Date.now() - began < within; await wait(30)) {
    const slots = await getJson(server.url, "/slots");
    if (slots.every(({ state }) => state === "idle")) return true;
  }
  return false;
}

async function isApiError(answer, status, type) {
  assert.equal(answer.status, status);
  assert.match(answer.headers.get("content-type"), /^application\/json/);
  assert.ok(answer.headers.get("x-request-id"));
  const { error } = await answer.json();
  assert.equal(error.code, status);
  assert.equal(typeof error.message, "string");
  if (type) assert.equal(error.type, type);
  return error;
}

describe("chat", { skip }, () => {
  const chatTest = (name, body) =>
    test(name, async (t) => (hasChat() ? body(t) : t.skip("the model has no chat form")));

  chatTest("an answer has text, a reason for its end, and usage that adds up", async () => {
    const answer = await ask("Hello");
    assert.equal(answer.object, "chat.completion");
    assert.equal(answer.choices.length, 1);
    assert.equal(answer.choices[0].message.role, "assistant");
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, 24);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 24);
    assert.equal(answer.timings.prompt_n + answer.timings.cache_n, answer.usage.prompt_tokens);
    assert.equal(answer.timings.predicted_n, 24);
  });

  chatTest("a stream has the same text, in the form clients rely on", async () => {
    const whole = await ask("Tell me something.");
    const { chunks, text } = await joined(
      await ask("Tell me something.", { stream: true, stream_options: { include_usage: true } }),
    );
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
    assert.ok(chunks.every(({ object }) => object === "chat.completion.chunk"));
    assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
    assert.ok(chunks.slice(0, -2).every(({ choices }) => choices[0].finish_reason === null && choices[0].index === 0));
    assert.deepEqual(chunks.at(-2).choices[0].delta, {});
    assert.equal(chunks.at(-2).choices[0].finish_reason, "length");
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.deepEqual(
      { ...chunks.at(-1).usage, prompt_tokens_details: 0 },
      { ...whole.usage, prompt_tokens_details: 0 },
    );
    const events = await rawEvents("/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }], ...GREEDY });
    assert.equal(events.at(-1), "[DONE]");
    assert.ok(events.slice(0, -1).every((text) => !("usage" in JSON.parse(text)) || JSON.parse(text).usage === null));
  });

  chatTest("content may come in parts, null means absent, unknown fields are ignored", async () => {
    const plain = await ask("ab");
    const parts = await client.chat.completions.create({
      ...GREEDY,
      model: props.model,
      top_p: null,
      stop: null,
      an_unknown_field: { a: 1 },
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "text", text: "b" },
          ],
        },
      ],
    });
    assert.equal(parts.choices[0].message.content, plain.choices[0].message.content);
  });

  chatTest("logprobs tell the text that was written", async () => {
    const answer = await ask("Count.", { logprobs: true, top_logprobs: 3 });
    const { content } = answer.choices[0].logprobs;
    assert.equal(content.length, 24);
    const text = answer.choices[0].message.content;
    if (!text.includes("\ufffd")) assert.equal(Buffer.from(content.flatMap(({ bytes }) => bytes)).toString(), text);
    for (const entry of content) {
      assert.ok(entry.logprob <= 0);
      assert.equal(entry.top_logprobs.length, 3);
      assert.ok(entry.top_logprobs[0].logprob >= entry.top_logprobs[2].logprob);
    }
    await assert.rejects(ask("x", { top_logprobs: 3 }), (error) => error.status === 400);
  });

  chatTest("malformed messages are refused", async () => {
    const bad = [
      undefined,
      null,
      "text",
      [],
      [null],
      ["text"],
      [{ role: "user", content: 5 }],
      [{ role: "nobody", content: "x" }],
      [{ content: "x" }],
    ];
    for (const messages of bad)
      await isApiError(await postJson(server.url, "/v1/chat/completions", { messages }), 400, "invalid_request_error");
    const image = [{ role: "user", content: [{ type: "image_url" }] }];
    await isApiError(await postJson(server.url, "/v1/chat/completions", { messages: image }), 501, "not_supported_error");
  });

  chatTest("the template can be seen, and is what a chat is made of", async () => {
    const messages = [{ role: "user", content: "Hello there" }];
    const { prompt } = await (await postJson(server.url, "/apply-template", { messages })).json();
    assert.match(prompt, /Hello there/);
  });
});

describe("text", { skip }, () => {
  test("stream and answer are equal, and so is the same seed; another seed is another text", async () => {
    const sampled = { temperature: 1.5, max_tokens: 40 };
    const first = (await complete("Once", { ...sampled, seed: 7 })).choices[0].text;
    assert.equal((await joined(await complete("Once", { ...sampled, seed: 7, stream: true }))).text, first);
    const others = await Promise.all([8, 9, 10].map((seed) => complete("Once", { ...sampled, seed })));
    assert.ok(others.some(({ choices }) => choices[0].text !== first));
  });

  test("two choices, whole and streamed", async () => {
    const { choices, usage } = await complete("Twice", { n: 2, temperature: 1.5 });
    assert.deepEqual(
      choices.map(({ index }) => index),
      [0, 1],
    );
    assert.equal(usage.completion_tokens, 48);
    const { chunks } = await joined(await complete("Twice", { n: 2, temperature: 1.5, stream: true }));
    for (const index of [0, 1]) {
      const own = chunks.filter((chunk) => chunk.choices[0]?.index === index);
      assert.equal(own.map((chunk) => chunk.choices[0].text).join(""), choices[index].text);
      assert.equal(own.at(-1).choices[0].finish_reason, "length");
    }
  });

  test("a stop text ends the answer and is no part of it, whole and streamed", async (t) => {
    const {
      choices: [{ text }],
    } = await complete("Stop", { max_tokens: 40 });
    const stop = /[!-~]{2,3}/.exec(text.slice(4))?.[0]; // plain characters only, as a small model may write invalid bytes
    if (!stop) return t.skip("the model wrote no plain characters");
    const expected = text.slice(0, text.indexOf(stop));
    const stopped = await complete("Stop", { max_tokens: 40, stop });
    assert.equal(stopped.choices[0].text, expected);
    assert.equal(stopped.choices[0].finish_reason, "stop");
    assert.equal((await joined(await complete("Stop", { max_tokens: 40, stop: [stop], stream: true }))).text, expected);
  });

  test("prompts as text, as ids, and several at once", async () => {
    const { tokens } = await (
      await postJson(server.url, "/tokenize", { content: "Some words here", add_special: true })
    ).json();
    const byText = await complete("Some words here");
    const byIds = await complete(tokens);
    assert.equal(byIds.usage.prompt_tokens, tokens.length);
    if (byText.usage.prompt_tokens === tokens.length) assert.equal(byIds.choices[0].text, byText.choices[0].text);
    const both = await complete(["Some words here", "Other words"]);
    assert.deepEqual(
      both.choices.map(({ index }) => index),
      [0, 1],
    );
    assert.equal(both.choices[0].text, byText.choices[0].text);
    assert.equal(both.choices[1].text, (await complete("Other words")).choices[0].text);
  });

  test("logprobs of text", async () => {
    const {
      choices: [{ text, logprobs }],
    } = await complete("Logs", { logprobs: 2 });
    assert.equal(logprobs.tokens.length, 24);
    assert.equal(logprobs.token_logprobs.length, 24);
    if (!text.includes("\ufffd")) assert.equal(logprobs.tokens.join(""), text);
  });

  test("a token with a bias of -100 does not come", async () => {
    const { tokens } = await (
      await postJson(server.url, "/completion", {
        prompt: "Bias",
        temperature: 0,
        n_predict: 1,
        ignore_eos: true,
        return_tokens: true,
      })
    ).json();
    const { tokens: others } = await (
      await postJson(server.url, "/completion", {
        prompt: "Bias",
        temperature: 0,
        n_predict: 1,
        ignore_eos: true,
        return_tokens: true,
        logit_bias: { [tokens[0]]: -100 },
      })
    ).json();
    assert.notEqual(others[0], tokens[0]);
  });

  test("no tokens at all: the prompt alone", async () => {
    const {
      choices: [{ text }],
      usage,
    } = await complete("Only read this", { max_tokens: 0 });
    assert.equal(text, "");
    assert.equal(usage.completion_tokens, 0);
    assert.ok(usage.prompt_tokens > 0);
  });

  test("what was read once comes from the cache, and the text is the same", async () => {
    const first = await complete(LONG);
    const second = await complete(LONG);
    const { cached_tokens: cached } = second.usage.prompt_tokens_details;
    assert.ok(cached > 0 && cached < second.usage.prompt_tokens);
    assert.equal(second.timings.cache_n, cached);
    assert.equal(second.timings.prompt_n + cached, second.usage.prompt_tokens);
    assert.equal(second.choices[0].text, first.choices[0].text);
    const without = await complete(LONG, { cache_prompt: false });
    assert.equal(without.usage.prompt_tokens_details.cached_tokens, 0);
    assert.equal(without.choices[0].text, first.choices[0].text);
  });

  test("a prompt over the context is refused with both lengths, streamed or not", async () => {
    const prompt = "word ".repeat(props.n_ctx + 10);
    for (const stream of [false, true]) {
      const error = await isApiError(
        await postJson(server.url, "/v1/completions", { prompt, stream }),
        400,
        "invalid_request_error",
      );
      assert.ok(error.message.replace(/\D/g, " ").includes(String(props.n_ctx)), error.message);
    }
  });

  test("values that cannot be are refused by their names", async () => {
    for (const [field, value] of [
      ["temperature", -1],
      ["temperature", "hot"],
      ["top_p", 2],
      ["n", 0],
      ["n", 1000],
      ["max_tokens", -5],
    ]) {
      await isApiError(
        await postJson(server.url, "/v1/completions", { prompt: "x", [field]: value }),
        400,
        "invalid_request_error",
      );
    }
    for (const prompt of [undefined, null, {}, [], [-1], [999999999], [[]]])
      await isApiError(await postJson(server.url, "/v1/completions", { prompt }), 400);
    const broken = await fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: "{",
    });
    await isApiError(broken, 400, "invalid_request_error");
  });
});

describe("many requests", { skip }, () => {
  test("more than there are slots all finish, and leave the slots idle", async () => {
    const count = props.total_slots + 3;
    const answers = await Promise.all(Array.from({ length: count }, (_, i) => complete(`Request ${i}`)));
    for (const [i, answer] of answers.entries()) {
      assert.equal(answer.usage.completion_tokens, 24);
      assert.equal(
        answer.choices[0].text,
        (await complete(`Request ${i}`)).choices[0].text,
        "a crowd changes no answer",
      );
    }
    assert.ok(await slotsIdle());
  });

  test("a client that leaves frees its slot within two seconds", async () => {
    const abort = new AbortController();
    const stream = await client.completions.create(
      { model: props.model, prompt: LONG, stream: true, ignore_eos: true, temperature: 1 },
      { signal: abort.signal },
    );
    for await (const chunk of stream) if (chunk.choices[0].text) break;
    abort.abort();
    assert.ok(await slotsIdle(2000));
  });

  test("one that leaves while it waits does not run, and others are not disturbed", async () => {
    const abort = new AbortController();
    const leaving = Array.from({ length: props.total_slots + 2 }, () =>
      client.completions
        .create({ model: props.model, prompt: LONG, ignore_eos: true }, { signal: abort.signal })
        .catch((error) => error),
    );
    const staying = complete("Staying");
    await wait(50);
    abort.abort();
    for (const gone of await Promise.all(leaving)) assert.ok(gone instanceof OpenAI.APIUserAbortError || gone.choices);
    assert.equal((await staying).usage.completion_tokens, 24);
    assert.ok(await slotsIdle());
  });

  test("the counters of /metrics grow by what answers say", async () => {
    assert.ok(await slotsIdle(20000));
    const read = async () => {
      const answer = await fetch(`${server.url}/metrics`);
      assert.match(answer.headers.get("content-type"), /^text\/plain/);
      const text = await answer.text();
      return (name) => Number(new RegExp(`^dsmoe_${name} ([\\d.e+]+)$`, "m").exec(text)?.[1]);
    };
    const earlier = await read();
    const answers = [await complete("Counting one"), await complete("Counting two")];
    const later = await read();
    const sum = (field) => answers.reduce((total, { timings }) => total + timings[field], 0);
    assert.equal(later("predicted_tokens_total") - earlier("predicted_tokens_total"), sum("predicted_n"));
    assert.equal(later("cached_tokens_total") - earlier("cached_tokens_total"), sum("cache_n"));
    const grown = later("prompt_tokens_total") - earlier("prompt_tokens_total");
    assert.ok([sum("prompt_n"), sum("prompt_n") + sum("cache_n")].includes(grown), `prompt tokens grew by ${grown}`);
  });
});

describe("routing", { skip }, () => {
  // The text and the experts of a token may be in different chunks; they are joined by position.
  function byPosition(entries) {
    const tokens = new Map();
    for (const { position, text, experts, weights } of entries) {
      const token = tokens.get(position) ?? { text: "", experts: [], weights: [] };
      tokens.set(position, {
        text: text || token.text,
        experts: experts.length ? experts : token.experts,
        weights: weights.length ? weights : token.weights,
      });
    }
    return tokens;
  }

  test("each token has the experts of each layer, but for the last", async () => {
    const { n_layers: layers, n_routed_experts: experts, num_experts_per_tok: top } = props.moe;
    const { chunks, text } = await joined(
      await complete("Route these words, please.", {
        routing: true,
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    const promptTokens = chunks.findLast((chunk) => chunk.usage).usage.prompt_tokens;
    const tokens = byPosition(chunks.flatMap((chunk) => chunk.routing ?? []));
    const positions = [...tokens.keys()];
    assert.deepEqual(
      positions,
      [...positions].sort((a, b) => a - b),
    );
    assert.equal(positions.at(-1), promptTokens + 23);
    const answer = positions.filter((position) => position >= promptTokens).map((position) => tokens.get(position));
    assert.equal(answer.length, 24);
    if (!text.includes("\ufffd")) assert.equal(answer.map((token) => token.text).join(""), text);
    assert.deepEqual(answer.at(-1).experts, []);
    for (const position of positions.slice(0, -1)) {
      const token = tokens.get(position);
      assert.equal(token.experts.length, layers);
      for (const [l, chosen] of token.experts.entries()) {
        assert.equal(new Set(chosen).size, top);
        assert.ok(chosen.every((expert) => Number.isInteger(expert) && expert >= 0 && expert < experts));
        assert.equal(token.weights[l].length, top);
        assert.ok(
          token.weights[l].every((gate, k, all) => gate >= 0 && (k === 0 || gate <= all[k - 1])),
          "best first",
        );
      }
    }
  });

  test("a whole answer has the same, and asking for it changes no text", async () => {
    const plain = await complete("Route this too.");
    const routed = await complete("Route this too.", { routing: true });
    assert.equal(routed.choices[0].text, plain.choices[0].text);
    assert.equal(plain.routing, undefined);
    assert.ok(byPosition(routed.routing).size >= 24);
  });

  test("it needs n = 1", async () => {
    await isApiError(
      await postJson(server.url, "/v1/completions", { prompt: "x", n: 2, routing: true }),
      400,
      "invalid_request_error",
    );
  });

  test("the crowd's stream tells of passes while something runs", async () => {
    const abort = new AbortController();
    const answer = await fetch(`${server.url}/routing`, { signal: abort.signal });
    assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const request = complete(LONG, { cache_prompt: false });
    let text = "";
    while (!/^data: .*\n\n/m.test(text)) text += (await reader.read()).value;
    const event = JSON.parse(/^data: (.*)\n\n/m.exec(text)[1]);
    assert.equal(event.distinct.length, props.moe.n_layers);
    assert.equal(event.load.length, props.moe.n_layers);
    assert.equal(event.load[0].length, props.moe.n_routed_experts);
    assert.ok(event.rows >= event.passes && event.passes >= 1);
    abort.abort();
    await request;
  });
});

describe("the native forms", { skip }, () => {
  test("/completion has its own answer, whole and streamed without [DONE]", async () => {
    const body = { prompt: "Native", temperature: 0, n_predict: 16, ignore_eos: true, return_tokens: true };
    const whole = await (await postJson(server.url, "/completion", body)).json();
    assert.equal(whole.stop, true);
    assert.equal(whole.stop_type, "limit");
    assert.equal(whole.tokens.length, 16);
    assert.equal(whole.tokens_predicted, 16);
    assert.equal(whole.truncated, false);
    const events = (await rawEvents("/completion", body)).map((text) => JSON.parse(text));
    assert.equal(events.map(({ content }) => content).join(""), whole.content);
    assert.ok(events.slice(0, -1).every(({ stop }) => stop === false));
    assert.equal(events.at(-1).stop, true);
    assert.equal(events.at(-1).stop_type, "limit");
  });

  test("mixed prompts of text and ids", async () => {
    const { tokens } = await (await postJson(server.url, "/tokenize", { content: " and more" })).json();
    const answer = await postJson(server.url, "/completion", {
      prompt: ["Text", ...tokens],
      n_predict: 4,
      temperature: 0,
    });
    assert.equal(answer.status, 200);
  });

  test("tokens become text again", async () => {
    const content = "Some text, with numbers 123 and ümläuts.";
    const { tokens } = await (await postJson(server.url, "/tokenize", { content })).json();
    assert.ok(tokens.every(Number.isInteger));
    assert.equal((await (await postJson(server.url, "/detokenize", { tokens })).json()).content, content);
    const { tokens: pieces } = await (await postJson(server.url, "/tokenize", { content, with_pieces: true })).json();
    assert.deepEqual(
      pieces.map(({ id }) => id),
      tokens,
    );
  });

  test("embeddings have length 1, alone or together, as floats or packed", async () => {
    const packed = await client.embeddings.create({ model: props.model, input: ["one text", "another"] });
    assert.deepEqual(
      packed.data.map(({ index }) => index),
      [0, 1],
    );
    const plain = await client.embeddings.create({ model: props.model, input: "one text", encoding_format: "float" });
    const [vector] = plain.data.map(({ embedding }) => embedding);
    assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-3);
    vector.forEach((value, i) => assert.ok(Math.abs(value - packed.data[0].embedding[i]) < 1e-4));
  });

  test("models, health and slots", async () => {
    const models = await client.models.list();
    assert.equal(models.data[0].id, props.model);
    assert.deepEqual(await getJson(server.url, "/health"), { status: "ok" });
    const slots = await getJson(server.url, "/slots");
    assert.equal(slots.length, props.total_slots);
    assert.ok(slots.every(({ state }) => ["idle", "prompt", "decode", "paused"].includes(state)));
  });
});

describe("who may ask", { skip }, () => {
  // fetch does not allow these headers or paths.
  const raw = (path, headers = {}, method = "GET") =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(server.url);
      const request = http.request({ hostname, port, path, method, headers }, (response) => {
        response.resume();
        response.on("end", () => resolve(response));
      });
      request.on("error", reject);
      request.end();
    });

  test("foreign origins and hosts are refused", async () => {
    for (const origin of ["http://evil.com", "http://localhost.evil.com", "http://127.0.0.1.evil.com", "null"]) {
      assert.equal((await raw("/v1/models", { origin })).statusCode, 403, origin);
    }
    for (const host of ["evil.com", "localhost.evil.com:80", "127.0.0.1.evil.com"])
      assert.equal((await raw("/v1/models", { host })).statusCode, 403, host);
    assert.equal((await raw("/v1/models", { host: "localhost" })).statusCode, 200);
  });

  test("paths lead nowhere but to the page's own files", async () => {
    for (const path of [
      "/../../etc/passwd",
      "/..%2f..%2fetc/passwd",
      "/%2e%2e/%2e%2e/etc/passwd",
      "//etc/passwd",
      "/page.c",
      "/index.html/..",
    ]) {
      assert.ok([400, 404].includes((await raw(path)).statusCode), path);
    }
    assert.equal((await raw("/index.html")).statusCode, 200);
    assert.match((await raw("/main.js")).headers["content-type"], /^text\/javascript/);
  });

  test("what is not there is 404, with an id for each request", async () => {
    const error = await client.post("/nothing", { body: {} }).catch((caught) => caught);
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.type, "not_found_error");
    const ids = await Promise.all(
      [1, 2, 3].map(async () => (await fetch(`${server.url}/health`)).headers.get("x-request-id")),
    );
    assert.equal(new Set(ids).size, 3);
  });

  test(
    "a server with keys answers those who have one",
    { skip: canStart ? false : "needs DSMOE and MODEL" },
    async () => {
      const guarded = await startServer(["--api-key", "right"]);
      try {
        const status = async (path, headers) => (await fetch(guarded.url + path, { headers })).status;
        assert.equal(await status("/v1/models", {}), 401);
        assert.equal(await status("/v1/models", { Authorization: "Bearer wrong" }), 401);
        assert.equal(await status("/v1/models", { Authorization: "Bearer right" }), 200);
        assert.equal(await status("/v1/models", { "X-Api-Key": "right" }), 200);
        assert.equal(await status("/props", {}), 401);
        for (const path of ["/health", "/", "/main.js", "/favicon.svg"])
          assert.equal(await status(path, {}), 200, path);
        assert.ok((await fetch(`${guarded.url}/v1/models`, { method: "OPTIONS" })).status < 300);
        const wrong = new OpenAI({ baseURL: `${guarded.url}/v1`, apiKey: "wrong", maxRetries: 0 });
        await assert.rejects(
          async () => wrong.models.list(),
          (error) => error instanceof OpenAI.AuthenticationError && error.type === "authentication_error",
        );
      } finally {
        await guarded.stop();
      }
    },
  );
});

describe("the client's own habits", { skip }, () => {
  test("a full server is asked again after what Retry-After says", async () => {
    const pacer = await new Pacer(server.url).listen();
    pacer.eventMs = 0;
    try {
      const full = {
        status: 429,
        headers: { "Content-Type": "application/json", "Retry-After": "1" },
        body: '{"error":{"message":"full","type":"rate_limit_error","code":429}}',
      };
      pacer.answerNext("/v1/completions", full);
      const patient = new OpenAI({ baseURL: `${pacer.url}/v1`, apiKey: "none", maxRetries: 2 });
      const began = Date.now();
      const answer = await patient.completions.create({ model: props.model, prompt: "Again", ...GREEDY });
      assert.ok(Date.now() - began >= 900);
      assert.equal(answer.usage.completion_tokens, 24);
      assert.equal(pacer.requests.length, 2);
    } finally {
      pacer.close();
    }
  });

  test("an abort in the middle of a stream ends it without an error", async () => {
    const stream = await complete("Long", { stream: true, max_tokens: undefined });
    let seen = 0;
    for await (const chunk of stream) {
      seen += chunk.choices.length;
      if (seen === 3) stream.controller.abort();
    }
    assert.ok(seen >= 3);
    assert.ok(await slotsIdle());
  });
});
