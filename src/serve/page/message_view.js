// message_view.js - one message: its text or its tokens, its branches, and its buttons.
import { button, copyFrom, el, replace } from "./dom.js";
import { figuresLine } from "./format.js";
import { icon } from "./icons.js";
import { MarkdownView } from "./markdown_dom.js";
import { siblingsOf } from "./store.js";
import { TokenStrip } from "./token_strip.js";

const FINISHES = {
  length: "The answer reached the maximum length.",
  stopped: "You stopped this answer.",
};

export class MessageView {
  #app;
  #body = el("div", { class: "body" });
  #markdown = null;
  #strip = null;
  #foot = el("div", { class: "foot" });
  #showsTokens = false;
  #figures = el("p", { class: "figures" });

  constructor(app, message) {
    this.#app = app;
    this.message = message;
    const who = message.role === "user" ? "You" : "Model";
    this.element = el(
      "article",
      { class: `message ${message.role}`, "aria-label": who, "data-id": message.id },
      el("h2", { class: "visually-hidden" }, `${who}:`),
      this.#body,
      this.#foot,
    );
    this.update();
  }

  // Updates everything: text, branches, buttons.
  update() {
    this.element.classList.toggle("running", this.#app.isRunning(this.message));
    if (this.#body.querySelector("textarea")) return;
    this.#showBody();
    this.#showFoot();
  }

  // Updates only the parts that grow while an answer is written.
  grow() {
    this.#showBody();
    this.#figures.textContent = figuresLine(this.message.figures);
  }

  #showBody() {
    if (this.#showsTokens) return this.#showTokens();
    this.#strip = null;
    const { content, role } = this.message;
    if (role === "user" || this.#app.isTextMode) {
      this.#markdown = null;
      this.#body.classList.add("plain");
      if (this.#body.firstChild?.nodeType !== Node.TEXT_NODE) this.#body.replaceChildren("");
      if (this.#body.firstChild.data !== content) this.#body.firstChild.data = content;
      return;
    }
    this.#body.classList.remove("plain");
    if (!this.#markdown) {
      this.#body.replaceChildren();
      this.#markdown = new MarkdownView(this.#body);
    }
    this.#markdown.show(content);
  }

  // ---- tokens --------------------------------------------------------------------------------

  #showTokens() {
    const log = this.#app.routing.get(this.message.id);
    this.#markdown = null;
    this.#body.classList.remove("plain");
    if (!this.#strip) {
      this.#strip = new TokenStrip(this.#app, this.message);
      this.#body.replaceChildren(this.#strip.element);
    }
    this.#strip.show(log);
  }

  markToken() {
    this.#strip?.mark();
  }

  #toggleTokens() {
    this.#showsTokens = !this.#showsTokens;
    this.update();
    if (this.#showsTokens) this.#strip.selectFirst();
    else this.#foot.querySelector(".tokens")?.focus();
  }

  // ---- below the text ----------------------------------------------------------------------------

  #showFoot() {
    const { message } = this;
    const running = this.#app.isRunning(message);
    this.#figures.textContent = figuresLine(message.figures);
    const note = message.error ?? FINISHES[message.finish];
    replace(
      this.#foot,
      message.error || note ? el("p", { class: message.error ? "note bad" : "note" }, note) : null,
      el("div", { class: "tools" }, this.#branches(), running ? null : this.#tools()),
      message.role === "assistant" ? this.#figures : null,
    );
  }

  #branches() {
    const siblings = siblingsOf(this.#app.conversation, this.message);
    if (siblings.length < 2) return null;
    const at = siblings.indexOf(this.message);
    const busy = Boolean(this.#app.running);
    const move = (step, name, label) =>
      button({
        name,
        label,
        class: "quiet",
        disabled: busy || !siblings[at + step],
        onClick: () => this.#app.show(siblings[at + step]),
      });
    return el(
      "span",
      { class: "branches", role: "group", "aria-label": "Branches" },
      move(-1, "left", "Previous branch"),
      el("span", null, `${at + 1}/${siblings.length}`),
      move(1, "right", "Next branch"),
    );
  }

  #tools() {
    const { message } = this;
    const copy = button({
      name: "copy",
      label: "Copy",
      class: "quiet",
      onClick: () => copyFrom(copy, message.content),
    });
    const idle = !this.#app.running;
    const routed = this.#app.routing.get(message.id)?.length > 0;
    return [
      copy,
      idle
        ? button({ name: "edit", label: "Edit as a new branch", class: "quiet edit", onClick: () => this.edit() })
        : null,
      idle && message.role === "assistant"
        ? button({
            name: "again",
            label: "Answer again",
            class: "quiet again",
            onClick: () => this.#app.regenerate(message),
          })
        : null,
      message.role === "assistant" && routed
        ? el(
            "button",
            {
              type: "button",
              class: "quiet tokens",
              "aria-pressed": String(this.#showsTokens),
              on: { click: () => this.#toggleTokens() },
            },
            icon("tokens"),
            el("span", null, "Tokens"),
          )
        : null,
    ];
  }

  // ---- editing -------------------------------------------------------------------------------

  edit() {
    if (this.#app.running) return;
    const { message } = this;
    const input = el("textarea", { class: "edit-text", "aria-label": "Edit the message", rows: "3" });
    input.value = message.content;
    const close = () => {
      replace(this.#body);
      this.#markdown = null;
      this.update();
      this.#foot.querySelector(".edit")?.focus();
    };
    const accept = () => {
      const text = input.value;
      close();
      this.#app.edit(message, text);
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) accept();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const word = message.role === "user" ? "Send" : "Keep as a branch";
    replace(
      this.#body,
      input,
      el(
        "div",
        { class: "row end" },
        button({ text: "Cancel", onClick: close }),
        button({ text: word, class: "primary", onClick: accept }),
      ),
    );
    replace(this.#foot);
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
  }
}
