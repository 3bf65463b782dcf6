// store.test.mjs - branches are kept, exported files are read back unchanged, and damaged files give an error
// that says what is wrong.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  addMessage,
  checkedConversation,
  choose,
  exportText,
  matches,
  newConversation,
  pathOf,
  pathTo,
  readImport,
  Shelf,
  siblingsOf,
  titleOf,
} from "../../src/serve/page/store.js";

const texts = (path) => path.map((message) => message.content);

function branched() {
  const conversation = newConversation("be brief");
  const first = addMessage(conversation, null, "user", "first question");
  const answer = addMessage(conversation, first.id, "assistant", "answer 1");
  const again = addMessage(conversation, first.id, "assistant", "answer 2");
  const next = addMessage(conversation, again.id, "user", "second question");
  return { conversation, first, answer, again, next };
}

class MemoryStorage {
  #entries = new Map();
  room = Infinity;
  get length() {
    return this.#entries.size;
  }
  key(i) {
    return [...this.#entries.keys()][i];
  }
  getItem(name) {
    return this.#entries.get(name) ?? null;
  }
  removeItem(name) {
    this.#entries.delete(name);
  }
  setItem(name, text) {
    if (text.length > this.room) throw new Error("QuotaExceededError");
    this.#entries.set(name, text);
  }
}

test("the latest branch is on show, and the others are kept", () => {
  const { conversation, answer, again } = branched();
  assert.deepEqual(texts(pathOf(conversation)), ["first question", "answer 2", "second question"]);
  assert.deepEqual(siblingsOf(conversation, again), [answer, again]);
  choose(conversation, answer);
  assert.deepEqual(texts(pathOf(conversation)), ["first question", "answer 1"]);
  choose(conversation, again);
  assert.deepEqual(texts(pathOf(conversation)), ["first question", "answer 2", "second question"]);
});

test("an edited first message is another beginning", () => {
  const { conversation, first } = branched();
  const edited = addMessage(conversation, null, "user", "edited");
  assert.deepEqual(texts(pathOf(conversation)), ["edited"]);
  assert.deepEqual(siblingsOf(conversation, edited), [first, edited]);
});

test("the way to a message that is not on show", () => {
  const { conversation, answer } = branched();
  assert.deepEqual(texts(pathTo(conversation, answer)), ["first question", "answer 1"]);
});

test("titles and search", () => {
  const { conversation } = branched();
  assert.equal(titleOf(newConversation()), "New conversation");
  assert.equal(titleOf(conversation), "first question");
  conversation.title = "Named";
  assert.equal(titleOf(conversation), "Named");
  assert.equal(matches(conversation, "NAMED answer"), true);
  assert.equal(matches(conversation, "absent"), false);
  assert.equal(matches(conversation, "  "), true);
});

test("what is exported is imported", () => {
  const { conversation, answer } = branched();
  answer.figures = { promptTokens: 7, completionTokens: 3, perSecond: 12.5 };
  answer.finish = "stop";
  assert.deepEqual(readImport(exportText([conversation])), [conversation]);
});

test("unknown fields and foreign types do not come in", () => {
  const { conversation } = branched();
  const file = JSON.parse(exportText([conversation]));
  file.conversations[0].extra = "x";
  file.conversations[0].messages[1].html = "<script>";
  file.conversations[0].messages[1].figures = { promptTokens: "7", perSecond: 1, evil: 2 };
  file.conversations[0].chosen = { nowhere: "nothing", "": 7 };
  const [read] = readImport(JSON.stringify(file));
  assert.equal("extra" in read, false);
  assert.equal("html" in read.messages[1], false);
  assert.deepEqual(read.messages[1].figures, { perSecond: 1 });
  assert.deepEqual(read.chosen, {});
});

const damage = [
  ["not JSON", () => "{", /not JSON/],
  ["other JSON", () => '{"a": 1}', /does not hold conversations/],
  ["null", () => "null", /does not hold conversations/],
  ["another version", (file) => ({ ...file, version: 9 }), /version 9/],
  ["no list", (file) => ({ ...file, conversations: {} }), /no list/],
  ["an id that is none", (file) => ((file.conversations[0].id = "../x"), file), /Conversation 1 .* no id/],
  [
    "a message without text",
    (file) => ((file.conversations[0].messages[0].content = 5), file),
    /message 1 is not text/,
  ],
  [
    "an unknown role",
    (file) => ((file.conversations[0].messages[0].role = "system"), file),
    /message 1 has an unknown role/,
  ],
  [
    "a parent that comes later",
    (file) => (file.conversations[0].messages.reverse(), file),
    /message 1 does not belong to an earlier one/,
  ],
  [
    "its own parent",
    (file) => ((file.conversations[0].messages[0].parent = file.conversations[0].messages[0].id), file),
    /message 1 does not belong to an earlier one/,
  ],
  [
    "the same id twice",
    (file) => ((file.conversations[0].messages[1].id = file.conversations[0].messages[0].id), file),
    /same id as an earlier one/,
  ],
];

for (const [name, change, complaint] of damage) {
  test(`an import with ${name} is refused with a sentence`, () => {
    const changed = change(JSON.parse(exportText([branched().conversation])));
    assert.throws(() => readImport(typeof changed === "string" ? changed : JSON.stringify(changed)), complaint);
  });
}

test("a field named __proto__ changes nothing", () => {
  const text = exportText([branched().conversation]).replace('"chosen": {', '"chosen": {"__proto__": "x",');
  assert.equal(Object.getPrototypeOf(readImport(text)[0].chosen), Object.prototype);
});

test("the shelf keeps, finds, removes, and says when it is full", () => {
  const storage = new MemoryStorage();
  const shelf = new Shelf(storage);
  const { conversation } = branched();
  const later = { ...newConversation(), updated: conversation.updated + 5 };
  assert.equal(shelf.save(conversation), true);
  assert.equal(shelf.save(later), true);
  storage.setItem("dsmoe.conversation.broken", "{");
  storage.setItem("other", "x");
  assert.deepEqual(
    shelf.load().map(({ id }) => id),
    [later.id, conversation.id],
  );
  assert.deepEqual(shelf.read(conversation.id), checkedConversation(conversation));
  shelf.remove(later.id);
  assert.equal(shelf.read(later.id), null);
  storage.room = 10;
  assert.equal(shelf.save(conversation), false);
});
