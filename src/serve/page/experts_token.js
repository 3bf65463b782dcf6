// experts_token.js - the view "Token": the experts that one token used in each layer, with their gate values.
import { button, el, replace } from "./dom.js";
import { percent, visible } from "./format.js";

export class TokenView {
  #app;
  #box = el("div");

  constructor(app) {
    this.#app = app;
    this.element = el(
      "div",
      { class: "view" },
      el(
        "p",
        { class: "about" },
        "The experts of one token, layer by layer, best first; a fuller bar means a larger gate value. These " +
          "experts were used while the model computed what comes after this token.",
      ),
      this.#box,
    );
    app.on("token conversation", () => this.show());
  }

  show() {
    if (this.element.closest("[hidden]")) return;
    const { token, routing } = this.#app;
    const log = token && routing.get(token.message.id);
    if (!log || token.index >= log.length) return replace(this.#box, this.#invitation());
    replace(
      this.#box,
      this.#head(log, token),
      log.isRouted(token.index)
        ? this.#layers(log, token.index)
        : el("p", { class: "hint" }, "The last token of an answer was never an input, so it has no experts."),
    );
  }

  #invitation() {
    const any = this.#app.path.some((message) => this.#app.routing.get(message.id)?.length);
    return el(
      "p",
      { class: "hint" },
      any
        ? "Press “Tokens” below an answer and choose one of its tokens."
        : "No experts are recorded yet. Answers that are written while the Experts panel is open have them.",
    );
  }

  #head(log, { message, index }) {
    const go = (name, label, to) =>
      button({
        name,
        label,
        class: "quiet",
        disabled: to < 0 || to >= log.length,
        onClick: () => this.#app.selectToken(message, to),
      });
    return el(
      "div",
      { class: "token-head" },
      go("left", "Previous token", index - 1),
      el(
        "div",
        null,
        el("p", { class: "token-text" }, visible(log.texts[index])),
        el(
          "p",
          { class: "note" },
          `position ${log.positions[index]}, ${index < log.nPrompt ? "of the prompt" : "of the answer"}${this.#alike(log, index)}`,
        ),
      ),
      go("right", "Next token", index + 1),
    );
  }

  // The share of experts that neighbouring tokens have in common shows whether routing follows the topic or the word.
  #alike(log, index) {
    if (!log.isRouted(index) || !log.isRouted(index - 1)) return "";
    let same = 0;
    for (let l = 0; l < log.layers; l++) {
      const before = new Set(log.at(index - 1, l).map(({ expert }) => expert));
      same += log.at(index, l).filter(({ expert }) => before.has(expert)).length;
    }
    return `; ${percent(same / (log.layers * log.top))} of its experts also served the previous token`;
  }

  #layers(log, index) {
    const first = this.#app.props?.moe?.first_layer ?? 0;
    let most = 0;
    log.forEach(index, index + 1, (l, e, gate) => {
      most = Math.max(most, gate);
    });
    const rows = Array.from({ length: log.layers }, (_, l) =>
      el(
        "tr",
        null,
        el("th", { scope: "row" }, String(l + first)),
        log.at(index, l).map((choice) => el("td", null, chip(choice, most))),
      ),
    );
    const head = el(
      "tr",
      null,
      el("th", { scope: "col" }, "Layer"),
      Array.from({ length: log.top }, (_, k) => el("th", { scope: "col" }, k ? `${k + 1}.` : "Best")),
    );
    return el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Experts of the token" },
      el(
        "table",
        { class: "chips" },
        el("caption", { class: "visually-hidden" }, "Experts of the token in each layer, with gate values"),
        el("thead", null, head),
        el("tbody", null, rows),
      ),
    );
  }
}

function chip({ expert, gate }, most) {
  const node = el("span", { class: "chip" }, el("b", null, String(expert)), el("span", null, gate.toFixed(3)));
  node.style.setProperty("--fill", `${Math.round((gate / most) * 100)}%`);
  return node;
}
