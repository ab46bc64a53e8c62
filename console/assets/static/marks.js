// Labels for characters that are invisible or that reorder text, as marks.go makes them in
// pages. The element contains the character itself, so that a copy of the text has it.

const CONTROLS = "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");
const NAMES = new Map([
  [0x7f, "DEL"], [0x61c, "ALM"], [0x200b, "ZWSP"], [0x200e, "LRM"], [0x200f, "RLM"], [0x2028, "LS"], [0x2029, "PS"],
  [0x202a, "LRE"], [0x202b, "RLE"], [0x202c, "PDF"], [0x202d, "LRO"], [0x202e, "RLO"], [0x2060, "WJ"], [0x2400, "NUL"],
  [0x2066, "LRI"], [0x2067, "RLI"], [0x2068, "FSI"], [0x2069, "PDI"], [0xfeff, "BOM"],
]);
const INVISIBLE = /([\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\u2400\ufeff])/;

export function label(c) {
  const code = c.charCodeAt(0);
  return CONTROLS[code] ?? NAMES.get(code) ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

// append adds a text to an element.
export function append(element, text) {
  const parts = String(text).split(INVISIBLE); // every second part is such a character
  for (let i = 0; i < parts.length; i++) {
    if (i % 2 === 0) { element.append(parts[i]); continue; }
    const mark = document.createElement("bdi");
    mark.className = "ctl";
    mark.dataset.mark = label(parts[i]);
    mark.textContent = parts[i];
    element.append(mark);
  }
}
