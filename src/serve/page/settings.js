// settings.js - how answers are sampled, and the dialog that changes it. An empty field leaves the choice to the
// server.
import { byId, el, replace } from "./dom.js";
import { remember } from "./storage.js";

const NAME = "dsmoe.settings";

// Every number: the request's field, its label, a note, its limits and step.
const NUMBERS = [
  ["temperature", "Temperature", "0 always takes the most likely token; higher is more varied.", 0, 5, 0.05],
  ["top_p", "Top p", "Only the most likely tokens that together have this probability.", 0, 1, 0.01],
  ["top_k", "Top k", "Only this many of the most likely tokens; 0: all.", 0, 100000, 1],
  ["min_p", "Min p", "Only tokens at least this likely, relative to the most likely one.", 0, 1, 0.01],
  ["repeat_penalty", "Repeat penalty", "Above 1 makes recent tokens less likely.", 0.1, 10, 0.01],
  ["repeat_last_n", "Repeat window", "How many of the last tokens the repeat penalty looks at.", -1, 100000, 1],
  ["presence_penalty", "Presence penalty", "Lowers every token that has occurred.", -2, 2, 0.1],
  ["frequency_penalty", "Frequency penalty", "Lowers tokens by how often they have occurred.", -2, 2, 0.1],
  ["max_tokens", "Longest answer", "In tokens; empty: as many as fit.", 1, 1000000, 1],
  ["seed", "Seed", "The same seed and settings give the same answer.", 0, 4294967295, 1],
];

export function loadSettings(storage) {
  let kept;
  try {
    kept = JSON.parse(storage.getItem(NAME)) ?? {};
  } catch {
    kept = {};
  }
  const settings = { stop: [], system: "", alwaysRouting: false };
  for (const [field] of NUMBERS) if (Number.isFinite(kept[field])) settings[field] = kept[field];
  if (Array.isArray(kept.stop))
    settings.stop = kept.stop.filter((text) => typeof text === "string" && text).slice(0, 16);
  if (typeof kept.system === "string") settings.system = kept.system;
  settings.alwaysRouting = kept.alwaysRouting === true;
  return settings;
}

export function saveSettings(storage, settings) {
  remember(storage, NAME, JSON.stringify(settings));
}

// The fields of a request that the settings name.
export function samplingFields(settings) {
  const fields = {};
  for (const [field] of NUMBERS) if (settings[field] !== undefined) fields[field] = settings[field];
  if (settings.stop.length) fields.stop = settings.stop;
  return fields;
}

// Stop texts are written one per line, with \n and \t as escapes.
export const writeStops = (stops) =>
  stops.map((stop) => stop.replace(/\\/g, "\\\\").replace(/\n/g, "\\n").replace(/\t/g, "\\t")).join("\n");
export const readStops = (text) =>
  text
    .split("\n")
    .filter(Boolean)
    .map((line) => line.replace(/\\(.)/g, (_, c) => ({ n: "\n", t: "\t" })[c] ?? c))
    .slice(0, 16);

export class SettingsDialog {
  #app;
  #dialog = byId("settings");
  #fields = new Map();

  constructor(app) {
    this.#app = app;
    byId("settings-save").addEventListener("click", () => this.#save());
    byId("settings-cancel").addEventListener("click", () => this.#dialog.close());
    byId("settings-reset").addEventListener("click", () => this.#reset());
    byId("settings-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
  }

  open() {
    const { settings, conversation, props } = this.#app;
    this.#buildNumbers(props?.default_generation_settings ?? {});
    for (const [field, input] of this.#fields) input.value = settings[field] ?? "";
    byId("settings-system").value = conversation.system;
    byId("settings-system").disabled = this.#app.isTextMode;
    byId("settings-system-note").textContent = this.#app.isTextMode
      ? "This model has no chat form, so there is no system prompt: it continues text."
      : "Tells the model how to behave in this conversation.";
    byId("settings-system-keep").checked = false;
    byId("settings-stop").value = writeStops(settings.stop);
    byId("settings-routing").checked = settings.alwaysRouting;
    this.#dialog.showModal();
  }

  #buildNumbers(defaults) {
    this.#fields.clear();
    replace(
      byId("settings-numbers"),
      NUMBERS.map(([field, label, note, min, max, step]) => {
        const id = `settings-${field}`;
        const known = Number.isFinite(defaults[field]) ? `${Number(defaults[field].toFixed(4))} (the server's)` : "";
        const input = el("input", {
          id,
          type: "number",
          min,
          max,
          step: step < 1 ? "any" : 1,
          inputmode: "decimal",
          placeholder: known,
          "aria-describedby": `${id}-note`,
        });
        this.#fields.set(field, input);
        return el(
          "div",
          { class: "field" },
          el("label", { for: id }, label),
          input,
          el("p", { class: "note", id: `${id}-note` }, note),
        );
      }),
    );
  }

  #reset() {
    for (const input of this.#fields.values()) input.value = "";
    byId("settings-stop").value = "";
  }

  #save() {
    for (const input of this.#fields.values()) if (!input.reportValidity()) return;
    const { settings, conversation } = this.#app;
    for (const [field, input] of this.#fields) {
      if (input.value === "") delete settings[field];
      else settings[field] = Number(input.value);
    }
    settings.stop = readStops(byId("settings-stop").value);
    settings.alwaysRouting = byId("settings-routing").checked;
    conversation.system = byId("settings-system").value;
    if (byId("settings-system-keep").checked) settings.system = conversation.system;
    this.#dialog.close();
    this.#app.settingsChanged();
  }
}
