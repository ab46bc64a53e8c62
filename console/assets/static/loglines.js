// Lines of a log: how they look, which of them a filter leaves, and the way from one to the next.

import { append } from "./marks.js";

const LEVELS = ["debug", "info", "warn", "error"];
const COLOUR = /\x1b\[([\d;:]*)m/; // a sequence that colours or styles the text after it

// Style holds what the sequences of a line have set so far.
class Style {
  #on = new Set();  // bold, dim, italic, underline, strike, inverse
  #fg = "";
  #bg = "";

  static #STYLES = new Map([[1, "bold"], [2, "dim"], [3, "italic"], [4, "underline"], [7, "inverse"], [9, "strike"]]);
  static #ENDS = new Map([[22, ["bold", "dim"]], [23, ["italic"]], [24, ["underline"]], [27, ["inverse"]], [29, ["strike"]]]);

  get classes() {
    const all = [...this.#on].map((s) => `a-${s}`);
    if (this.#fg) all.push(`a-f${this.#fg}`);
    if (this.#bg) all.push(`a-b${this.#bg}`);
    return all.join(" ");
  }

  apply(codes) {
    const list = codes.split(";");
    for (let i = 0; i < list.length; i++) {
      const parts = list[i].split(":");
      const code = Number(parts[0]);
      if (code === 38 || code === 48) { // a colour of 256, or of red, green and blue
        let kind = parts[1], n = parts[2];
        if (parts.length === 1) {
          kind = list[i + 1];
          n = list[i + 2];
          i += kind === "2" ? 4 : 2;
        }
        const colour = kind === "5" && n !== "" && Number(n) < 16 ? String(Number(n)) : ""; // the page has 16 colours
        if (code === 38) this.#fg = colour; else this.#bg = colour;
        continue;
      }
      this.#one(code);
    }
  }

  #one(code) {
    if (code === 0) { this.#on.clear(); this.#fg = this.#bg = ""; }
    else if (Style.#STYLES.has(code)) this.#on.add(Style.#STYLES.get(code));
    else if (Style.#ENDS.has(code)) for (const s of Style.#ENDS.get(code)) this.#on.delete(s);
    else if (code >= 30 && code <= 37) this.#fg = String(code - 30);
    else if (code >= 90 && code <= 97) this.#fg = String(code - 82);
    else if (code === 39) this.#fg = "";
    else if (code >= 40 && code <= 47) this.#bg = String(code - 40);
    else if (code >= 100 && code <= 107) this.#bg = String(code - 92);
    else if (code === 49) this.#bg = "";
  }
}

// paint adds a text to an element, with its colours as classes.
export function paint(element, text) {
  const parts = String(text).split(COLOUR); // every second part has the codes of a sequence
  const style = new Style();
  for (let i = 0; i < parts.length; i++) {
    if (i % 2 === 1) { style.apply(parts[i]); continue; }
    if (parts[i] === "") continue;
    const classes = style.classes;
    if (!classes) { append(element, parts[i]); continue; }
    const span = document.createElement("span");
    span.className = classes;
    append(span, parts[i]);
    element.append(span);
  }
}

function cell(text, className) {
  const span = document.createElement("span");
  paint(span, text);
  if (className) span.className = className;
  return span;
}

// row returns the element of a line. Its number is a link to the line; the keyboard comes to a
// line by the search.
export function row(line) {
  const p = document.createElement("p");
  p.id = `L${line.offset}`;
  p.dataset.level = line.level;
  const link = document.createElement("a");
  link.href = `#${p.id}`;
  link.tabIndex = -1;
  link.textContent = line.offset;
  p.append(link, cell(line.time), cell(line.level, LEVELS.includes(line.level) ? `l-${line.level}` : ""), cell(line.text));
  return p;
}

export function note(text) {
  const p = document.createElement("p");
  p.className = "note";
  append(p, text);
  return p;
}

// reveal scrolls a log to one of its lines and leaves the page where it is, with the field in which
// the visitor types.
export function reveal(log, p) {
  if (p) log.scrollTop += p.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 2;
}

// lineOf returns the number of the line that an address names; -1: it names none.
export function lineOf(hash) {
  const m = /^#L(\d{1,15})$/.exec(hash);
  return m ? Number(m[1]) : -1;
}

// LogFilter hides the lines without a text or below a level. go is called with the line to which
// Enter leads.
export class LogFilter {
  #form;
  #log;
  #text = "";
  #least = 0;

  constructor(form, log, go) {
    this.#form = form;
    this.#log = log;
    const search = form.elements.search;
    form.addEventListener("input", () => this.#read());
    let back = false;
    search.addEventListener("keydown", (e) => { if (e.key === "Enter") back = e.shiftKey; });
    form.addEventListener("submit", (e) => { // Enter in the search; the button sends the form
      if (document.activeElement !== search) return;
      e.preventDefault();
      const next = this.#next(back);
      if (next) go(next);
    });
    this.#read();
  }

  // keeps tells whether a row is shown, and hides it otherwise.
  keeps(p) {
    const level = LEVELS.indexOf(p.dataset.level);
    const shown = (level < 0 || level >= this.#least) && p.lastElementChild.textContent.toLowerCase().includes(this.#text);
    p.hidden = !shown;
    return shown;
  }

  // count says how many lines are shown.
  count() {
    const all = this.#log.querySelectorAll("p[id]").length;
    const shown = this.#log.querySelectorAll("p[id]:not([hidden])").length;
    const out = this.#form.querySelector("output");
    const text = shown === all ? "" : out.dataset.text.replace("{0}", shown).replace("{1}", all);
    if (out.textContent !== text) out.textContent = text;
  }

  #read() {
    const { search, level } = this.#form.elements;
    this.#text = search.value.toLowerCase();
    this.#least = Math.max(0, LEVELS.indexOf(level.value));
    for (const p of this.#log.querySelectorAll("p[id]")) this.keeps(p);
    this.count();
    reveal(this.#log, this.#log.querySelector(".at:not([hidden])"));
  }

  #next(back) {
    const rows = [...this.#log.querySelectorAll("p[id]:not([hidden])")];
    if (back) rows.reverse();
    const at = lineOf(location.hash);
    const number = (p) => lineOf(`#${p.id}`);
    return rows.find((p) => at < 0 || (back ? number(p) < at : number(p) > at)) ?? rows[0];
  }
}
