// dom.js - makes elements in one call. Text always becomes text nodes: this page never parses HTML from a string.
import { icon } from "./icons.js";

// el("p", { class: "note", on: { click } }, "text", child). A null child or attribute is left out.
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// A button with the icon `name`, and `text` if given; otherwise `label` is its name for tooltips and screen readers.
export function button({ name, label, text, onClick, ...attributes }) {
  const face = [name ? icon(name) : null, text ? el("span", null, text) : null];
  const named = text ? {} : { "aria-label": label, title: label };
  return el("button", { type: "button", ...named, ...attributes, on: { click: onClick } }, ...face);
}

export const byId = (id) => document.getElementById(id);

export function replace(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// A table with a caption. `rows` are arrays of text or nodes; the first cell is the row's header.
export function table(caption, heads, rows) {
  const head = el(
    "tr",
    null,
    heads.map((text) => el("th", { scope: "col" }, text)),
  );
  const body = rows.map(([first, ...rest]) =>
    el(
      "tr",
      null,
      el("th", { scope: "row" }, first),
      rest.map((cell) => el("td", null, cell)),
    ),
  );
  return el("table", { class: "data" }, el("caption", null, caption), el("thead", null, head), el("tbody", null, body));
}

// Copies text, and shows that on the button for a moment.
export async function copyFrom(node, text) {
  const label = node.getAttribute("aria-label");
  try {
    await navigator.clipboard.writeText(text);
    flash(node, "Copied");
  } catch {
    flash(node, "The browser did not allow copying");
  }
  function flash(target, words) {
    target.classList.add("done");
    target.setAttribute("aria-label", words);
    target.title = words;
    setTimeout(() => {
      target.classList.remove("done");
      target.setAttribute("aria-label", label);
      target.title = label;
    }, 1500);
  }
}
