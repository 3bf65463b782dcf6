// experts.test.mjs - the numbers about routing against values worked out by hand, and the log they are
// computed from.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  entropies,
  expectedDistinct,
  heatOf,
  mean,
  overEven,
  overlaps,
  ranking,
  routedTokens,
  sharesOf,
  usedExperts,
} from "../../src/serve/page/experts_math.js";
import { LiveLevels } from "../../src/serve/page/live_levels.js";
import { RoutingLog, RoutingMemory } from "../../src/serve/page/routing_log.js";

const near = (actual, expected, within = 1e-4) =>
  assert.ok(Math.abs(actual - expected) < within, `${actual} is not ${expected}`);
const allNear = (actual, expected, within) => expected.forEach((value, i) => near(actual[i], value, within));

// Two layers of four experts, two per token: one token of the prompt, two of the answer, and the last one.
function exampleLog() {
  const log = new RoutingLog(2, 2, 1);
  log.add(
    {
      position: 4,
      text: "P",
      experts: [
        [0, 1],
        [2, 3],
      ],
      weights: [
        [0.5, 0.25],
        [0.4, 0.1],
      ],
    },
    true,
  );
  log.add({
    position: 5,
    text: "a",
    experts: [
      [0, 2],
      [2, 1],
    ],
    weights: [
      [0.5, 0.25],
      [0.4, 0.1],
    ],
  });
  log.add({
    position: 6,
    text: "b",
    experts: [
      [0, 3],
      [2, 0],
    ],
    weights: [
      [0.5, 0.25],
      [0.4, 0.1],
    ],
  });
  log.add({ position: 7, text: "c", experts: [], weights: [] });
  return log;
}

test("a log keeps tokens in order and knows which have experts", () => {
  const log = exampleLog();
  assert.equal(log.length, 4);
  assert.equal(log.nPrompt, 1);
  assert.deepEqual(log.texts, ["P", "a", "b", "c"]);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((i) => log.isRouted(i)),
    [true, true, true, false, false],
  );
  const [best, second] = log.at(1, 1);
  assert.deepEqual([best.expert, second.expert], [2, 1]);
  near(best.gate, 0.4);
  assert.deepEqual(log.at(3, 0), []);
});

test("text and experts of a token may come in two entries", () => {
  const log = new RoutingLog(1, 2);
  log.add({ position: 9, text: "x", experts: [], weights: [] });
  assert.equal(log.isRouted(0), false);
  log.add({ position: 9, experts: [[3, 1]], weights: [[0.7, 0.2]] });
  log.add({ position: 10, text: "y", experts: [], weights: [] });
  assert.equal(log.length, 2);
  assert.equal(log.isRouted(0), true);
  assert.equal(log.texts[0], "x");
});

test("an entry before all others is left out", () => {
  const log = exampleLog();
  assert.equal(
    log.add({
      position: 1,
      text: "late",
      experts: [
        [0, 1],
        [0, 1],
      ],
      weights: [
        [1, 1],
        [1, 1],
      ],
    }),
    -1,
  );
  assert.equal(log.length, 4);
});

test("a packed log comes back; a damaged one does not", () => {
  const log = exampleLog();
  const packed = JSON.parse(JSON.stringify(log.pack()));
  const back = RoutingLog.unpack(packed);
  assert.deepEqual(back.texts, log.texts);
  assert.deepEqual(back.at(2, 0), log.at(2, 0));
  assert.equal(RoutingLog.unpack({ ...packed, layers: 3 }), null);
  assert.equal(RoutingLog.unpack({ ...packed, texts: ["x"] }), null);
  assert.equal(RoutingLog.unpack({ ...packed, experts: "%" }), null);
  assert.equal(RoutingLog.unpack(null), null);
});

test("small logs are kept beside the conversation, large ones are not", () => {
  const entries = new Map();
  const storage = {
    get length() {
      return entries.size;
    },
    key: (i) => [...entries.keys()][i],
    getItem: (k) => entries.get(k) ?? null,
    setItem: (k, v) => entries.set(k, v),
    removeItem: (k) => entries.delete(k),
  };
  const memory = new RoutingMemory(storage);
  const large = new RoutingLog(27, 6, 1);
  for (let i = 0; i < 200; i++) large.add({ position: i, text: "t", experts: [[1]], weights: [[1]] });
  memory.set("small", exampleLog());
  memory.set("large", large);
  memory.save({ id: "c", messages: [{ id: "small" }, { id: "large" }] });
  const again = new RoutingMemory(storage);
  again.load("c");
  assert.equal(again.get("small").length, 4);
  assert.equal(again.get("large"), null);
  again.forgetKept();
  assert.equal(entries.size, 0);
  assert.equal(again.get("small").length, 4, "what is in memory stays");
});

