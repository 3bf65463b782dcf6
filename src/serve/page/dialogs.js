// dialogs.js - short questions and messages: the key, a name, a confirmation, a notice at the edge of the page.
import { button, byId, el, replace } from "./dom.js";

// Shows a question with one field or none. Resolves to the text ("" without a field), or to null if it was cancelled.
function ask({ title, note, field, value = "", type = "text", confirm, danger = false }) {
  const dialog = byId("question");
  const input = field
    ? el("input", { id: "question-field", type, value, autocomplete: "off", spellcheck: "false" })
    : null;
  return new Promise((resolve) => {
    let answer = null;
    const accept = () => {
      answer = input ? input.value : "";
      dialog.close();
    };
    const form = el(
      "form",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            accept();
          },
        },
      },
      el("h2", { id: "question-title" }, title),
      note ? el("p", { class: "note" }, note) : null,
      input ? el("div", { class: "field" }, el("label", { for: "question-field" }, field), input) : null,
      el(
        "div",
        { class: "row end" },
        button({ text: "Cancel", onClick: () => dialog.close() }),
        el("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm),
      ),
    );
    replace(dialog, form);
    dialog.addEventListener("close", () => resolve(answer), { once: true });
    dialog.showModal();
    (input ?? form.querySelector("button[type=submit]")).focus();
    input?.select();
  });
}

export async function askKey(wrong) {
  const key = await ask({
    title: "This server needs a key",
    note: wrong
      ? "The server did not accept that key."
      : "It is kept until this tab is closed and sent to this server only.",
    field: "API key",
    type: "password",
    confirm: "Use this key",
  });
  return key?.trim() || null;
}

export const askName = (value) => ask({ title: "Rename the conversation", field: "Name", value, confirm: "Rename" });

export async function confirmDelete(title) {
  return (
    (await ask({
      title: "Delete this conversation?",
      note: `“${title}” with all its branches. This cannot be undone.`,
      confirm: "Delete",
      danger: true,
    })) !== null
  );
}

let notifyTimer = 0;

// Shows a notice that disappears by itself; screen readers announce it.
export function notify(text) {
  const line = byId("notice");
  line.textContent = text;
  line.hidden = false;
  clearTimeout(notifyTimer);
  notifyTimer = setTimeout(() => {
    line.hidden = true;
  }, 7000);
}
