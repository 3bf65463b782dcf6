// colours.js - the style sheet's colours for canvases: scales of 64 steps between the named colours. They are the same
// scales as in the training reports.

const STEPS = 64;
const HEAT = ["--cell", "--s7", "--s8", "--s10", "--s11", "--s12", "--hot"];
const DIVERGING = Array.from({ length: 13 }, (_, i) => `--s${i}`);

let cache = null;
addEventListener("themechange", () => {
  cache = null;
});

// {heat, diverging, label, mark}: scales are arrays of 64 colours, from none to most or from less to more.
export function colours() {
  cache ??= readColours();
  return cache;
}

function readColours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const resolve = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe)
      .color.match(/[\d.]+/g)
      .slice(0, 3)
      .map(Number);
  };
  const read = {
    heat: scale(HEAT.map(resolve)),
    diverging: scale(DIVERGING.map(resolve)),
    label: `rgb(${resolve("--soft").join(" ")})`,
    mark: `rgb(${resolve("--ink").join(" ")})`,
  };
  probe.remove();
  return read;
}

function scale(stops) {
  return Array.from({ length: STEPS }, (_, i) => {
    const at = (i / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[low].map((value, c) => Math.round(value + (stops[low + 1][c] - value) * (at - low)));
    return `rgb(${mixed.join(" ")})`;
  });
}

// The step of a scale for a value from 0 to 1.
export const stepOf = (value) => Math.max(0, Math.min(STEPS - 1, Math.round(value * (STEPS - 1))));
