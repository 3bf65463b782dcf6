// app.js - the state of the page and the actions that a person can take. Views listen to its events and call its
// functions; they do not know each other.
//
// Events: "conversation" (another one is open, or its messages changed), "list" (of conversations), "text" (a message
// grew), "running", "props", "settings", "routed" (a token's experts), "routing" (logs changed), "token" (chosen)
import { Api } from "./api.js";
import { receive, requestFor } from "./answer.js";
import { askKey, notify } from "./dialogs.js";
import { RoutingMemory } from "./routing_log.js";
import { loadSettings, saveSettings } from "./settings.js";
import { local, remember, session } from "./storage.js";
import { addMessage, choose, findMessage, newConversation, newId, pathOf, Shelf } from "./store.js";

const SAVE_EVERY_MS = 1000;
const CURRENT = "dsmoe.current";

export class App extends EventTarget {
  api = new Api(askKey);
  settings = loadSettings(local);
  routing = new RoutingMemory(local);
  props = null;
  wantsRouting = () => false; // replaced by the experts panel: whether it is open
  token = null; // {message, index}: the token whose experts are shown
  #shelf = new Shelf(local);
  #running = new Map(); // conversation's id → {controller, message}
  #saveTimer = 0;
  #unsaved = new Set();
  #toldFull = false;

  constructor() {
    super();
    this.conversations = this.#shelf.load();
    const last = session.getItem(CURRENT);
    this.conversation = this.conversations.find(({ id }) => id === last) ?? newConversation(this.settings.system);
    this.routing.load(this.conversation.id);
    addEventListener("storage", (event) => this.#changedElsewhere(event.key));
    addEventListener("pagehide", () => this.#saveAll());
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  on(types, listener) {
    for (const type of types.split(" ")) this.addEventListener(type, (event) => listener(event.detail, type));
  }

  get isTextMode() {
    return this.props?.chat_template === null;
  }

  get path() {
    return pathOf(this.conversation);
  }

  get running() {
    return this.#running.get(this.conversation.id) ?? null;
  }

  isRunning(message) {
    return [...this.#running.values()].some((run) => run.message === message);
  }

  // ---- the server ----------------------------------------------------------------------------

  async connect() {
    this.props = await this.api.json("props");
    this.emit("props");
    this.emit("conversation");
  }

  // ---- messages ------------------------------------------------------------------------------

  // Sends the person's text after the last message shown. In text mode an empty text continues the answer.
  send(text) {
    const last = this.path.at(-1) ?? null;
    if (this.running || !this.props || (!text && !(this.isTextMode && last))) return false;
    this.#keep();
    const after = text ? addMessage(this.conversation, last?.id ?? null, "user", text) : last;
    this.#answer(this.conversation, after);
    return true;
  }

  // Generates another answer in place of this one; the old one stays as a branch.
  regenerate(message) {
    if (this.running || !this.props) return;
    const before = message.parent === null ? null : findMessage(this.conversation, message.parent);
    this.#answer(this.conversation, before);
  }

  // Adds a changed copy of a message as a new branch. A message of the person is answered again.
  edit(message, text) {
    if (this.running || !this.props || text === message.content) return;
    const changed = addMessage(this.conversation, message.parent, message.role, text);
    if (message.role === "user") this.#answer(this.conversation, changed);
    else this.#changed(this.conversation);
  }

  show(message) {
    choose(this.conversation, message);
    this.#changed(this.conversation);
  }

  stop() {
    this.running?.controller.abort();
  }

  async #answer(conversation, last) {
    const message = addMessage(conversation, last?.id ?? null, "assistant", "");
    const controller = new AbortController();
    this.#running.set(conversation.id, { controller, message });
    this.emit("running");
    this.#changed(conversation);
    const routing = this.settings.alwaysRouting || this.wantsRouting();
    const { path, body } = requestFor({ conversation, last, settings: this.settings, props: this.props, routing });
    try {
      const events = this.api.stream(path, body, controller.signal);
      await receive(events, message, this.props.moe, this.#listeners(conversation, message));
    } catch (error) {
      if (error.name === "AbortError") message.finish = "stopped";
      else message.error = errorText(error);
    }
    this.#running.delete(conversation.id);
    this.routing.save(conversation);
    this.#changed(conversation);
    this.emit("running");
    this.emit("finished", { conversation, message });
  }

  #listeners(conversation, message) {
    const keepLog = (log) => {
      if (this.routing.get(message.id) === log) return;
      this.routing.set(message.id, log);
      this.emit("routing");
    };
    return {
      text: () => {
        this.emit("text", message);
        this.#saveSoon(conversation);
      },
      logged: keepLog,
      routed: (log, index, isPrompt) => {
        keepLog(log);
        if (conversation === this.conversation) this.emit("routed", { log, index, isPrompt, message });
      },
    };
  }

  selectToken(message, index) {
    this.token = message ? { message, index } : null;
    this.emit("token", this.token);
  }

  // ---- conversations ---------------------------------------------------------------------------

  startConversation() {
    this.open(newConversation(this.settings.system));
  }

  open(conversation) {
    this.conversation = conversation;
    this.token = null;
    this.routing.load(conversation.id);
    remember(session, CURRENT, conversation.id);
    this.emit("conversation");
    this.emit("list");
    this.emit("running");
    this.emit("token", null);
  }

  rename(conversation, title) {
    conversation.title = title.trim();
    this.#changed(conversation);
  }

  remove(conversation) {
    this.#running.get(conversation.id)?.controller.abort();
    this.conversations = this.conversations.filter((other) => other !== conversation);
    this.#unsaved.delete(conversation);
    this.#shelf.remove(conversation.id);
    this.routing.remove(conversation);
    if (conversation === this.conversation) this.startConversation();
    else this.emit("list");
  }

  // Adds imported conversations to the existing ones. One whose id is taken gets a new id.
  adopt(conversations) {
    const taken = new Set(this.conversations.map(({ id }) => id));
    for (const conversation of conversations) {
      if (taken.has(conversation.id)) conversation.id = newId();
      taken.add(conversation.id);
      this.conversations.unshift(conversation);
      this.#store(conversation);
    }
    if (conversations.length) this.open(conversations[0]);
  }

  settingsChanged() {
    saveSettings(local, this.settings);
    this.emit("settings");
    if (this.conversations.includes(this.conversation)) this.#store(this.conversation);
  }

  // Adds the conversation to the list, when its first message is sent.
  #keep() {
    if (!this.conversations.includes(this.conversation)) this.conversations.unshift(this.conversation);
    remember(session, CURRENT, this.conversation.id);
  }

  #changed(conversation) {
    if (conversation === this.conversation) this.emit("conversation");
    this.#store(conversation);
    this.emit("list");
  }

  // ---- saving --------------------------------------------------------------------------------

  #saveSoon(conversation) {
    this.#unsaved.add(conversation);
    this.#saveTimer ||= setTimeout(() => this.#saveAll(), SAVE_EVERY_MS);
  }

