// Light, dark, or the system's theme; stored in this browser.

const ORDER = ["", "light", "dark"];

export function applyTheme(theme = localStorage.getItem("theme") || "") {
  document.documentElement.dataset.theme = theme;
}

/** Switch from the system's theme to light, to dark, and back. */
export function nextTheme() {
  const theme = ORDER[(ORDER.indexOf(localStorage.getItem("theme") || "") + 1) % ORDER.length];
  localStorage.setItem("theme", theme);
  applyTheme(theme);
}
