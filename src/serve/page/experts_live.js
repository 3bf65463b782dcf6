// experts_live.js - the view "Live": the grid of all experts, lit by the answer that is being written. Draws at most
// once a frame.
import { el, replace, table } from "./dom.js";
import { legend } from "./experts_parts.js";
import { visible } from "./format.js";
import { GridCanvas } from "./grid_canvas.js";
import { LiveLevels } from "./live_levels.js";

const STILL_MS = 400; // between draws with reduced motion

export class LiveView {
  #app;
  #grid = new GridCanvas("Live grid of experts; the table below says the same in words", (l, e) =>
    this.#describe(l, e),
  );
  #levels = null;
  #conversation = null; // whose answer is shown
  #last = null; // {log, index}
  #frame = 0;
  #drawnAt = 0;
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #hint = el("p", { class: "hint" });
  #table = el(
    "details",
    { on: { toggle: () => this.#showTable() } },
    el("summary", null, "The last token as a table"),
    el("div"),
  );

  constructor(app) {
    this.#app = app;
    this.element = el(
      "div",
      { class: "view" },
      el(
        "p",
        { class: "about" },
        "Each row is a MoE layer, each column one of its experts. A token lights the experts it is sent to: the " +
          "larger the gate value, the brighter. The light fades, and experts that this answer used earlier keep a " +
          "faint glow.",
      ),
      this.#grid.element,
      legend("heat", "not used", "largest gate value"),
      this.#hint,
      this.#table,
    );
    app.on("props", () => this.#setModel());
    app.on("routed", (token) => this.#light(token));
    app.on("running", () => this.#changedRun());
    app.on("conversation", () => this.#recall());
    this.#setModel();
  }

  show() {
    this.#showHint();
    this.#request();
  }

  #setModel() {
    const moe = this.#app.props?.moe;
    if (!moe) return;
    this.#grid.setModel(moe);
    this.#levels = new LiveLevels(moe.n_layers, moe.n_routed_experts);
    this.#conversation = null;
    this.#recall();
  }

  // Another conversation was opened: shows the glow of its last answer, if that was recorded.
  #recall() {
    const { conversation, path, routing } = this.#app;
    if (!this.#levels || this.#conversation === conversation) return this.#showHint();
    this.#conversation = conversation;
    this.#levels.clear();
    const log = path.map((message) => routing.get(message.id)).findLast(Boolean);
    const index = log ? log.texts.findLastIndex((_, i) => log.isRouted(i)) : -1;
    this.#last = index >= 0 ? { log, index } : null;
    if (log) this.#levels.recall(log);
    this.#showHint();
    this.#showTable();
    this.#request();
  }

  #changedRun() {
    const { running } = this.#app;
    if (running && !running.message.content) this.#levels?.clear();
    this.#showHint();
    this.#showTable();
    this.#request();
  }

  #light({ log, index }) {
    this.#last = { log, index };
    if (!this.#hint.hidden) this.#showHint();
    if (!this.#levels) return;
    this.#levels.light(log, index, performance.now(), !this.#still.matches);
    this.#request();
  }

  #request() {
    if (this.#frame || !this.#levels || !this.element.isConnected || this.element.closest("[hidden]")) return;
    this.#drawnAt ||= performance.now();
    this.#frame = requestAnimationFrame((now) => this.#draw(now));
  }

  #draw(now) {
    this.#frame = 0;
    if (this.#still.matches) {
      if (now - this.#drawnAt < STILL_MS && this.#app.running) return this.#request();
      this.#drawnAt = now;
      return this.#grid.draw(this.#levels.toSteps());
    }
    const lit = this.#levels.fade(Math.min(100, Math.max(0, now - this.#drawnAt)));
    this.#drawnAt = now;
    this.#grid.draw(this.#levels.toSteps());
    if (lit) this.#request();
    else this.#drawnAt = 0;
  }

  #showHint() {
    const { running } = this.#app;
    const message = running?.message;
    const blind = message?.content && !this.#app.routing.get(message.id);
    this.#hint.textContent = blind
      ? "This answer was started before the Experts panel was opened. The next one will be shown."
      : this.#last
        ? ""
        : "Send a message to see the experts at work.";
    this.#hint.hidden = !this.#hint.textContent;
  }

  #describe(layer, expert) {
    if (!this.#last) return "no token yet";
    const met = this.#last.log.at(this.#last.index, layer).find((choice) => choice.expert === expert);
    return met ? `gate ${met.gate.toFixed(3)} for the last token` : "not used by the last token";
  }

  // Updates the table only while it is open, and only when an answer begins or ends, so that it can be read.
  #showTable() {
    if (!this.#table.open) return;
    const box = this.#table.lastElementChild;
    if (!this.#last) return replace(box, el("p", { class: "note" }, "There is no token yet."));
    const { log, index } = this.#last;
    const rows = Array.from({ length: log.layers }, (_, l) => [
      String(l + this.#grid.firstLayer),
      log
        .at(index, l)
        .map(({ expert, gate }) => `${expert} (${gate.toFixed(3)})`)
        .join(", "),
    ]);
    replace(
      box,
      table(
        `Token “${visible(log.texts[index])}” at position ${log.positions[index]}`,
        ["Layer", "Experts (gate value)"],
        rows,
      ),
    );
  }
}
