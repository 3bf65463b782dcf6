// composer.js - the input: Enter sends, Shift+Enter starts a new line, the up arrow edits the last message sent.
import { byId } from "./dom.js";

export class Composer {
  #app;
  #input = byId("input");
  #send = byId("send");
  #stop = byId("stop");

  constructor(app, conversationView) {
    this.#app = app;
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#stop.addEventListener("click", () => app.stop());
    this.#input.addEventListener("input", () => this.#update());
    this.#input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#submit();
      } else if (event.key === "ArrowUp" && !this.#input.value) {
        event.preventDefault();
        conversationView.editLast();
      }
    });
    app.on("running props conversation", () => this.#update());
    this.#update();
  }

  focus() {
    this.#input.focus();
  }

  #submit() {
    if (!this.#app.send(this.#app.isTextMode ? this.#input.value : this.#input.value.trim())) return;
    this.#input.value = "";
    this.#update();
  }

  #update() {
    const { running, isTextMode, props, path } = this.#app;
    const words = isTextMode
      ? path.length
        ? "Add to the text, or send nothing to continue"
        : "The beginning of a text"
      : "Write a message";
    this.#input.placeholder = words;
    this.#stop.hidden = !running;
    this.#send.hidden = Boolean(running);
    this.#send.disabled = !props || (!this.#input.value.trim() && !(isTextMode && path.length));
    // Browsers that support field-sizing grow the field by themselves.
    if (!CSS.supports("field-sizing", "content")) {
      this.#input.style.height = "auto";
      this.#input.style.height = `${Math.min(this.#input.scrollHeight, 240)}px`;
    }
  }
}
