// sidebar.js - the list of conversations: search, open, rename, delete, export, import. A drawer on narrow screens.
import { button, byId, el, replace } from "./dom.js";
import { askName, confirmDelete, notify } from "./dialogs.js";
import { count } from "./format.js";
import { exportText, matches, readImport, titleOf } from "./store.js";

const MAX_FILE = 64 << 20;

export class Sidebar {
  #app;
  #list = byId("conversation-list");
  #search = byId("search");

  constructor(app) {
    this.#app = app;
    app.on("list conversation", () => this.#render());
    this.#search.addEventListener("input", () => this.#render());
    byId("new-conversation").addEventListener("click", () => this.startNew());
    byId("export-all").addEventListener("click", () => this.#export(app.conversations, "conversations"));
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
    byId("open-sidebar").addEventListener("click", () => this.#openDrawer(true));
    byId("close-sidebar").addEventListener("click", () => this.#openDrawer(false));
    byId("shade").addEventListener("click", () => this.#openDrawer(false));
    this.#render();
  }

  startNew() {
    this.#app.startConversation();
    this.#openDrawer(false);
    byId("input").focus();
  }

  #openDrawer(open) {
    document.body.classList.toggle("drawer", open);
    if (open) byId("close-sidebar").focus();
    else if (document.activeElement?.closest("#sidebar")) byId("open-sidebar").focus();
  }

  // Closes the drawer; false if it was not open.
  closeDrawer() {
    if (!document.body.classList.contains("drawer")) return false;
    this.#openDrawer(false);
    return true;
  }

  #render() {
    const { conversations, conversation } = this.#app;
    const found = conversations.filter((entry) => matches(entry, this.#search.value));
    byId("conversation-title").textContent = titleOf(conversation);
    document.title = `${titleOf(conversation)} – dsmoe`;
    const empty = conversations.length
      ? "No conversation contains these words."
      : "Conversations are kept in this browser.";
    if (!found.length) replace(this.#list, el("li", { class: "note" }, empty));
    else
      replace(
        this.#list,
        found.map((entry) => this.#entry(entry, entry === conversation)),
      );
  }

  #entry(conversation, isCurrent) {
    const title = titleOf(conversation);
    const open = el(
      "button",
      {
        type: "button",
        class: "entry",
        "aria-current": isCurrent ? "true" : null,
        title,
        on: {
          click: () => {
            this.#app.open(conversation);
            this.#openDrawer(false);
          },
        },
      },
      title,
    );
    const tool = (name, label, onClick) => button({ name, label: `${label}: ${title}`, class: "quiet", onClick });
    return el(
      "li",
      null,
      open,
      el(
        "span",
        { class: "entry-tools" },
        tool("edit", "Rename", () => this.#rename(conversation)),
        tool("download", "Export", () => this.#export([conversation], title)),
        tool("trash", "Delete", () => this.#delete(conversation)),
      ),
    );
  }

  async #rename(conversation) {
    const name = await askName(titleOf(conversation));
    if (name !== null) this.#app.rename(conversation, name);
  }

  async #delete(conversation) {
    if (await confirmDelete(titleOf(conversation))) this.#app.remove(conversation);
  }

  #export(conversations, name) {
    if (!conversations.length) return notify("There is no conversation to export yet.");
    const url = URL.createObjectURL(new Blob([exportText(conversations)], { type: "application/json" }));
    const file = `dsmoe-${
      name
        .toLowerCase()
        .replace(/[^a-z0-9]+/g, "-")
        .replace(/^-|-$/g, "")
        .slice(0, 40) || "conversation"
    }.json`;
    el("a", { href: url, download: file }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  async #import(input) {
    const file = input.files[0];
    input.value = "";
    if (!file) return;
    try {
      if (file.size > MAX_FILE) throw new Error("This file is larger than 64 MB.");
      const conversations = readImport(await file.text());
      this.#app.adopt(conversations);
      notify(`${count(conversations.length, "conversation")} imported.`);
    } catch (error) {
      notify(error.message);
    }
  }
}
