// server.mjs - the server under test. DSMOE is the path of the command, MODEL the path of a small model. Or
// DSMOE_URL is the address of a running server; then tests that need other options are skipped.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const START_MS = 60000;

export const canStart = Boolean(process.env.DSMOE && process.env.MODEL);
export const hasServer = canStart || Boolean(process.env.DSMOE_URL);

// Returns {url, stop()}. With `args`, such as ["--api-key", "k"], a separate server is started.
export async function startServer(args = []) {
  if (!args.length && process.env.DSMOE_URL)
    return { url: process.env.DSMOE_URL.replace(/\/$/, ""), stop: async () => {} };
  const child = spawn(process.env.DSMOE, ["serve", "-m", process.env.MODEL, "--port", "0", ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const url = await addressOf(child);
  child.stdout.resume();
  return {
    url,
    async stop() {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

function addressOf(child) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill("SIGKILL");
      reject(new Error("The server printed no address."));
    }, START_MS);
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`The server ended with ${code} before it listened.`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const found = /http:\/\/[^\s/]+:\d+/.exec(line);
      if (!found) return;
      clearTimeout(timer);
      resolve(found[0]);
    });
  });
}

export async function getJson(url, path, options) {
  const answer = await fetch(url + path, options);
  return answer.json();
}

export const postJson = (url, path, body, headers = {}) =>
  fetch(url + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  });

// ---- a server in between ---------------------------------------------------------------------------
// Small models answer faster than a test can look, and end at any length. The pacer passes everything on to
// the server, but it slows the events of an answer, asks for answers of a given length, and can answer in the
// server's place.

export class Pacer {
  requests = []; // bodies of completion requests, as the page sent them
  authorization = null; // of the last request
  tokens = 60;
  eventMs = 10;
  props = {}; // fields of /props to change
  #canned = [];
  #target;
  #server;

  constructor(target) {
    this.#target = target;
    this.#server = createServer((request, response) => {
      this.#pass(request, response).catch(() => response.destroy());
    });
  }

  async listen() {
    await new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
    return this;
  }

  close() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  // The next request for `path` gets this answer: {status, headers, body}.
  answerNext(path, answer) {
    this.#canned.push({ path, answer });
  }

  // The next chat request gets a streamed answer with this text.
  answerNextWith(text) {
    const chunk = (delta, finish) =>
      `data: ${JSON.stringify({ id: "x", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
    this.answerNext("/v1/chat/completions", {
      status: 200,
      headers: { "Content-Type": "text/event-stream" },
      body: `${chunk({ role: "assistant", content: "" }, null)}${chunk({ content: text }, null)}${chunk({}, "stop")}data: [DONE]\n\n`,
    });
  }

  async #pass(request, response) {
    const body = await bodyOf(request);
    const path = request.url.split("?")[0];
    const at = this.#canned.findIndex((entry) => entry.path === path);
    if (path.endsWith("completions")) {
      this.requests.push(JSON.parse(body));
      this.authorization = request.headers.authorization ?? null;
    }
    if (at >= 0) {
      const { status, headers, body: text } = this.#canned.splice(at, 1)[0].answer;
      return response.writeHead(status, headers).end(text);
    }
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const answer = await fetch(this.#target + request.url, {
      method: request.method,
      headers: this.#headers(request),
      body: request.method === "POST" ? this.#bodyFor(path, body) : undefined,
      signal: gone.signal,
    });
    response.writeHead(
      answer.status,
      Object.fromEntries(
        [...answer.headers].filter(
          ([name]) => !/^(content-(length|encoding)|transfer-encoding|connection|keep-alive)$/.test(name),
        ),
      ),
    );
    if (path === "/props") return response.end(JSON.stringify({ ...(await answer.json()), ...this.props }));
    const isStream = answer.headers.get("content-type")?.startsWith("text/event-stream");
    for await (const piece of isStream ? eventsOf(answer.body) : answer.body) {
      response.write(piece);
      if (isStream && path !== "/routing") await new Promise((resolve) => setTimeout(resolve, this.eventMs));
    }
    response.end();
  }

  // The server refuses foreign Hosts and Origins, so only these headers are passed on.
  #headers(request) {
    const kept = ["content-type", "authorization", "x-api-key", "accept"];
    return Object.fromEntries(
      kept.filter((name) => request.headers[name]).map((name) => [name, request.headers[name]]),
    );
  }

  #bodyFor(path, body) {
    if (!path.endsWith("completions")) return body;
    return JSON.stringify({ max_tokens: this.tokens, ...JSON.parse(body), ignore_eos: true });
  }
}

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function* eventsOf(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of body) {
    const events = (rest + decoder.decode(piece, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) yield `${event}\n\n`;
  }
  if (rest) yield rest;
}
