// model_picture.js - the picture of an empty conversation: the model's own layers and experts as points, with the
// path of a made-up token through them. It is decoration, so it is hidden from screen readers.
import { colours } from "./colours.js";
import { el } from "./dom.js";

const WIDTH = 420;
const MAX_STEP = 11;

export class ModelPicture {
  element = el("canvas", { class: "model-picture", "aria-hidden": "true" });
  #moe = null;

  constructor() {
    addEventListener("themechange", () => this.draw());
  }

  setModel(moe) {
    this.#moe = moe;
  }

  draw() {
    const moe = this.#moe;
    if (!moe?.n_layers) return;
    const step = Math.min(MAX_STEP, WIDTH / moe.n_routed_experts);
    const ratio = devicePixelRatio || 1;
    const width = step * moe.n_routed_experts;
    const height = step * moe.n_layers;
    this.element.width = width * ratio;
    this.element.height = height * ratio;
    this.element.style.width = `${width}px`;
    this.element.style.height = `${height}px`;
    const context = this.element.getContext("2d");
    context.scale(ratio, ratio);
    for (let l = 0; l < moe.n_layers; l++) this.#drawLayer(context, l, step);
  }

  #drawLayer(context, layer, step) {
    const { n_routed_experts: experts, num_experts_per_tok: top } = this.#moe;
    const lit = new Map();
    for (let k = 0; k < 4 * experts && lit.size < top; k++) {
      const expert = (layer * 37 + k * 19 + ((layer * k * 11) % 7)) % experts;
      if (!lit.has(expert)) lit.set(expert, lit.size);
    }
    for (let e = 0; e < experts; e++) {
      const place = lit.get(e);
      const { heat } = colours();
      context.fillStyle = heat[place === undefined ? 0 : Math.round(52 - place * (28 / top))];
      context.beginPath();
      context.arc((e + 0.5) * step, (layer + 0.5) * step, step * (place === undefined ? 0.22 : 0.34), 0, 7);
      context.fill();
    }
  }
}
