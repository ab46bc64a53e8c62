// A dialog with a combobox, whose options the server finds: the command palette and the list of apps.

const DEBOUNCE_MS = 120; // a request for a pause in typing, not for each key

// combobox makes a dialog work and returns the function that opens or closes it. address returns where
// the options of a text are.
export function combobox(dialog, address) {
  const field = dialog.querySelector("[role=combobox]");
  const list = dialog.querySelector("[role=listbox]");
  const note = dialog.querySelector("[role=status]");

  let timer = 0;
  let asked = null;   // aborts the request under way
  let pending = false; // the list does not have the results of the text yet
  let opening = false; // Enter came before the results

  const options = () => [...list.querySelectorAll("[role=option]")];
  const chosen = () => list.querySelector("[aria-selected=true]");

  function choose(option) {
    chosen()?.setAttribute("aria-selected", "false");
    if (!option) { field.removeAttribute("aria-activedescendant"); return; }
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", option.id);
  }

  function show(fragment) {
    list.replaceChildren(...(fragment ? fragment.childNodes : []));
    const found = options().length > 0;
    list.hidden = !found;
    field.setAttribute("aria-expanded", String(found));
    choose(options()[0]);
  }

  function reset() {
    clearTimeout(timer);
    asked?.abort();
    asked = null;
    opening = false;
    show(null);
  }

  async function ask() {
    asked?.abort();
    const own = asked = new AbortController();
    try {
      const answer = await fetch(address(field.value), { headers: { "HX-Request": "true" }, signal: own.signal });
      if (answer.status === 401) { location.reload(); return; } // the login page leads back to this one
      if (!answer.ok) throw new Error(answer.statusText);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (own !== asked) return;
      const fragment = page.querySelector("[data-found]");
      show(fragment);
      note.textContent = fragment.dataset.found;
      pending = false;
      if (opening) open(chosen());
    } catch {
      if (own !== asked) return; // a later text replaced this one
      pending = false;
      show(null);
      note.textContent = dialog.dataset.failed;
    }
    opening = false;
  }

  function later(ms) {
    clearTimeout(timer);
    pending = true;
    opening = false;
    timer = setTimeout(ask, ms);
  }

  // open leaves the dialog open until the next page is there, so that the focus does not return for
  // a moment to a field, which would take the key.
  function open(option, tab) {
    if (!option) return;
    if (option.dataset.post) {
      const form = document.createElement("form");
      form.method = "post";
      form.action = option.href;
      document.body.append(form);
      form.requestSubmit();
      form.remove();
      return;
    }
    if (tab) window.open(option.href, "_blank", "noopener");
    else location.assign(option.href);
    if (tab || option.pathname + option.search === location.pathname + location.search) dialog.close();
  }
  addEventListener("pagehide", () => dialog.close());

  function toggle() {
    if (dialog.open) { dialog.close(); return; }
    if (document.querySelector("dialog[open]")) return;
    reset();
    dialog.showModal(); // the browser gives the focus back when it closes
    field.value = "";
    field.focus();
    later(0);
  }

  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); }); // beside the box
  dialog.addEventListener("close", () => { if (!dialog.open) reset(); }); // it comes late: the dialog may be open again
  field.addEventListener("input", () => later(DEBOUNCE_MS));
  field.addEventListener("keydown", (e) => {
    if (e.isComposing) return; // Enter ends the input of a character
    const all = options();
    const at = all.indexOf(chosen());
    const to = { ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      if (all.length > 0) choose(all[to]);
    } else if (e.key === "Enter") {
      e.preventDefault();
      if (pending) opening = true;
      else open(chosen(), e.ctrlKey || e.metaKey);
    }
  });
  list.addEventListener("click", (e) => {
    const option = e.target.closest("[role=option]");
    if (!option || !option.dataset.post && (e.ctrlKey || e.metaKey || e.shiftKey)) return; // the browser opens a tab or a window
    e.preventDefault();
    open(option);
  });

  return toggle;
}
