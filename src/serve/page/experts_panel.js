// experts_panel.js - the panel of the experts: five views as tabs, of which only the visible one is active. While the
// panel is open, answers are requested with their routing.
import { byId, el, replace } from "./dom.js";
import { CompareView } from "./experts_compare.js";
import { CrowdView } from "./experts_crowd.js";
import { LiveView } from "./experts_live.js";
import { TokenView } from "./experts_token.js";
import { UseView } from "./experts_use.js";
import { local, remember } from "./storage.js";

const NAME = "dsmoe.experts";
const VIEWS = [
  ["live", "Live", LiveView],
  ["token", "Token", TokenView],
  ["use", "Use", UseView],
  ["compare", "Compare", CompareView],
  ["crowd", "Crowd", CrowdView],
];

export class ExpertsPanel {
  #app;
  #panel = byId("experts");
  #button = byId("toggle-experts");
  #tabs = new Map(); // name → {tab, box, view}
  #current = "live";

  constructor(app) {
    this.#app = app;
    for (const entry of VIEWS) this.#build(...entry);
    replace(
      byId("experts-tabs"),
      [...this.#tabs.values()].map(({ tab }) => tab),
    );
    replace(
      byId("experts-views"),
      [...this.#tabs.values()].map(({ box }) => box),
    );
    byId("experts-tabs").addEventListener("keydown", (event) => this.#key(event));
    this.#button.addEventListener("click", () => this.toggle());
    byId("close-experts").addEventListener("click", () => this.#open(false));
    byId("widen-experts").addEventListener("click", (event) => {
      const wide = document.body.classList.toggle("wide-experts");
      event.currentTarget.setAttribute("aria-pressed", String(wide));
    });
    app.wantsRouting = () => this.isOpen;
    app.on("token", (token) => token && this.#choose("token"));
    app.on("props", () => {
      this.#button.hidden = !app.props.moe?.n_layers;
    });
    this.#select(local.getItem(`${NAME}.view`) ?? "live");
    if (local.getItem(NAME) === "open" && matchMedia("(min-width: 1000px)").matches) this.#open(true, false);
  }

  get isOpen() {
    return !this.#panel.hidden;
  }

  toggle() {
    if (!this.#button.hidden) this.#open(!this.isOpen);
  }

  // Closes the panel; false if it was not open.
  close() {
    if (!this.isOpen) return false;
    this.#open(false);
    return true;
  }

  #build(name, title, View) {
    const view = new View(this.#app);
    const tab = el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `view-${name}`,
        on: { click: () => this.#select(name) },
      },
      title,
    );
    const box = el(
      "div",
      { role: "tabpanel", id: `view-${name}`, "aria-labelledby": `tab-${name}`, tabindex: "0", hidden: true },
      view.element,
    );
    this.#tabs.set(name, { tab, box, view });
  }

  #open(open, moveFocus = true) {
    this.#panel.hidden = !open;
    document.body.classList.toggle("with-experts", open);
    this.#button.setAttribute("aria-expanded", String(open));
    remember(local, NAME, open ? "open" : "closed");
    const { view, tab } = this.#tabs.get(this.#current);
    if (open) view.show();
    else view.hide?.();
    if (moveFocus) (open ? tab : this.#button).focus();
  }

  // Shows the chosen token, even if the panel was closed.
  #choose(name) {
    if (!this.isOpen) this.#open(true, false);
    this.#select(name);
  }

  #select(name) {
    if (!this.#tabs.has(name)) name = "live";
    this.#current = name;
    remember(local, `${NAME}.view`, name);
    for (const [other, { tab, box, view }] of this.#tabs) {
      const chosen = other === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (!chosen && !box.hidden) view.hide?.();
      box.hidden = !chosen;
    }
    if (this.isOpen) this.#tabs.get(name).view.show();
  }

  #key(event) {
    const names = [...this.#tabs.keys()];
    const at = names.indexOf(this.#current);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1 + names.length, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.#select(names[next % names.length]);
    this.#tabs.get(this.#current).tab.focus();
  }
}
