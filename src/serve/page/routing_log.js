// routing_log.js - the experts that each token of an answer used, in flat typed arrays: two bytes for an expert, two
// for its gate value. The 16B model's 27 layers of 6 experts take 648 bytes a token.

const NONE = 0xffff;
const SCALE = 65535; // a gate value is at most 1
const PREFIX = "dsmoe.routing.";
const MAX_KEPT = 64 << 10; // most bytes of an answer's arrays that are kept in localStorage
const MAX_KEPT_TOGETHER = 256 << 10; // the same for a conversation

export class RoutingLog {
  // `layers`: MoE layers; `top`: experts per token in each.
  constructor(layers, top, capacity = 64) {
    this.layers = layers;
    this.top = top;
    this.length = 0;
    this.nPrompt = 0; // the first entries belong to the prompt
    this.texts = [];
    this.positions = new Int32Array(capacity);
    this.experts = new Uint16Array(capacity * layers * top);
    this.gates = new Uint16Array(capacity * layers * top);
  }

  // Takes an entry of the server's "routing" and returns its index. An entry with a known position completes that
  // token, as a token's text may arrive a pass before its experts.
  add(entry, isPrompt = false) {
    let i = this.length - 1;
    while (i >= 0 && this.positions[i] > entry.position) i--;
    if (i < 0 || this.positions[i] !== entry.position) {
      if (i !== this.length - 1) return -1; // out of order, and its position is unknown
      i = this.#append(entry.position, isPrompt);
    }
    if (typeof entry.text === "string" && entry.text) this.texts[i] = entry.text;
    if (entry.experts?.length) this.#fill(i, entry.experts, entry.weights ?? []);
    return i;
  }

  #append(position, isPrompt) {
    if (this.length === this.positions.length) this.#grow();
    const i = this.length++;
    const width = this.layers * this.top;
    this.positions[i] = position;
    this.texts[i] = "";
    this.experts.fill(NONE, i * width, (i + 1) * width);
    if (isPrompt && this.nPrompt === i) this.nPrompt++;
    return i;
  }

  #fill(i, experts, weights) {
    for (let l = 0; l < Math.min(this.layers, experts.length); l++) {
      for (let k = 0; k < Math.min(this.top, experts[l].length); k++) {
        const at = (i * this.layers + l) * this.top + k;
        this.experts[at] = experts[l][k];
        this.gates[at] = Math.round(Math.min(1, Math.max(0, weights[l]?.[k] ?? 0)) * SCALE);
      }
    }
  }

  #grow() {
    const grown = (old) => {
      const array = new old.constructor(old.length * 2);
      array.set(old);
      return array;
    };
    this.positions = grown(this.positions);
    this.experts = grown(this.experts);
    this.gates = grown(this.gates);
  }

  // Whether the experts of token i are known. An answer's last token never has any.
  isRouted(i) {
    return i >= 0 && i < this.length && this.experts[i * this.layers * this.top] !== NONE;
  }

  // [{expert, gate}] of one token in one layer, best first.
  at(i, layer) {
    const found = [];
    for (let k = 0; k < this.top; k++) {
      const at = (i * this.layers + layer) * this.top + k;
      if (this.experts[at] !== NONE) found.push({ expert: this.experts[at], gate: this.gates[at] / SCALE });
    }
    return found;
  }

  // Calls visit(layer, expert, gate) for each choice of tokens [from, to).
  forEach(from, to, visit) {
    for (let i = from; i < Math.min(to, this.length); i++) {
      for (let l = 0; l < this.layers; l++) {
        for (let k = 0; k < this.top; k++) {
          const at = (i * this.layers + l) * this.top + k;
          if (this.experts[at] !== NONE) visit(l, this.experts[at], this.gates[at] / SCALE);
        }
      }
    }
  }

  get byteLength() {
    return this.length * (4 + 4 * this.layers * this.top);
  }

  pack() {
    const width = this.length * this.layers * this.top;
    return {
      layers: this.layers,
      top: this.top,
      nPrompt: this.nPrompt,
      texts: this.texts,
      positions: toBase64(this.positions.subarray(0, this.length)),
      experts: toBase64(this.experts.subarray(0, width)),
      gates: toBase64(this.gates.subarray(0, width)),
    };
  }

  // Makes a log from a packed one; null if its parts do not fit together.
  static unpack(packed) {
    try {
      const { layers, top, nPrompt, texts } = packed;
      const log = new RoutingLog(layers, top, 1);
      log.positions = new Int32Array(fromBase64(packed.positions));
      log.experts = new Uint16Array(fromBase64(packed.experts));
      log.gates = new Uint16Array(fromBase64(packed.gates));
      log.length = log.positions.length;
      log.nPrompt = nPrompt;
      log.texts = texts.map(String);
      const width = log.length * layers * top;
      const fits =
        log.length && texts.length === log.length && log.experts.length === width && log.gates.length === width;
      return fits && nPrompt >= 0 && nPrompt <= log.length ? log : null;
    } catch {
      return null;
    }
  }
}

function toBase64(array) {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
}

// Logs by message. They are in memory; small ones are also copied to the storage.
export class RoutingMemory {
  #storage;
  #logs = new Map();
  #loaded = new Set();

  constructor(storage) {
    this.#storage = storage;
  }

  get(messageId) {
    return this.#logs.get(messageId) ?? null;
  }

  set(messageId, log) {
    this.#logs.set(messageId, log);
  }

  // Reads the kept logs of a conversation, once.
  load(conversationId) {
    if (this.#loaded.has(conversationId)) return;
    this.#loaded.add(conversationId);
    try {
      const kept = JSON.parse(this.#storage.getItem(PREFIX + conversationId)) ?? {};
      for (const [id, packed] of Object.entries(kept)) {
        const log = RoutingLog.unpack(packed);
        if (log && !this.#logs.has(id)) this.#logs.set(id, log);
      }
    } catch {
      // Damaged: the experts of that conversation are not shown; nothing else is lost.
    }
  }

  // Keeps the latest small logs. If there is no room they are dropped, as messages matter more.
  save(conversation) {
    const kept = {};
    let bytes = 0;
    for (const message of [...conversation.messages].reverse()) {
      const log = this.#logs.get(message.id);
      if (!log?.length || log.byteLength > MAX_KEPT || bytes + log.byteLength > MAX_KEPT_TOGETHER) continue;
      bytes += log.byteLength;
      kept[message.id] = log.pack();
    }
    try {
      if (bytes) this.#storage.setItem(PREFIX + conversation.id, JSON.stringify(kept));
    } catch {
      this.#storage.removeItem(PREFIX + conversation.id);
    }
  }

  // Removes all kept logs from the storage. Logs in memory stay.
  forgetKept() {
    const names = Array.from({ length: this.#storage.length }, (_, i) => this.#storage.key(i));
    for (const name of names) if (name.startsWith(PREFIX)) this.#storage.removeItem(name);
  }

  remove(conversation) {
    for (const message of conversation.messages) this.#logs.delete(message.id);
    this.#storage.removeItem(PREFIX + conversation.id);
  }
}
