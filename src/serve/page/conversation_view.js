// conversation_view.js - the messages of the branch that is shown. Redraws at most once a frame, however fast tokens
// arrive.
import { byId, el, replace } from "./dom.js";
import { parameters } from "./format.js";
import { MessageView } from "./message_view.js";
import { ModelPicture } from "./model_picture.js";

const NEAR_END = 80; // pixels: the view follows an answer if it is this close to the end

export class ConversationView {
  #app;
  #region = byId("messages");
  #list = byId("message-list");
  #toEnd = byId("to-end");
  #views = new Map(); // message's id → its view
  #grown = new Set();
  #frame = 0;
  #follows = true;
  #picture = new ModelPicture();

  constructor(app) {
    this.#app = app;
    app.on("conversation props routing running", () => this.#render());
    app.on("text", (message) => this.#later(message));
    app.on("token", () => {
      for (const view of this.#views.values()) view.markToken();
    });
    this.#region.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#toEnd.addEventListener("click", () => this.scrollToEnd());
    this.#render();
  }

  // Opens the person's last message for editing.
  editLast() {
    const last = this.#app.path.findLast((message) => message.role === "user");
    if (last) this.#views.get(last.id)?.edit();
  }

  scrollToEnd() {
    this.#follows = true;
    this.#region.scrollTop = this.#region.scrollHeight;
  }

  #later(message) {
    this.#grown.add(message);
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    for (const message of this.#grown) this.#views.get(message.id)?.grow();
    this.#grown.clear();
    if (this.#follows) this.#region.scrollTop = this.#region.scrollHeight;
  }

  // Keeps the views of messages that stay; makes or drops the others.
  #render() {
    const path = this.#app.path;
    const focused = this.#focusedTool();
    const kept = new Map();
    for (const message of path) {
      const old = this.#views.get(message.id);
      const view = old?.message === message ? old : new MessageView(this.#app, message);
      if (view === old) view.update();
      kept.set(message.id, view);
    }
    this.#views = kept;
    this.#list.classList.toggle("text-mode", this.#app.isTextMode);
    const nodes = path.length ? path.map((message) => kept.get(message.id).element) : [this.#welcome()];
    if (nodes.length !== this.#list.childNodes.length || nodes.some((node, i) => this.#list.childNodes[i] !== node)) {
      replace(this.#list, nodes);
      if (!path.length) this.#picture.draw();
    }
    this.#returnFocus(focused, nodes);
    if (this.#follows) this.#region.scrollTop = this.#region.scrollHeight;
    this.#scrolled();
  }

  // The button that has the focus, and its message: it may be made again, or replaced by another branch's button.
  #focusedTool() {
    const tool = document.activeElement?.closest("#message-list .tools button");
    if (!tool) return null;
    return {
      place: [...this.#list.children].indexOf(tool.closest(".message")),
      label: tool.getAttribute("aria-label"),
    };
  }

  #returnFocus(focused, nodes) {
    if (!focused || document.activeElement?.closest("#message-list")) return;
    const tools = [...(nodes[focused.place]?.querySelectorAll(".tools button") ?? [])];
    const same = tools.find((tool) => tool.getAttribute("aria-label") === focused.label && !tool.disabled);
    (same ?? byId("input")).focus({ preventScroll: true });
  }

  #scrolled() {
    const rest = this.#region.scrollHeight - this.#region.scrollTop - this.#region.clientHeight;
    this.#follows = rest < NEAR_END;
    this.#toEnd.hidden = this.#follows;
  }

  #welcome() {
    const { props } = this.#app;
    if (!props)
      return el("div", { class: "welcome" }, el("p", { class: "note" }, "Asking the server about its model…"));
    const { moe, parameters: size } = props;
    const facts = [];
    if (size)
      facts.push(`${parameters(size.total)} parameters, ${parameters(size.active)} of them active per token.`);
    if (moe?.n_layers)
      facts.push(
        `Each of its ${moe.n_layers} MoE layers sends a token to ${moe.num_experts_per_tok} of ${moe.n_routed_experts} experts.`,
      );
    const invitation = this.#app.isTextMode
      ? "This model has no chat form: write the beginning of a text, and it continues."
      : "Ask something. Open the experts to see which of them answer.";
    this.#picture.setModel(moe);
    return el(
      "div",
      { class: "welcome" },
      this.#picture.element,
      el("p", { class: "welcome-name" }, props.model),
      el("p", null, facts.join(" ")),
      el("p", { class: "note" }, invitation),
    );
  }
}
