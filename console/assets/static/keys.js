// The keys of the console, and the dialog that lists them. A single key never acts in a field, and
// the visitor can switch them off, because screen readers and speech input use them too.

const GO_MS = 1500; // for the letter after g

const dialog = document.getElementById("keys");
const opener = document.getElementById("keyhelp");
const single = document.getElementById("keys-single");

// Without a storage the choice holds for the page.
function stored(value) {
  try {
    if (value === undefined) return localStorage.getItem("keys");
    localStorage.setItem("keys", value);
  } catch { /* the default holds */ }
  return null;
}
single.checked = stored() !== "off";
single.addEventListener("change", () => stored(single.checked ? "on" : "off"));
addEventListener("storage", (e) => { if (e.key === "keys") single.checked = e.newValue !== "off"; });

opener.hidden = false;
opener.addEventListener("click", () => dialog.showModal());
for (const button of dialog.querySelectorAll("button")) button.addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); }); // beside the box

function search() {
  const field = document.querySelector("[data-search]");
  if (!field) return false;
  if (!field.checkVisibility()) field.closest("[popover]")?.showPopover();
  field.focus();
  field.select();
  return true;
}

// step moves the focus to the first link of the next row of a list, or of the previous one. The focus
// stays at the first and at the last row.
function step(by) {
  const rows = [...document.querySelectorAll("main :is(tbody tr, .revisions > li, .names > li)")]
    .map((row) => [row, [...row.querySelectorAll("a, button, summary")].find((e) => e.checkVisibility())])
    .filter(([, link]) => link);
  if (rows.length === 0) return false;
  const at = rows.findIndex(([row]) => row.contains(document.activeElement));
  const to = at < 0 && by < 0 ? rows.length - 1 : at + by;
  rows[Math.max(0, Math.min(to, rows.length - 1))][1].focus();
  return true;
}

let going = -Infinity; // time of the last g
const acts = {
  "/": search,
  "?": () => { dialog.showModal(); return true; },
  a: () => { document.getElementById("switch").click(); return true; },
  j: () => step(1),
  k: () => step(-1),
  p: () => { document.getElementById("live").click(); return true; },
  g: (e) => { going = e.timeStamp; return true; },
};
document.addEventListener("keydown", (e) => {
  if (!single.checked || e.ctrlKey || e.metaKey || e.altKey || e.isComposing || e.defaultPrevented) return;
  if (e.repeat && e.key !== "j" && e.key !== "k") return;
  if (e.target.closest("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  if (e.key === "Shift") return; // comes before ?
  const second = e.timeStamp - going < GO_MS;
  going = -Infinity;
  const link = second && [...dialog.querySelectorAll("a[data-key]")].find((a) => a.dataset.key === e.key);
  if (link) {
    e.preventDefault();
    location.assign(link.href);
  } else if (!second && Object.hasOwn(acts, e.key) && acts[e.key](e)) {
    e.preventDefault();
  }
});
