// experts_crowd.js - the view "Crowd": the experts used by all requests of the server together. Watching costs the
// server some time, so the stream is open only while this view is visible.
import { stepOf } from "./colours.js";
import { el, replace } from "./dom.js";
import { expectedDistinct, mean, overEven, sharesOf } from "./experts_math.js";
import { bars, facts, legend } from "./experts_parts.js";
import { GridCanvas } from "./grid_canvas.js";

const HALF_LIFE_S = 5;
const TABLE_MS = 500;

export class CrowdView {
  #app;
  #watch = null; // AbortController of the stream
  #load = null;
  #shares = null;
  #time = 0;
  #tableAt = 0;
  #grid = new GridCanvas("Heat map of the crowd's experts; the table below has a number for each layer", (l, e) =>
    this.#describe(l, e),
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
        "The experts that all requests together used in the last few seconds. The tokens of one pass share experts, " +
          "and each expert's weights are read once for all of them: the fewer distinct experts, the cheaper the pass.",
      ),
      this.#grid.element,
      legend("diverging", "¼ or less", "4 × the even share or more"),
      this.#numbers,
    );
    document.addEventListener("visibilitychange", () => (document.hidden ? this.hide() : this.show()));
    app.on("props", () => this.show());
  }

  show() {
    const moe = this.#app.props?.moe;
    if (!moe || this.#watch || document.hidden || this.element.closest("[hidden]")) return;
    this.#grid.setModel(moe);
    this.#load = new Float64Array(moe.n_layers * moe.n_routed_experts);
    this.#grid.draw(new Uint8Array(this.#load.length).fill(stepOf(0.5)));
    this.#say("No request is running. The next one will be shown here.");
    this.#watch = new AbortController();
    this.#follow(this.#watch);
  }

  hide() {
    this.#watch?.abort();
    this.#watch = null;
  }

  async #follow(watch) {
    try {
      for await (const event of this.#app.api.stream("routing", undefined, watch.signal)) this.#take(event);
      if (this.#watch === watch) this.#say("The server closed the stream. Open this view again to continue.");
    } catch (error) {
      if (error.name !== "AbortError") this.#say(error.message);
    }
    if (this.#watch === watch) this.#watch = null;
  }

  #say(text) {
    replace(this.#numbers, el("p", { class: "hint" }, text));
  }

  // Older load fades, so that the map shows the last few seconds.
  #take(event) {
    const { n_layers: layers, n_routed_experts: experts } = this.#app.props.moe;
    const fade = 0.5 ** (Math.max(0, event.time - this.#time) / HALF_LIFE_S);
    this.#time = event.time;
    for (let l = 0; l < layers; l++) {
      for (let e = 0; e < experts; e++) {
        const i = l * experts + e;
        this.#load[i] = this.#load[i] * fade + (event.load[l]?.[e] ?? 0);
      }
    }
    this.#shares = sharesOf(this.#load, layers, experts);
    this.#grid.draw(Array.from(this.#shares, (share) => stepOf((overEven(share, experts) + 1) / 2)));
    if (performance.now() - this.#tableAt < TABLE_MS) return;
    this.#tableAt = performance.now();
    this.#show(event);
  }

  #show({ running, waiting, passes, rows, distinct }) {
    const { n_routed_experts: experts, num_experts_per_tok: top, first_layer: first = 0 } = this.#app.props.moe;
    const perPass = rows / Math.max(1, passes);
    const chance = expectedDistinct(experts, top, perPass);
    replace(
      this.#numbers,
      facts([
        ["running", String(running)],
        ["waiting", String(waiting)],
        ["tokens per pass", perPass.toFixed(1)],
        ["experts used", mean(distinct).toFixed(1), `of ${experts}`],
      ]),
      bars(
        `Distinct experts per pass; the line marks the number expected by chance (${chance.toFixed(1)})`,
        ["Layer", "Experts", "vs. chance"],
        distinct.map((value, l) => ({
          name: String(l + first),
          value,
          mark: chance,
          text: value.toFixed(1),
          note: `${(value / chance).toFixed(2)} ×`,
        })),
        experts,
      ),
    );
  }

  #describe(layer, expert) {
    const share = this.#shares?.[layer * this.#grid.experts + expert] ?? 0;
    return `${(share * this.#grid.experts).toFixed(2)} × the even share`;
  }
}
