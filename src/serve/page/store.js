// store.js - conversations: trees of messages of which one branch is shown, and how they are saved, exported and
// imported. No DOM here; the storage is handed in.
//
// A conversation: {id, title, created, updated, system, messages, chosen}
// A message: {id, parent, role, content, created, figures?, finish?, error?}; parent is null for the first ones.
// `chosen` maps a message's id ("" for the beginning) to the child that is shown. Editing and regenerating never
// overwrite a message: they add a sibling.

const PREFIX = "dsmoe.conversation.";
const FORMAT = "dsmoe-conversations";
const VERSION = 1;

// Limits of an import: far above what a person writes, far below what hurts a browser.
const MAX_CONVERSATIONS = 5000;
const MAX_MESSAGES = 20000;
const MAX_TEXT = 4 << 20;

const FIGURES = ["promptTokens", "cachedTokens", "completionTokens", "perSecond", "firstTokenMs"];

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
}

export function newConversation(system = "") {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, system, messages: [], chosen: {} };
}

// ---- the tree ------------------------------------------------------------------------------------

export function findMessage(conversation, id) {
  return conversation.messages.find((message) => message.id === id) ?? null;
}

export function childrenOf(conversation, parent) {
  return conversation.messages.filter((message) => message.parent === parent);
}

// Messages with the same parent, oldest first: the branches that ‹ 2/3 › moves between.
export function siblingsOf(conversation, message) {
  return childrenOf(conversation, message.parent);
}

// Adds a message under `parent` (an id or null) and shows it.
export function addMessage(conversation, parent, role, content) {
  const message = { id: newId(), parent, role, content, created: Date.now() };
  conversation.messages.push(message);
  conversation.chosen[parent ?? ""] = message.id;
  conversation.updated = message.created;
  return message;
}

export function choose(conversation, message) {
  conversation.chosen[message.parent ?? ""] = message.id;
}

// The branch that is shown, from the first message to the last. A map of children makes this one walk.
export function pathOf(conversation) {
  const children = new Map();
  for (const message of conversation.messages) {
    const key = message.parent ?? "";
    if (!children.has(key)) children.set(key, []);
    children.get(key).push(message);
  }
  const path = [];
  for (let key = ""; children.has(key); key = path.at(-1).id) {
    const list = children.get(key);
    path.push(list.find((message) => message.id === conversation.chosen[key]) ?? list.at(-1));
  }
  return path;
}

// The messages from the first one down to `message`, whether shown or not.
export function pathTo(conversation, message) {
  const path = [];
  for (let at = message; at; at = at.parent === null ? null : findMessage(conversation, at.parent)) path.unshift(at);
  return path;
}

// ---- titles and search -------------------------------------------------------------------------------

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find((message) => message.content.trim());
  if (!first) return "New conversation";
  const line = first.content.trim().split("\n")[0];
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}

export function matches(conversation, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const text = [titleOf(conversation), ...conversation.messages.map((message) => message.content)]
    .join("\n")
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

// ---- export and import ---------------------------------------------------------------------------

export function exportText(conversations) {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1)}\n`;
}

// The conversations of an exported file. Throws an Error with a sentence for the person who chose the file.
export function readImport(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON. Choose a file that was exported here.");
  }
  if (file?.format !== FORMAT) throw new Error("This JSON file does not hold conversations that were exported here.");
  if (file.version !== VERSION)
    throw new Error(`The file has version ${String(file.version)}; this page reads version ${VERSION}.`);
  if (!Array.isArray(file.conversations)) throw new Error("The file has no list of conversations.");
  if (file.conversations.length > MAX_CONVERSATIONS)
    throw new Error(`The file has more than ${MAX_CONVERSATIONS} conversations.`);
  return file.conversations.map((entry, i) => {
    try {
      return checkedConversation(entry);
    } catch (error) {
      throw new Error(`Conversation ${i + 1} of the file is damaged: ${error.message}`);
    }
  });
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function need(holds, complaint) {
  if (!holds) throw new Error(complaint);
}

function checkedText(value, name) {
  need(typeof value === "string", `${name} is not text.`);
  need(value.length <= MAX_TEXT, `${name} is too long.`);
  return value;
}

const checkedTime = (value) => (Number.isFinite(value) && value > 0 ? value : Date.now());

// A copy with the known fields only, each of the right type.
export function checkedConversation(entry) {
  need(isObject(entry), "it is not an object.");
  need(typeof entry.id === "string" && /^[a-z0-9]{4,40}$/.test(entry.id), "it has no id.");
  need(Array.isArray(entry.messages), "it has no list of messages.");
  need(entry.messages.length <= MAX_MESSAGES, `it has more than ${MAX_MESSAGES} messages.`);
  const ids = new Set();
  const messages = entry.messages.map((message, i) => checkedMessage(message, ids, i + 1));
  const chosen = {};
  if (isObject(entry.chosen)) {
    for (const [parent, child] of Object.entries(entry.chosen)) {
      if ((parent === "" || ids.has(parent)) && ids.has(child)) chosen[parent] = child;
    }
  }
  return {
    id: entry.id,
    title: checkedText(entry.title ?? "", "the title"),
    created: checkedTime(entry.created),
    updated: checkedTime(entry.updated),
    system: checkedText(entry.system ?? "", "the system prompt"),
    messages,
    chosen,
  };
}

// A parent must come before its children, so that the messages form a tree without cycles or orphans.
function checkedMessage(message, ids, number) {
  need(isObject(message), `message ${number} is not an object.`);
  need(typeof message.id === "string" && /^[a-z0-9]{4,40}$/.test(message.id), `message ${number} has no id.`);
  need(!ids.has(message.id), `message ${number} has the same id as an earlier one.`);
  need(message.parent === null || ids.has(message.parent), `message ${number} does not belong to an earlier one.`);
  need(message.role === "user" || message.role === "assistant", `message ${number} has an unknown role.`);
  ids.add(message.id);
  const checked = {
    id: message.id,
    parent: message.parent,
    role: message.role,
    content: checkedText(message.content, `message ${number}`),
    created: checkedTime(message.created),
  };
  if (typeof message.finish === "string") checked.finish = message.finish.slice(0, 40);
  if (typeof message.error === "string") checked.error = message.error.slice(0, 2000);
  if (isObject(message.figures)) checked.figures = checkedFigures(message.figures);
  return checked;
}

function checkedFigures(figures) {
  const checked = {};
  for (const name of FIGURES) if (Number.isFinite(figures[name])) checked[name] = figures[name];
  return checked;
}

// ---- storage -----------------------------------------------------------------------------------

// Conversations in a Storage (localStorage). Each has its own entry, so that saving one does not write all.
export class Shelf {
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  // All conversations that can be read, the latest first. A damaged entry is skipped and stays in the storage.
  load() {
    const found = [];
    for (let i = 0; i < this.#storage.length; i++) {
      const name = this.#storage.key(i);
      if (name.startsWith(PREFIX)) found.push(this.read(name.slice(PREFIX.length)));
    }
    return found.filter(Boolean).sort((a, b) => b.updated - a.updated);
  }

  read(id) {
    try {
      return checkedConversation(JSON.parse(this.#storage.getItem(PREFIX + id)));
    } catch {
      return null;
    }
  }

  // False if there is no room left.
  save(conversation) {
    try {
      this.#storage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
      return true;
    } catch {
      return false;
    }
  }

  remove(id) {
    this.#storage.removeItem(PREFIX + id);
  }

  // The id of the conversation that a storage event is about, or null.
  static idOf(name) {
    return name?.startsWith(PREFIX) ? name.slice(PREFIX.length) : null;
  }
}
