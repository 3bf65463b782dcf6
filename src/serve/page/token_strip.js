// token_strip.js - an answer as its tokens. A click or the arrow keys choose a token, to see the experts it used.
import { el } from "./dom.js";
import { visible } from "./format.js";

export class TokenStrip {
  #app;
  #message;
  #log = null;
  #prompt = el("span", { class: "prompt-tokens" });
  #answer = el("span");
  #spans = [];

  constructor(app, message) {
    this.#app = app;
    this.#message = message;
    this.element = el(
      "div",
      { class: "strip" },
      el(
        "p",
        { class: "note" },
        "The tokens of this answer; the grey ones in front are the end of the prompt. Choose one, or go through " +
          "them with the arrow keys, to see the experts it used.",
      ),
      el(
        "div",
        {
          class: "strip-tokens",
          role: "listbox",
          "aria-label": "Tokens",
          "aria-orientation": "horizontal",
          on: { click: (event) => this.#click(event), keydown: (event) => this.#key(event) },
        },
        this.#prompt,
        this.#answer,
      ),
    );
  }

  // Adds the new tokens; a log only ever grows.
  show(log) {
    this.#log = log;
    for (let i = this.#spans.length; i < (log?.length ?? 0); i++) this.#add(i);
    for (let i = Math.max(0, this.#spans.length - 2); i < this.#spans.length; i++) this.#write(i);
  }

  #add(i) {
    const span = el("span", {
      class: "token",
      role: "option",
      tabindex: i ? "-1" : "0",
      "data-index": i,
      "aria-selected": "false",
    });
    this.#spans.push(span);
    (i < this.#log.nPrompt ? this.#prompt : this.#answer).append(span);
    this.#write(i);
  }

  // A line break is shown as a sign and also breaks the line.
  #write(i) {
    const text = this.#log.texts[i];
    const shown = text.includes("\n") ? `${visible(text)}\n` : text || "∅";
    if (this.#spans[i].textContent !== shown) this.#spans[i].textContent = shown;
    // Screen readers do not speak a space.
    if (!text.trim())
      this.#spans[i].setAttribute("aria-label", text.includes("\n") ? "line break" : text ? "space" : "empty");
    else this.#spans[i].removeAttribute("aria-label");
    this.#spans[i].classList.toggle("unrouted", !this.#log.isRouted(i));
  }

  selectFirst() {
    this.#choose(Math.min(this.#log.nPrompt, this.#spans.length - 1));
  }

  #click(event) {
    const span = event.target.closest(".token");
    if (span) this.#choose(Number(span.dataset.index));
  }

  #key(event) {
    const at = Number(event.target.closest(".token")?.dataset.index ?? 0);
    const next = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: this.#spans.length - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.#choose(Math.max(0, Math.min(this.#spans.length - 1, next)));
  }

  #choose(i) {
    this.#app.selectToken(this.#message, i);
    this.#spans[i]?.focus({ preventScroll: false });
  }

  // Marks the chosen token.
  mark() {
    const chosen = this.#app.token?.message === this.#message ? this.#app.token.index : -1;
    this.element.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    this.element.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    (this.#spans[chosen] ?? this.#spans[0])?.setAttribute("tabindex", "0");
    this.#spans[chosen]?.setAttribute("aria-selected", "true");
  }
}
