// grid_canvas.js - a canvas of MoE layers (rows) by experts (columns): sharp at any pixel ratio, with numbers at
// the edges and a line that describes the cell under the pointer. Cells are drawn only when their colour changes.
import { colours } from "./colours.js";
import { el } from "./dom.js";

const GUTTER = 24;
const HEAD = 4; // so that the first layer's number is whole
const FOOT = 18;
const MAX_CELL = 22;
const FONT = "11px system-ui, sans-serif";

export class GridCanvas {
  layers = 0;
  experts = 0;
  firstLayer = 0;
  #canvas;
  #context;
  #readout;
  #shown = new Uint8Array(0); // step of each cell on the canvas; 255: not drawn
  #steps = new Uint8Array(0);
  #scale = "heat";
  #ratio = 1;
  #cell = { width: 0, height: 0, gap: 0 };

  // `label` names the picture; `describe(layer, expert)` returns the description of a cell.
  constructor(label, describe) {
    this.#canvas = el("canvas", { role: "img", "aria-label": label });
    this.#context = this.#canvas.getContext("2d");
    this.#readout = el("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
    this.element = el("div", { class: "grid-canvas" }, this.#canvas, this.#readout);
    new ResizeObserver(() => this.#layOut()).observe(this.element);
    addEventListener("themechange", () => this.#drawAll());
    this.#canvas.addEventListener("pointermove", (event) => {
      const cell = this.#cellAt(event.offsetX, event.offsetY);
      this.#readout.textContent = cell
        ? `Layer ${cell.layer + this.firstLayer}, expert ${cell.expert}: ${describe(cell.layer, cell.expert)}`
        : "\u00a0";
    });
    this.#canvas.addEventListener("pointerleave", () => {
      this.#readout.textContent = "\u00a0";
    });
  }

  setModel(moe) {
    if (!moe || (moe.n_layers === this.layers && moe.n_routed_experts === this.experts)) return;
    this.layers = moe.n_layers;
    this.experts = moe.n_routed_experts;
    this.firstLayer = moe.first_layer ?? 0;
    this.#shown = new Uint8Array(this.layers * this.experts).fill(255);
    this.#steps = new Uint8Array(this.layers * this.experts);
    this.#layOut();
  }

  // "heat" or "diverging".
  setScale(name) {
    this.#scale = name;
    this.#shown.fill(255);
  }

  set label(text) {
    this.#canvas.setAttribute("aria-label", text);
  }

  // The colours to show: a step of the scale for each cell.
  draw(steps) {
    this.#steps.set(steps);
    this.#paint();
  }

  #layOut() {
    const width = this.element.clientWidth;
    if (!width || !this.layers) return;
    const cellWidth = Math.min(MAX_CELL, (width - GUTTER) / this.experts);
    // Rows are higher if there are few layers: the picture always has about the same height and fits the window.
    const most = Math.min(420, innerHeight * (innerWidth < 1000 ? 0.3 : 0.5)) / this.layers;
    const cellHeight = Math.max(4, Math.min(MAX_CELL, most, Math.max(cellWidth * 1.35, 160 / this.layers)));
    this.#cell = { width: cellWidth, height: cellHeight, gap: cellWidth >= 4 ? 1 : 0 };
    this.#ratio = devicePixelRatio || 1;
    const height = HEAD + Math.ceil(cellHeight * this.layers) + FOOT;
    this.#canvas.width = Math.round(width * this.#ratio);
    this.#canvas.height = Math.round(height * this.#ratio);
    this.#canvas.style.height = `${height}px`;
    this.#drawAll();
  }

  #drawAll() {
    if (!this.layers || !this.#cell.width) return;
    const context = this.#context;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#drawNumbers();
    this.#shown.fill(255);
    this.#paint();
  }

  // Numbers of layers at the left and of experts below, as many as there is room for.
  #drawNumbers() {
    const context = this.#context;
    const { width, height } = this.#cell;
    context.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    context.fillStyle = colours().label;
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const everyLayer = stride(this.layers, 14 / height);
    for (let l = 0; l < this.layers; l += everyLayer)
      context.fillText(l + this.firstLayer, GUTTER - 6, HEAD + (l + 0.5) * height);
    context.textAlign = "center";
    const everyExpert = stride(this.experts, 26 / width);
    for (let e = 0; e < this.experts; e += everyExpert)
      context.fillText(e, GUTTER + (e + 0.5) * width, HEAD + this.layers * height + 11);
  }

  // Edges are on whole pixels of the screen; otherwise gaps would differ from column to column.
  #paint() {
    const scale = colours()[this.#scale];
    const context = this.#context;
    const { width, height, gap } = this.#cell;
    if (!width) return;
    const ratio = this.#ratio;
    const edge = (value) => Math.round(value * ratio);
    const space = gap ? Math.max(1, Math.round(gap * ratio)) : 0;
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (let i = 0; i < this.#steps.length; i++) {
      if (this.#shown[i] === this.#steps[i]) continue;
      this.#shown[i] = this.#steps[i];
      const l = Math.floor(i / this.experts);
      const e = i - l * this.experts;
      const x = edge(GUTTER + e * width);
      const y = edge(HEAD + l * height);
      context.fillStyle = scale[this.#steps[i]];
      context.fillRect(x, y, edge(GUTTER + (e + 1) * width) - x - space, edge(HEAD + (l + 1) * height) - y - space);
    }
  }

  #cellAt(x, y) {
    const expert = Math.floor((x - GUTTER) / this.#cell.width);
    const layer = Math.floor((y - HEAD) / this.#cell.height);
    return expert >= 0 && expert < this.experts && layer >= 0 && layer < this.layers ? { layer, expert } : null;
  }
}

// A step between numbers that leaves room for each number and is a power of two.
function stride(total, atLeast) {
  return [1, 2, 4, 8, 16, 32, 64].find((step) => step >= atLeast) ?? total;
}
