// theme.js - dark, light, or the system's choice. Sets the attribute before the first paint, so it is not a module.
(() => {
  const NAME = "dsmoe.theme";
  const root = document.documentElement;

  function apply(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
    dispatchEvent(new Event("themechange"));
  }

  try {
    apply(localStorage.getItem(NAME));
  } catch {
    apply(null);
  }

  addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = root.dataset.theme ?? "system";
    choice.addEventListener("change", () => {
      apply(choice.value);
      localStorage.setItem(NAME, choice.value);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      dispatchEvent(new Event("themechange")),
    );
  });
})();
