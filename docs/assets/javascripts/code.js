/* The pages that show code: the reader's colours from the other pages, and a button that copies. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const root = new URL(document.documentElement.dataset.root || "./", location);
  let chosen = null;
  try {
    chosen = JSON.parse(localStorage.getItem(`${root.pathname}.__palette`));
  } catch {
    // Without storage the system's colours are right.
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const media = chosen?.color?.media;
  const paint = () => {
    const follows = !media || media === "(prefers-color-scheme)";
    document.body.dataset.mdColorScheme =
      (follows ? dark.matches : chosen.color.scheme === "slate") ? "slate" : "default";
  };
  dark.addEventListener("change", paint);
  paint();
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    const label = button.textContent;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 2000);
    });
  }
});
