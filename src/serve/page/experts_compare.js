// experts_compare.js - the view "Compare": where two answers used different experts, and how similar they are in
// numbers.
import { stepOf } from "./colours.js";
import { el, replace, table } from "./dom.js";
import { heatOf, mean, overlaps, sharesOf } from "./experts_math.js";
import { answerOptions, choice, facts, legend } from "./experts_parts.js";
import { percent } from "./format.js";
import { GridCanvas } from "./grid_canvas.js";

export class CompareView {
  #app;
  #shares = null;
  #grid = new GridCanvas("Map of differences; the numbers and the table below say the same in words", (l, e) =>
    this.#describe(l, e),
  );
  #a = choice("A", [], () => this.show());
  #b = choice("B", [], () => this.show());
  #part = choice(
    "Tokens",
    [
      ["answer", "of the answer"],
      ["prompt", "of the prompt"],
      ["all", "all"],
    ],
    () => this.show(),
  );
  #numbers = el("div");

  constructor(app) {
    this.#app = app;
    this.#grid.setScale("diverging");
    this.element = el(
      "div",
      { class: "view" },
      el(
        "p",
        { class: "about" },
        "Compares two answers of this conversation, from any of its branches: warm cells are experts that B used " +
          "more, cold cells those that A used more.",
      ),
      el("div", { class: "choices" }, this.#a.element, this.#b.element, this.#part.element),
      this.#grid.element,
      legend("diverging", "more in A", "more in B"),
      this.#numbers,
    );
    app.on("conversation props", () => this.show());
  }

  show() {
    const { props, routing } = this.#app;
    if (!props?.moe || this.element.closest("[hidden]")) return;
    const { n_layers: layers, n_routed_experts: experts, first_layer: first = 0 } = props.moe;
    this.#grid.setModel(props.moe);
    this.#offer(answerOptions(this.#app, this.#app.conversation.messages));
    const logs = [this.#a, this.#b].map((side) => routing.get(side.value));
    if (!logs[0] || !logs[1] || logs[0] === logs[1]) {
      this.#grid.draw(new Uint8Array(layers * experts).fill(stepOf(0.5)));
      return replace(
        this.#numbers,
        el(
          "p",
          { class: "hint" },
          "Comparing needs two answers with recorded experts. Write another message, or use “Answer again”, " +
            "while the Experts panel is open.",
        ),
      );
    }
    this.#shares = logs.map((log) =>
      sharesOf(heatOf([log], layers, experts, { part: this.#part.value }), layers, experts),
    );
    const [a, b] = this.#shares;
    this.#grid.draw(Array.from(a, (share, i) => stepOf(0.5 + ((b[i] - share) * experts) / 8)));
    this.#show(overlaps(a, b, layers, experts), first);
  }

  // Selects the last two answers at first, and then keeps the person's choice.
  #offer(answers) {
    const unset = !this.#a.value || this.#a.value === this.#b.value;
    this.#a.setOptions(answers);
    this.#b.setOptions(answers);
    if (unset && answers.length > 1) {
      this.#a.value = answers.at(-2)[0];
      this.#b.value = answers.at(-1)[0];
    }
  }

  #show(alike, first) {
    const all = (field) => mean(alike.map((layer) => layer[field]));
    const rows = alike.map(({ common, cosine, jaccard }, l) => [
      String(l + first),
      percent(common),
      cosine.toFixed(3),
      percent(jaccard),
    ]);
    replace(
      this.#numbers,
      facts([
        ["in common", percent(all("common"))],
        ["cosine", all("cosine").toFixed(3)],
        ["same experts", percent(all("jaccard"))],
      ]),
      el(
        "p",
        { class: "note" },
        "In common: the share of gate values that both gave to the same experts. Cosine: 1 if they were used in the " +
          "same proportions. Same experts: of all that A or B used, the share that both used. Means over the layers.",
      ),
      el(
        "details",
        null,
        el("summary", null, "Layer by layer"),
        table("How similar A and B are in each layer", ["Layer", "In common", "Cosine", "Same experts"], rows),
      ),
    );
  }

  #describe(layer, expert) {
    if (!this.#shares) return "nothing to compare yet";
    const [a, b] = this.#shares.map((shares) => shares[layer * this.#grid.experts + expert]);
    return `A ${percent(a)}, B ${percent(b)} of the layer`;
  }
}
