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

let going = -Infinity; // time of the last g
const acts = {
  "/": search,
  "?": () => { dialog.showModal(); return true; },
  a: () => { document.getElementById("switch").click(); return true; },
  p: () => { document.getElementById("live").click(); return true; },
  g: (e) => { going = e.timeStamp; return true; },
};
document.addEventListener("keydown", (e) => {
  if (!single.checked || e.ctrlKey || e.metaKey || e.altKey || e.isComposing || e.repeat || e.defaultPrevented) return;
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
