// llama.mjs - runs the llama.cpp prebuilt in the npm package node-llama-cpp for bench/llama.py.
//
//   node bench/llama.mjs speed MODEL.gguf '{"prompt": 512, "generate": 32, "threads": 2, "seconds": 10}'
//   node bench/llama.mjs tokens MODEL.gguf < TEXT
//   node bench/llama.mjs scores MODEL.gguf '{"threads": 2, "lora": "ADAPTER.gguf"}' < PROMPTS
//
// The package is searched for from the current folder. `speed` and `tokens` print JSON. `scores`
// reads a line of token ids for each prompt. For every id it writes a row of the whole vocabulary in
// float32: the logits of the token that follows. The package samples every token that it decodes and
// passes it to JavaScript. `speed` includes both, so its decoding is slower than llama.cpp's own tools report.
import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const MIN_ROUNDS = 3;
const PIECE = 512; // of a prompt, as in dsmoe and llama-bench

async function open(file, threads) {
  const beside = createRequire(pathToFileURL(join(process.cwd(), 'package.json')));
  const { getLlama } = await import(pathToFileURL(beside.resolve('node-llama-cpp')).href);
  const llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, maxThreads: threads,
    logLevel: 'error' });
  return llama.loadModel({ modelPath: file, useMmap: true });
}

function vocabularySize(model) {
  const { metadata } = model.fileInfo;
  return metadata[metadata.general.architecture].vocab_size ?? metadata.tokenizer.ggml.tokens.length;
}

// Pseudo-random ids, so that routing has no pattern; the same in every run.
function someTokens(n, vocabulary) {
  return Array.from({ length: n }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 0) % vocabulary);
}

async function round(sequence, prompt, generate) {
  await sequence.clearHistory();
  const start = performance.now();
  let last;
  for await (last of sequence.evaluate(prompt, { yieldEogToken: true })) break;
  const middle = performance.now();
  let n = 0;
  for await (const _ of sequence.evaluate([last], { yieldEogToken: true })) if (++n === generate) break;
  const end = performance.now();
  return { prompt: (middle - start) / 1e3, token: (end - middle) / 1e3 / generate };
}

// The first round reads the file and does not count.
async function speed(file, { prompt = 512, generate = 32, threads = 2, seconds = 10 }) {
  const model = await open(file, threads);
  const context = await model.createContext({ contextSize: prompt + generate + 8, threads,
    batchSize: Math.min(prompt, PIECE), sequences: 1 });
  const sequence = context.getSequence();
  const tokens = someTokens(prompt, vocabularySize(model));
  await round(sequence, tokens, generate);
  const best = { prompt: Infinity, token: Infinity };
  const start = performance.now();
  for (let n = 0; n < MIN_ROUNDS || performance.now() - start < 1e3 * seconds; n++) {
    const now = await round(sequence, tokens, generate);
    best.prompt = Math.min(best.prompt, now.prompt);
    best.token = Math.min(best.token, now.token);
  }
  console.log(JSON.stringify({ prefill_tps: prompt / best.prompt, decode_tps: 1 / best.token,
    peak_rss_bytes: 1024 * process.resourceUsage().maxRSS }));
}

// Reads stdin to its end.
async function readAll() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

async function tokens(file) {
  const model = await open(file, 1);
  writeAll(Buffer.from(JSON.stringify(model.tokenize(await readAll()))));
}

// A pipe may accept only part of the bytes, or none yet (EAGAIN).
function writeAll(bytes) {
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

async function scores(file, { threads = 2, lora }) {
  const prompts = (await readAll()).split('\n').filter(Boolean).map((line) => line.split(' ').map(Number));
  const longest = Math.max(...prompts.map((ids) => ids.length));
  const model = await open(file, threads);
  const context = await model.createContext({ contextSize: longest + 8, threads, batchSize: longest, sequences: 1, lora });
  const sequence = context.getSequence();
  const row = new Float32Array(vocabularySize(model));
  for (const ids of prompts) {
    await sequence.clearHistory();
    const wanted = ids.map((id) => [id, { generateNext: { logits: true } }]);
    for (const { next } of await sequence.controlledEvaluate(wanted)) {
      row.fill(-Infinity);
      for (const [id, logit] of next.logits) row[id] = logit;
      writeAll(new Uint8Array(row.buffer));
    }
  }
}

const commands = { speed, tokens, scores };
const [command, file, options = '{}'] = process.argv.slice(2);
if (!commands[command] || !file) {
  console.error("usage: llama.mjs speed|tokens|scores MODEL.gguf ['{\"threads\": 2}']");
  process.exit(2);
}
await commands[command](file, JSON.parse(options));
process.exit(0);
