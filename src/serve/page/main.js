// main.js - puts the page together.
import { App } from "./app.js";
import { Composer } from "./composer.js";
import { ConversationView } from "./conversation_view.js";
import { byId, el } from "./dom.js";
import { ExpertsPanel } from "./experts_panel.js";
import { icon } from "./icons.js";
import { bindKeys } from "./keyboard.js";
import { SettingsDialog } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { StatusBar } from "./status_bar.js";

for (const place of document.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));

const app = new App();
const panel = new ExpertsPanel(app);
const view = new ConversationView(app);
const composer = new Composer(app, view);
const sidebar = new Sidebar(app);
const settings = new SettingsDialog(app);
new StatusBar(app);

byId("open-settings").addEventListener("click", () => settings.open());

bindKeys({
  newConversation: () => sidebar.startNew(),
  stop: () => Boolean(app.running) && (app.stop(), true),
  closeTopmost: () => sidebar.closeDrawer() || (matchMedia("(max-width: 999px)").matches && panel.close()),
  toggleExperts: () => panel.toggle(),
  openSettings: () => settings.open(),
});

// Screen readers hear an answer once, when it is finished, and not each token.
app.on("finished", ({ conversation, message }) => {
  if (conversation !== app.conversation) return;
  byId("announce").replaceChildren(
    el("p", null, message.error ? `The answer failed: ${message.error}` : `Answer: ${message.content}`),
  );
});

if (matchMedia("(min-width: 700px)").matches) composer.focus();
