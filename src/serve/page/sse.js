// sse.js - Server-Sent Events from a stream of text: pieces go in as they arrive, whole events come out.
// EventSource cannot send a body or a key, so the page reads the stream that fetch gives it.

// An event is the text of its `data:` lines. Comments and other fields are ignored.
export class SseParser {
  #rest = "";
  #data = [];
  #sawReturn = false;

  // Takes the next piece and returns the events that it completes.
  push(piece) {
    const events = [];
    // A \r\n may be split between two pieces; then the \n belongs to the line that has already ended.
    if (this.#sawReturn && piece.startsWith("\n")) piece = piece.slice(1);
    if (piece) this.#sawReturn = piece.endsWith("\r");
    const lines = (this.#rest + piece).split(/\r\n|\n|\r/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line, events);
    return events;
  }

  #line(line, events) {
    if (line === "") {
      if (this.#data.length) events.push(this.#data.join("\n"));
      this.#data = [];
    } else if (line === "data" || line.startsWith("data:")) {
      const value = line.slice(5);
      this.#data.push(value.startsWith(" ") ? value.slice(1) : value);
    }
  }
}

// The events of a body, one by one. The connection is closed when the caller stops reading.
export async function* readEvents(body) {
  const parser = new SseParser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
