// Light, dark, or as the system says; kept for this browser.

const ORDER = ["", "light", "dark"];

export function applyTheme(theme = localStorage.getItem("theme") || "") {
  document.documentElement.dataset.theme = theme;
}

/** From the system's to light, to dark, and round again. */
export function nextTheme() {
  const theme = ORDER[(ORDER.indexOf(localStorage.getItem("theme") || "") + 1) % ORDER.length];
  localStorage.setItem("theme", theme);
  applyTheme(theme);
}
