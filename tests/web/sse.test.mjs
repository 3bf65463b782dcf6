// sse.test.mjs - events arrive complete, however the bytes were divided.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents, SseParser } from "../../src/serve/page/sse.js";

const TEXT =
  ': ping\n\ndata: {"a":1}\n\ndata: one\ndata: two\n\nevent: x\nid: 7\ndata:tight\r\n\r\n:\n\ndata: [DONE]\n\n';
const EVENTS = ['{"a":1}', "one\ntwo", "tight", "[DONE]"];

for (const size of [1, 2, 3, 7, 1000]) {
  test(`pieces of ${size}`, () => {
    const parser = new SseParser();
    const events = [];
    for (let i = 0; i < TEXT.length; i += size) events.push(...parser.push(TEXT.slice(i, i + size)));
    assert.deepEqual(events, EVENTS);
  });
}

test("a line end of two characters may come apart", () => {
  const parser = new SseParser();
  assert.deepEqual(
    [..."data: a\r\ndata: b\r\n\r\n"].flatMap((c) => parser.push(c)),
    ["a\nb"],
  );
});

test("a carriage return alone ends a line", () =>
  assert.deepEqual(new SseParser().push("data: a\r\rdata: b\r\r"), ["a", "b"]));
test("an event without its end is not one", () => assert.deepEqual(new SseParser().push("data: half\n"), []));
test("an empty line of data is an event", () => assert.deepEqual(new SseParser().push("data\n\n"), [""]));

test("bytes of one character may come apart", async () => {
  const bytes = new TextEncoder().encode("data: ä€😀\n\n");
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const events = [];
  for await (const event of readEvents(body)) events.push(event);
  assert.deepEqual(events, ["ä€😀"]);
});

test("whoever stops reading closes the stream", async () => {
  let cancelled = false;
  const body = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode("data: a\n\ndata: b\n\n"));
    },
    cancel() {
      cancelled = true;
    },
  });
  for await (const event of readEvents(body)) {
    assert.equal(event, "a");
    break;
  }
  assert.equal(cancelled, true);
});
