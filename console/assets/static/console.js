// Keeps pages fresh, and shows the live log of a run. Everything else works without it; palette.js
// and keys.js have the command palette and the keys, and upload.js the progress of uploads.
//
// The event stream is in stream.js, because all tabs share it.
// Text from the server reaches the page as text nodes only.

import { LogFilter, lineOf, note, reveal, row } from "./loglines.js";
import { follow } from "./stream.js";
import "./upload.js"; // before the listener below, which marks a form as sent

const INTERVALS = ["1", "3", "10", "30"]; // seconds between two refreshes
const INTERVAL = "3";       // without a choice
const SETTLE_MS = 250;      // at most four refreshes a second while a run changes
const MAX_LINES = 5000;     // of a log in the page; the file has the rest
const MAX_BEFORE = 1000;    // lines before the one at which the page was opened
const MAX_BACKLOG = 20000;  // lines that wait for a frame, as in a hidden tab

const live = document.getElementById("live");

function preference(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch { /* storage may be switched off; the default holds */ }
  return null;
}

// The browser's zone is in a cookie, so that the server can write times in it. A page that
// was written before that is fetched once more.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zoneCookie = `wheelwork_browser_zone=${zone}`;
const hasZone = () => document.cookie.split("; ").includes(zoneCookie);
if (/^[\w+/-]+$/.test(zone) && !hasZone()) {
  document.cookie = `${zoneCookie}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  const page = document.documentElement.dataset.zone; // only of a page that may be fetched again
  if (page && page !== zone && hasZone()) location.reload();
}

// The list of zones becomes complete when it is used.
document.getElementById("zone")?.addEventListener("focus", (e) => {
  const known = new Set([...e.target.options].map((o) => o.value));
  for (const name of Intl.supportedValuesOf?.("timeZone") ?? []) if (!known.has(name)) e.target.add(new Option(name, name));
}, { once: true });

const choice = document.getElementById("interval");
const lostNote = document.getElementById("lost");
let interval = INTERVALS.find((s) => s === preference("interval")) ?? INTERVAL;

const paused = () => live?.getAttribute("aria-pressed") === "false";

function showLive(lost) {
  if (!live) return;
  live.classList.toggle("lost", lost && !paused());
  live.querySelector("span").textContent =
    paused() ? live.dataset.no : lost ? live.dataset.lost : live.dataset.yes;
  choice.value = paused() ? "off" : interval;
  const note = lost && !paused() ? lostNote.dataset.text : "";
  if (lostNote.textContent !== note) lostNote.textContent = note; // a reader says it once
}

// busy tells whether a refresh would pull something from under the visitor.
function busy() {
  const fresh = document.getElementById("fresh");
  const selection = getSelection();
  const selecting = !selection.isCollapsed && fresh?.contains(selection.anchorNode);
  return document.hidden || paused() || selecting;
}

let stale = false; // a refresh was due while the visitor was busy
function refresh() {
  stale = busy();
  if (!stale) htmx.trigger(document.body, "refresh");
}
setInterval(() => { if (stale) refresh(); }, 1000);

// tick refreshes the page at the interval of the visitor.
let ticking = 0;
function tick() {
  clearTimeout(ticking);
  ticking = setTimeout(() => { refresh(); tick(); }, interval * 1000);
}
function endTicks() {
  clearTimeout(ticking);
  ticking = 0;
}

// A refresh morphs #fresh: elements stay, and with them the focus, the scroll positions
// and typed text. These hold what the visitor or this script changed.
const DIRTY = new Set(["open", "data-sent", "aria-disabled"]);
const typed = (e) => e.matches("input, textarea") && (e.value !== e.defaultValue || e.checked !== e.defaultChecked)
  || e.matches("select") && [...e.options].some((o) => o.selected !== o.defaultSelected);
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name) => !DIRTY.has(name);
Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) => !(old instanceof Element && typed(old));

// A refresh names the content that the page has. If the server has the same, it sends nothing.
let shown = null;
const refreshed = (e) => e.detail.target?.id === "fresh";
document.addEventListener("htmx:configRequest", (e) => {
  if (refreshed(e) && shown) e.detail.headers["If-None-Match"] = shown;
});
document.addEventListener("htmx:afterSwap", (e) => {
  if (refreshed(e)) shown = e.detail.xhr.getResponseHeader("ETag");
});

// The focus of a row that disappears goes to its table instead of the start of the page.
let region = null;
document.addEventListener("htmx:beforeSwap", (e) => {
  const inside = e.detail.target.id === "fresh" && e.detail.target.contains(document.activeElement);
  region = inside ? document.activeElement.closest("[role=region]") : null;
});
document.addEventListener("htmx:afterSwap", () => {
  if (region?.isConnected && document.activeElement === document.body) region.focus({ preventScroll: true });
});

// The answer to a check of the job editor replaces its text and its form. A visitor who has changed
// one of them meanwhile keeps both: the next check sends them together.
const checks = new WeakMap(); // what a request has sent
let keep = false;
const entries = (form) => JSON.stringify([...new FormData(form)].filter(([name]) => name === "text" || name.startsWith("f.")));
document.addEventListener("htmx:beforeRequest", (e) => {
  const form = e.detail.elt.closest("form.editor");
  if (form) checks.set(e.detail.xhr, entries(form));
});
document.addEventListener("htmx:beforeSwap", (e) => {
  const form = document.querySelector("form.editor");
  keep = Boolean(form && checks.has(e.detail.xhr) && checks.get(e.detail.xhr) !== entries(form));
});
document.addEventListener("htmx:oobBeforeSwap", (e) => {
  if (keep && ["yaml", "jobform"].includes(e.detail.target.id)) e.detail.shouldSwap = false;
});

if (live) {
  live.hidden = false;
  live.setAttribute("aria-pressed", String(preference("live") !== "off"));
  showLive(false);
  const setLive = (on) => {
    live.setAttribute("aria-pressed", String(on));
    preference("live", on ? "on" : "off");
    showLive(false);
    refresh();
  };
  live.addEventListener("click", () => setLive(paused()));
  choice.closest("[hidden]").hidden = false;
  choice.addEventListener("change", () => {
    if (choice.value !== "off") {
      interval = choice.value;
      preference("interval", interval);
    }
    setLive(choice.value !== "off");
    if (ticking) tick();
  });
  document.addEventListener("htmx:afterRequest", (e) => showLive(!e.detail.successful));
}

// A form is sent once: a second click while the answer is under way does nothing.
document.addEventListener("submit", (e) => {
  const form = e.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) { e.preventDefault(); return; }
  form.dataset.sent = "1";
  e.submitter?.setAttribute("aria-disabled", "true");
});
addEventListener("pageshow", (e) => {
  if (e.persisted && document.getElementById("log")) location.reload(); // its stream was closed on leaving
  for (const form of document.querySelectorAll("form[data-sent]")) {
    delete form.dataset.sent;
    for (const b of form.querySelectorAll("[aria-disabled]")) b.removeAttribute("aria-disabled");
  }
});

// A button copies the text of an element. Browsers allow it on https and on this machine only.
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent); } catch { return; }
    document.getElementById("announce").textContent = button.textContent = button.dataset.done;
  });
}

// The line of a mistake is selected in the text. The key Enter acts when it is released: before
// that the browser would type it into the text, in place of the line.
document.addEventListener("click", toLine);
document.addEventListener("keydown", (e) => { if (e.key === "Enter" && e.target.closest("a[data-line]")) e.preventDefault(); });
document.addEventListener("keyup", (e) => { if (e.key === "Enter") toLine(e); });
function toLine(e) {
  const link = e.target.closest("a[data-line]");
  const text = link && document.querySelector(link.hash);
  if (!text) return;
  e.preventDefault();
  const lines = text.value.split("\n");
  const at = Math.min(Number(link.dataset.line), lines.length) - 1;
  const from = lines.slice(0, at).reduce((n, line) => n + line.length + 1, 0);
  text.focus({ preventScroll: true });
  text.setSelectionRange(from, from + lines[at].length);
  const y = text.getBoundingClientRect().top + at * parseFloat(getComputedStyle(text).lineHeight);
  if (y < 80 || y > innerHeight - 80) scrollBy({ top: y - innerHeight / 3 });
}

const log = document.getElementById("log");
if (log) followRun(log);
else if (document.getElementById("fresh")) tick();

// followRun shows the log and the changes of the run as they come.
function followRun(log) {
  const button = document.getElementById("follow");
  const announce = document.getElementById("announce");
  const waiting = [];   // lines that came since the last frame
  // A page that was opened at a line begins a little before it, and takes no more lines than it
  // holds: the line must not leave at the top.
  const asked = lineOf(location.hash);
  const begin = Math.max(0, asked - MAX_BEFORE);
  let pinned = asked >= 0;
  let full = false;     // newer lines are missing because the page is pinned
  let following = !pinned;
  let unseen = 0;
  let cut = begin > 0;
  let last = begin - 1; // offset of the newest line; a repeated one is dropped
  let state = "";
  let settle = 0;

  button.hidden = false;
  const showFollow = () => {
    button.setAttribute("aria-pressed", String(following));
    button.textContent = following ? button.dataset.yes
      : unseen > 0 ? `${unseen} ${button.dataset.new} ↓` : button.dataset.no;
  };
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  const filter = new LogFilter(document.getElementById("logfilter"), log, (p) => {
    history.replaceState(null, "", `#${p.id}`);
    show(p, () => reveal(log, p));
  });
  // show marks a line and brings it into the view.
  function show(p, scroll = () => p.scrollIntoView({ block: "center" })) {
    if (!p) return;
    following = false;
    showFollow();
    log.querySelector(".at")?.classList.remove("at");
    p.classList.add("at");
    scroll();
  }
  addEventListener("hashchange", () => {
    if (lineOf(location.hash) < 0) return;
    const p = document.getElementById(location.hash.slice(1));
    if (p) show(p, () => {}); // the browser has scrolled to it
    else location.reload();   // the page begins anew, before that line
  });
  const wrap = document.getElementById("wrap");
  const showWrap = (on) => {
    wrap.setAttribute("aria-pressed", String(on));
    log.classList.toggle("nowrap", !on);
  };
  wrap.hidden = false;
  showWrap(preference("wrap") !== "off");
  wrap.addEventListener("click", () => {
    const on = wrap.getAttribute("aria-pressed") !== "true";
    preference("wrap", on ? "on" : "off");
    showWrap(on);
  });
  button.addEventListener("click", () => {
    if (full) { location.replace(location.pathname + location.search); return; }
    pinned = false;
    following = !following;
    if (following) { unseen = 0; toEnd(); }
    showFollow();
  });
  // Scrolling up ends following, so that nothing moves under the eyes; the end starts it again.
  let top = 0;
  log.addEventListener("scroll", () => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 8;
    if (atEnd && !following && !pinned) { following = true; unseen = 0; showFollow(); }
    else if (following && !atEnd && log.scrollTop < top) { following = false; showFollow(); }
    top = log.scrollTop;
  });

  function frame() {
    const lines = waiting.splice(0);
    const room = MAX_LINES - log.childElementCount - 1; // the note takes one
    const fills = pinned && !full && lines.length > room;
    if (fills) { lines.length = Math.max(0, room); full = true; button.hidden = false; }
    if (lines.length > MAX_LINES) { lines.splice(0, lines.length - MAX_LINES); cut = true; }
    const rows = document.createDocumentFragment();
    let shown = 0;
    for (const line of lines) {
      const p = row(line);
      if (filter.keeps(p)) shown++;
      rows.append(p);
    }
    if (fills) rows.append(note(log.dataset.full));
    log.append(rows);
    const before = log.scrollHeight;
    for (let extra = log.childElementCount - MAX_LINES; extra > 0; extra--) { log.firstElementChild.remove(); cut = true; }
    if (cut && !log.firstElementChild?.classList.contains("note")) {
      log.firstElementChild?.replaceWith(note(log.dataset.cut));
    }
    filter.count();
    if (pinned && !log.querySelector(".at")) show(document.getElementById(`L${asked}`));
    if (following) { toEnd(); return; }
    log.scrollTop -= before - log.scrollHeight; // what left at the top must not move what is being read
    if (!pinned) unseen += shown;
    showFollow();
  }

  tick(); // the timeline grows while the run lasts
  follow(log.dataset.run, {
    status(s) { showLive(s === "lost"); },
    shown() { refresh(); },
    log(line) {
      if (line.offset <= last) return;
      last = line.offset;
      if (full || pinned && waiting.length >= MAX_BACKLOG) return;
      if (waiting.push(line) === 1) requestAnimationFrame(frame);
      if (waiting.length > MAX_BACKLOG) { waiting.splice(0, waiting.length - MAX_LINES); cut = true; }
    },
    run(run) {
      const changed = run.state !== state;
      state = run.state;
      if (settle) return;
      settle = setTimeout(() => {
        settle = 0;
        refresh();
        if (changed) setTimeout(() => { announce.textContent = document.getElementById("runstate")?.textContent.trim() ?? ""; }, 2 * SETTLE_MS);
      }, SETTLE_MS);
    },
    end({ error }) {
      endTicks();
      button.hidden = following || pinned && !full; // no further line comes
      if (error) log.append(note(error));
      else if (last < begin) log.append(note(begin > 0 ? log.dataset.cut : log.dataset.empty));
      setTimeout(refresh, 2 * SETTLE_MS);
    },
  }, begin);
  showFollow();
}