  #saveAll() {
    clearTimeout(this.#saveTimer);
    this.#saveTimer = 0;
    for (const conversation of this.#unsaved) this.#store(conversation);
  }

  #store(conversation) {
    this.#unsaved.delete(conversation);
    if (!this.conversations.includes(conversation)) return;
    let saved = this.#shelf.save(conversation);
    if (!saved) {
      this.routing.forgetKept(); // messages matter more
      saved = this.#shelf.save(conversation);
    }
    if (!saved && !this.#toldFull)
      notify("The browser's storage is full: new messages are not kept. Export or delete conversations.");
    this.#toldFull = !saved;
  }

  // Another tab of this page saved a conversation: use its version, unless an answer is being written here.
  #changedElsewhere(name) {
    const id = Shelf.idOf(name);
    if (!id || this.#running.has(id)) return;
    const fresh = this.#shelf.read(id);
    this.conversations = this.conversations.filter((other) => other.id !== id);
    if (fresh) this.conversations.unshift(fresh);
    this.conversations.sort((a, b) => b.updated - a.updated);
    if (fresh && id === this.conversation.id) {
      this.conversation = fresh;
      this.emit("conversation");
    }
    this.emit("list");
  }
}

function errorText(error) {
  if (error.status === 429) {
    return `The server has no room for another request now. ${error.retryAfter ? `Try again in ${error.retryAfter} s.` : "Try again soon."}`;
  }
  return error.message || "The answer ended with an error.";
}
