// experts_use.js - the view "Use": which experts a conversation or one of its answers used, how evenly, and which
// ones most and least.
import { stepOf } from "./colours.js";
import { el, replace, table } from "./dom.js";
import { entropies, heatOf, mean, overEven, ranking, routedTokens, sharesOf, usedExperts } from "./experts_math.js";
import { count, integer, percent } from "./format.js";
import { GridCanvas } from "./grid_canvas.js";
import { answerOptions, bars, choice, facts, legend } from "./experts_parts.js";

const EVERY_MS = 500;
const LISTED = 8;

export class UseView {
  #app;
  #shares = null;
  #timer = 0;
  #grid = new GridCanvas("Heat map of the experts; lists and tables below say the same in words", (l, e) =>
    this.#describe(l, e),
  );
  #scope = choice("Of", [], () => this.show());
  #part = choice(
    "Tokens",
    [
      ["all", "all"],
      ["answer", "of the answer"],
      ["prompt", "of the prompt"],
    ],
    () => this.show(),
  );
  #measure = choice(
    "By",
    [
      ["gate", "gate value"],
      ["choices", "times chosen"],
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
        "How much each expert was used, compared with an even share of its layer: warm cells more, cold cells " +
          "less. Even routing would be grey all over.",
      ),
      el("div", { class: "choices" }, this.#scope.element, this.#part.element, this.#measure.element),
      this.#grid.element,
      legend("diverging", "¼ or less", "4 × the even share or more"),
      this.#numbers,
    );
    app.on("routed", () => this.#later());
    app.on("conversation props", () => this.show());
  }

  #later() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.show();
    }, EVERY_MS);
  }

  show() {
    const { props } = this.#app;
    if (!props?.moe || this.element.closest("[hidden]")) return;
    const { n_layers: layers, n_routed_experts: experts, first_layer: first = 0 } = props.moe;
    this.#grid.setModel(props.moe);
    const answers = answerOptions(this.#app);
    this.#scope.setOptions([["", "all answers"], ...answers]);
    const ids = this.#scope.value ? [this.#scope.value] : answers.map(([id]) => id);
    const logs = ids.map((id) => this.#app.routing.get(id)).filter(Boolean);
    const part = this.#part.value;
    const heat = heatOf(logs, layers, experts, { part, measure: this.#measure.value });
    this.#shares = sharesOf(heat, layers, experts);
    const tokens = routedTokens(logs, part);
    this.#grid.draw(Array.from(this.#shares, (share) => stepOf(tokens ? (overEven(share, experts) + 1) / 2 : 0.5)));
    if (!tokens)
      return replace(
        this.#numbers,
        el(
          "p",
          { class: "hint" },
          "No experts are recorded yet. Answers that are written while the Experts panel is open have them.",
        ),
      );
    replace(
      this.#numbers,
      this.#facts(heat, tokens, layers, experts),
      this.#lists(layers, experts, first),
      this.#entropy(layers, experts, first),
    );
  }

  #facts(heat, tokens, layers, experts) {
    const used = usedExperts(heat, layers, experts).reduce((sum, n) => sum + n, 0);
    const bits = mean(entropies(this.#shares, layers, experts));
    return facts([
      ["tokens", integer(tokens)],
      ["experts used", integer(used), `of ${integer(layers * experts)}`],
      ["mean entropy", bits.toFixed(2), `of ${Math.log2(experts).toFixed(2)} bits`],
    ]);
  }

  #lists(layers, experts, first) {
    const all = ranking(this.#shares, layers, experts);
    const unused = all.filter(({ share }) => share === 0).length;
    const least = all
      .filter(({ share }) => share > 0)
      .slice(-LISTED)
      .reverse();
    const rows = (list) =>
      list.map(({ layer, expert, share }) => [
        `${layer + first} / ${expert}`,
        percent(share),
        `${(share * experts).toFixed(2)} ×`,
      ]);
    const heads = ["Layer / expert", "Share", "vs. even"];
    return el(
      "div",
      { class: "pair" },
      table("Most used", heads, rows(all.filter(({ share }) => share > 0).slice(0, LISTED))),
      table(unused ? `Least used; ${count(unused, "expert")} not at all` : "Least used", heads, rows(least)),
    );
  }

  #entropy(layers, experts, first) {
    const bits = entropies(this.#shares, layers, experts);
    return bars(
      "Entropy of each layer in bits: the longer the bar, the more evenly its experts were used",
      ["Layer", "Bits", "Effective experts"],
      bits.map((value, l) => ({
        name: String(l + first),
        value,
        text: value.toFixed(2),
        note: (2 ** value).toFixed(1),
      })),
      Math.log2(experts),
    );
  }

  #describe(layer, expert) {
    const share = this.#shares?.[layer * this.#grid.experts + expert] ?? 0;
    return `${percent(share)} of its layer, ${(share * this.#grid.experts).toFixed(2)} × the even share`;
  }
}