test("heat sums gate values or choices, of the prompt, the answer or both", () => {
  const logs = [exampleLog()];
  allNear(heatOf(logs, 2, 4), [1.5, 0.25, 0.25, 0.25, 0.1, 0.1, 1.2, 0.1]);
  allNear(heatOf(logs, 2, 4, { measure: "choices" }), [3, 1, 1, 1, 1, 1, 3, 1]);
  allNear(heatOf(logs, 2, 4, { part: "prompt" }), [0.5, 0.25, 0, 0, 0, 0, 0.4, 0.1]);
  allNear(heatOf(logs, 2, 4, { part: "answer" }), [1, 0, 0.25, 0.25, 0.1, 0.1, 0.8, 0]);
  assert.deepEqual([routedTokens(logs), routedTokens(logs, "prompt"), routedTokens(logs, "answer")], [3, 1, 2]);
});

test("shares sum to one in each layer that was used", () => {
  allNear(sharesOf(Float64Array.of(2, 6, 0, 0), 2, 2), [0.25, 0.75, 0, 0]);
});

test("entropy: even is log2 of the experts, one alone is none", () => {
  allNear(entropies(Float64Array.of(0.25, 0.25, 0.25, 0.25, 1, 0, 0, 0, 0.5, 0.5, 0, 0), 3, 4), [2, 0, 1]);
});

test("used experts and ranking", () => {
  assert.deepEqual(usedExperts(Float64Array.of(1, 0, 0, 2), 2, 2), [1, 1]);
  assert.deepEqual(
    ranking(Float64Array.of(0.2, 0.8, 0.8, 0.2), 2, 2).map(({ layer, expert }) => [layer, expert]),
    [
      [0, 1],
      [1, 0],
      [0, 0],
      [1, 1],
    ],
  );
});

test("overlap of equal, disjoint and half-alike layers", () => {
  const a = Float64Array.of(0.5, 0.5, 0, 1, 0, 0, 0.5, 0.5, 0);
  const b = Float64Array.of(0.5, 0.5, 0, 0, 1, 0, 0, 0.5, 0.5);
  const [equal, disjoint, half] = overlaps(a, b, 3, 3);
  assert.deepEqual([equal.common, equal.jaccard], [1, 1]);
  near(equal.cosine, 1);
  assert.deepEqual(disjoint, { common: 0, cosine: 0, jaccard: 0 });
  near(half.common, 0.5);
  near(half.cosine, 0.5);
  near(half.jaccard, 1 / 3);
});

test("chance: 64 experts, 6 each", () => {
  near(expectedDistinct(64, 6, 1), 6);
  near(expectedDistinct(64, 6, 2), 64 * (1 - (58 / 64) ** 2));
  near(expectedDistinct(64, 6, 16), 50.75, 0.01);
});

test("over even: the even share is the middle, four times it the end", () => {
  assert.deepEqual(
    [overEven(1 / 64, 64), overEven(4 / 64, 64), overEven(0.25 / 64, 64), overEven(0, 64), overEven(1, 64)],
    [0, 1, -1, -1, 1],
  );
});

test("mean of nothing is zero", () => assert.equal(mean([]), 0));

test("a token lights its experts, light fades, use stays as a glow", () => {
  const levels = new LiveLevels(2, 4);
  const log = exampleLog();
  levels.light(log, 0, 1000);
  const lit = [...levels.toSteps()];
  assert.ok(lit[0] > lit[1] && lit[1] > 0, "the larger gate is brighter");
  assert.equal(lit[2], 0);
  assert.equal(levels.fade(330), true);
  const half = levels.toSteps();
  assert.ok(half[0] < lit[0] && half[0] > 0);
  for (let i = 0; i < 60; i++) levels.fade(100);
  assert.equal(levels.fade(100), false);
  assert.ok(levels.toSteps()[0] > 0, "the glow stays");
  levels.clear();
  assert.equal(levels.toSteps()[0], 0);
});

test("an answer of earlier glows, but is not lit", () => {
  const levels = new LiveLevels(2, 4);
  levels.recall(exampleLog());
  assert.ok(levels.toSteps()[0] > 0);
  assert.equal(levels.fade(1), false);
});

test("fast tokens fade faster, so that they do not light everything", () => {
  const slow = new LiveLevels(2, 4);
  const fast = new LiveLevels(2, 4);
  for (let i = 1; i < 100; i++) {
    slow.light(exampleLog(), 0, i * 200);
    fast.light(exampleLog(), 0, i * 16);
  }
  assert.ok(slow.halfLife > 300);
  assert.ok(fast.halfLife < 70);
});

test("without motion only the last token is lit", () => {
  const levels = new LiveLevels(2, 4);
  const log = exampleLog();
  levels.light(log, 0, 1000, false);
  levels.light(log, 1, 1100, false);
  assert.equal(levels.levels[1], 0);
  assert.ok(levels.levels[2] > 0);
});
