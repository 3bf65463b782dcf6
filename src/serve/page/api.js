// api.js - requests to the server: JSON answers, streams of events, and the key if the server needs one.
import { readEvents } from "./sse.js";
import { remember, session } from "./storage.js";

const KEY = "dsmoe.key";

// Why a request failed; `status` is 0 if the server could not be reached.
export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export class Api {
  #askKey;
  #asking = null;

  // `askKey(wrong)` shows a dialog and resolves to a key, or to null if the person has none.
  constructor(askKey) {
    this.#askKey = askKey;
  }

  async json(path, body, signal) {
    const answer = await this.#request(path, body, signal);
    return answer.json();
  }

  // For requests that the page makes on its own: it never asks the person for a key.
  async glance(path) {
    const answer = await this.#send(path, undefined, undefined, session.getItem(KEY));
    if (!answer.ok) throw await errorOf(answer);
    return answer.json();
  }

  // The parsed events of a stream, until it ends or says [DONE].
  async *stream(path, body, signal) {
    const answer = await this.#request(path, body, signal);
    for await (const text of readEvents(answer.body)) {
      if (text === "[DONE]") return;
      const event = JSON.parse(text);
      if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message);
      yield event;
    }
  }

  async #request(path, body, signal) {
    let key = session.getItem(KEY);
    for (;;) {
      const answer = await this.#send(path, body, signal, key);
      if (answer.ok) return answer;
      if (answer.status !== 401) throw await errorOf(answer);
      key = await this.#nextKey(key);
      if (!key) throw await errorOf(answer);
    }
  }

  async #send(path, body, signal, key) {
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    try {
      return await fetch(path, {
        method: body === undefined ? "GET" : "POST",
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The server cannot be reached.");
    }
  }

  // Several requests may be refused at the same time; the person is asked once for all of them.
  async #nextKey(refused) {
    const stored = session.getItem(KEY);
    if (stored && stored !== refused) return stored;
    this.#asking ??= this.#askKey(Boolean(refused)).finally(() => {
      this.#asking = null;
    });
    const key = await this.#asking;
    if (key) remember(session, KEY, key);
    return key;
  }
}

async function errorOf(answer) {
  let message = `The server answered with status ${answer.status}.`;
  try {
    const body = await answer.json();
    if (typeof body.error?.message === "string") message = body.error.message;
  } catch {
    // Not JSON: a program between the page and the server answered.
  }
  const seconds = Number(answer.headers.get("Retry-After"));
  return new ApiError(answer.status, message, seconds > 0 ? seconds : null);
}
