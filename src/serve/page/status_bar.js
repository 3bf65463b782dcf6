// status_bar.js - figures below the input: how much of the context is used, how busy the server is, and the speed of
// the answer.
import { byId } from "./dom.js";
import { count, integer, rate } from "./format.js";

const POLL_MS = 5000;
const SOON_MS = 400; // after an answer began or ended
const RETRY_MS = 3000;

export class StatusBar {
  #app;
  #frame = 0;
  #lost = false;

  constructor(app) {
    this.#app = app;
    byId("load").title = "How many requests the server can answer at the same time, and how many it answers now";
    app.on("conversation props", () => this.#context());
    app.on("text", () => {
      this.#frame ||= requestAnimationFrame(() => this.#speed());
    });
    app.on("running", () => {
      this.#speed();
      setTimeout(() => this.#poll(), SOON_MS);
    });
    setInterval(() => this.#poll(), POLL_MS);
    document.addEventListener("visibilitychange", () => this.#poll());
    this.#start();
  }

  // Waits for a server that is not running yet or still loads its model.
  async #start() {
    for (;;) {
      try {
        await this.#app.connect();
        byId("server-state").textContent = this.#app.props.model;
        byId("server-state").className = "";
        return this.#poll();
      } catch (error) {
        byId("server-state").textContent = error.status === 503 ? "The model is being loaded…" : error.message;
        byId("server-state").className = "bad";
        if (error.status === 401) return this.#offerKey();
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  #offerKey() {
    const again = byId("enter-key");
    again.hidden = false;
    again.addEventListener(
      "click",
      () => {
        again.hidden = true;
        this.#start();
      },
      { once: true },
    );
  }

  // Runs at a slow pace, and never while the page is hidden. A server that comes back may have another model.
  async #poll() {
    if (!this.#app.props || document.hidden) return;
    const line = byId("load");
    try {
      const slots = await this.#app.api.glance("slots");
      const busy = slots.filter((slot) => slot.state !== "idle").length;
      line.textContent = `${busy} of ${count(slots.length, "slot")} busy`;
      if (this.#lost) this.#start();
      this.#lost = false;
    } catch (error) {
      this.#lost ||= error.status === 0;
      line.textContent = error.status ? "" : "The server cannot be reached";
    }
  }

  // The next message will follow the last answer's prompt and text.
  #context() {
    const { path, props } = this.#app;
    const last = path.findLast((message) => message.figures?.promptTokens !== undefined);
    const used = last ? last.figures.promptTokens + (last.figures.completionTokens ?? 0) : 0;
    const size = props?.n_ctx ?? 0;
    byId("context").hidden = !size;
    if (!size) return;
    byId("context-text").textContent = `${integer(used)} of ${count(size, "token")} of context`;
    byId("context-bar").max = size;
    byId("context-bar").value = Math.min(used, size);
  }

  #speed() {
    this.#frame = 0;
    const run = this.#app.running;
    const perSecond = run?.message.figures?.perSecond;
    this.#context();
    byId("speed").textContent = perSecond
      ? rate(perSecond)
      : run
        ? run.message.content
          ? ""
          : "Reading the prompt…"
        : "";
  }
}
