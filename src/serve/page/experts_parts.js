// experts_parts.js - parts that the views of the experts share: choices, headline numbers, legends, bars, the list of
// answers.
import { el, replace } from "./dom.js";

let serial = 0;

// A labelled select. setOptions keeps the choice if it is still in the list.
export function choice(label, options, onChange) {
  const id = `choice-${++serial}`;
  const select = el("select", { id, on: { change: onChange } });
  const setOptions = (list) => {
    const kept = select.value;
    if (
      select.childElementCount === list.length &&
      list.every(([value, text], i) => select.options[i].value === value && select.options[i].text === text)
    )
      return;
    replace(
      select,
      list.map(([value, text]) => el("option", { value }, text)),
    );
    if (list.some(([value]) => value === kept)) select.value = kept;
  };
  setOptions(options);
  return {
    element: el("div", { class: "choice" }, el("label", { for: id }, label), select),
    setOptions,
    get value() {
      return select.value;
    },
    set value(value) {
      select.value = value;
    },
  };
}

// Answers whose routing is recorded, as [id, name]: those of the branch that is shown, or of `messages`.
export function answerOptions(app, messages = app.path) {
  return messages
    .filter((message) => message.role === "assistant")
    .map((message, i) => [message.id, `${i + 1}. ${message.content.trim().replace(/\s+/g, " ").slice(0, 28) || "…"}`])
    .filter(([id]) => app.routing.get(id)?.length);
}

// Headline numbers: [name, number, note].
export function facts(list) {
  return el(
    "dl",
    { class: "facts" },
    list.map(([name, value, note]) =>
      el("div", null, el("dt", null, name), el("dd", null, value, note ? el("small", null, ` ${note}`) : null)),
    ),
  );
}

// A colour scale with the meaning of its two ends.
export function legend(scale, low, high) {
  return el("p", { class: "legend" }, el("span", null, low), el("i", { class: `scale ${scale}` }), el("span", null, high));
}

// A table whose second column is drawn as bars; `mark` on a row puts a line into its bar.
export function bars(caption, heads, rows, most) {
  const cell = ({ value, text, mark }) => {
    const bar = el("i", { class: "bar" });
    bar.style.setProperty("--fill", `${Math.max(0, Math.min(100, (value / most) * 100))}%`);
    if (mark !== undefined) {
      bar.classList.add("marked");
      bar.style.setProperty("--mark", `${Math.min(100, (mark / most) * 100)}%`);
    }
    return el("td", { class: "bar-cell" }, el("span", null, el("span", null, text), bar));
  };
  return el(
    "table",
    { class: "data bars" },
    el("caption", null, caption),
    el(
      "thead",
      null,
      el(
        "tr",
        null,
        heads.map((head) => el("th", { scope: "col" }, head)),
      ),
    ),
    el(
      "tbody",
      null,
      rows.map((row) => el("tr", null, el("th", { scope: "row" }, row.name), cell(row), el("td", null, row.note))),
    ),
  );
}
