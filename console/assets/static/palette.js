// The command palette and the list of apps: dialogs of the page and what opens them.

import { combobox } from "./combobox.js";

const mac = /Mac|iP/.test(navigator.platform); // there Ctrl+K deletes to the end of the line
if (mac) for (const key of document.querySelectorAll("[data-mac]")) key.textContent = key.dataset.mac;

const palette = document.getElementById("palette");
const toggle = combobox(palette, (q) => `/palette?${new URLSearchParams({ app: palette.dataset.app, q })}`);
const opener = document.getElementById("find");
opener.hidden = false;
opener.addEventListener("click", toggle);
document.addEventListener("keydown", (e) => {
  const modifier = mac ? e.metaKey && !e.ctrlKey : e.ctrlKey && !e.metaKey;
  if (e.key.toLowerCase() !== "k" || !modifier || e.altKey || e.shiftKey) return;
  e.preventDefault();
  toggle();
});

// Without this script the link to the apps opens a page, and with it in a new tab too.
const switcher = document.getElementById("switch");
const apps = document.getElementById("apps");
const toggleApps = combobox(apps, (q) => `${switcher.getAttribute("href")}&${new URLSearchParams({ q })}`);
apps.addEventListener("close", () => {
  if (!switcher.checkVisibility()) document.querySelector(".menubutton").focus(); // the dialog has closed the menu
});
switcher.setAttribute("aria-haspopup", "dialog");
switcher.addEventListener("click", (e) => {
  if (e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  toggleApps();
});
