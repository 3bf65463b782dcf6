// keyboard.js - keys that work anywhere on the page, and the dialog that lists them all.
import { byId, el, replace } from "./dom.js";

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const MOD = isMac ? "⌘" : "Ctrl";

const KEYS = [
  [["Enter"], "Send the message"],
  [["Shift", "Enter"], "New line"],
  [["Esc"], "Stop the answer, or close the open panel"],
  [["↑"], "Edit your last message, if the input is empty"],
  [[MOD, "K"], "New conversation"],
  [[MOD, "E"], "Show or hide the experts"],
  [[MOD, ","], "Settings"],
  [["←", "→"], "Previous or next token, in the tokens of an answer"],
  [["?"], "This list"],
];

export function bindKeys({ newConversation, stop, closeTopmost, toggleExperts, openSettings }) {
  replace(
    byId("help-keys"),
    KEYS.map(([keys, meaning]) =>
      el(
        "div",
        null,
        el(
          "dt",
          null,
          keys.map((key) => el("kbd", null, key)),
        ),
        el("dd", null, meaning),
      ),
    ),
  );
  byId("open-help").addEventListener("click", () => byId("help").showModal());
  byId("help-close").addEventListener("click", () => byId("help").close());

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
    const mod = isMac ? event.metaKey : event.ctrlKey;
    const isWriting = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    const commands = { k: newConversation, e: toggleExperts, ",": openSettings };
    if (mod && !event.shiftKey && !event.altKey && commands[event.key.toLowerCase()])
      commands[event.key.toLowerCase()]();
    else if (event.key === "Escape") {
      if (!stop()) closeTopmost();
    } else if (event.key === "?" && !isWriting) byId("help").showModal();
    else return;
    event.preventDefault();
  });
}
