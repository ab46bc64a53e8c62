// Sends the file of a form with its progress. Without this script the browser sends the form.
//
// A refusal is shown above the form, which keeps its fields and its file. Texts from the server
// reach the page as text nodes only.

import { append } from "./marks.js";

const UNITS = ["B", "KiB", "MiB", "GiB"];

// size writes a number of bytes.
function size(n) {
  let unit = 0;
  for (; n >= 1024 && unit < UNITS.length - 1; unit++) n /= 1024;
  return `${unit === 0 ? n : n.toFixed(1)} ${UNITS[unit]}`;
}

document.addEventListener("submit", (e) => {
  const form = e.target;
  const box = form.querySelector("[data-upload]");
  const file = form.querySelector("input[type=file]");
  if (!box || !file?.files.length || form.dataset.sent) return; // the browser sends a form without a file
  e.preventDefault();
  send(form, box, e.submitter);
});

function send(form, box, submitter) {
  const bar = box.querySelector("progress");
  const sent = box.querySelector(".sent");
  const stop = box.querySelector("button");
  const status = box.querySelector("[role=status]");
  const request = new XMLHttpRequest();

  // release makes the form ready to be sent again, and says why it was not taken.
  const release = (why) => {
    bar.hidden = sent.hidden = stop.hidden = true;
    delete form.dataset.sent;
    submitter?.removeAttribute("aria-disabled");
    status.textContent = why;
    submitter?.focus();
  };
  // refuse shows what the server has answered.
  const refuse = (found) => {
    release("");
    const alert = document.createElement("div");
    alert.className = "alert bad";
    alert.setAttribute("role", "alert");
    alert.tabIndex = -1;
    append(alert, found.textContent.trim());
    form.before(alert);
    alert.focus();
  };

  request.upload.addEventListener("progress", (e) => {
    if (!e.lengthComputable) return;
    bar.max = e.total;
    bar.value = e.loaded;
    sent.textContent = `${size(e.loaded)} / ${size(e.total)}`;
  });
  request.upload.addEventListener("load", () => {
    bar.removeAttribute("value"); // how long the check takes is not known
    status.textContent = box.dataset.checking;
  });
  request.addEventListener("abort", () => release(box.dataset.stopped));
  request.addEventListener("error", () => release(box.dataset.broken));
  request.addEventListener("load", () => {
    if (request.status < 400) { location.assign(request.responseURL); return; }
    const page = new DOMParser().parseFromString(request.responseText, "text/html");
    const found = page.querySelector(".alert.bad");
    if (found && page.querySelector("[data-upload]")) refuse(found);
    else form.submit(); // such as after the end of the session: the browser shows the answer
  });
  stop.onclick = () => request.abort();

  form.parentElement.querySelector(":scope > .alert.bad")?.remove(); // of the former answer
  bar.value = 0;
  bar.hidden = sent.hidden = stop.hidden = false;
  sent.textContent = "";
  status.textContent = box.dataset.sending;
  request.open("POST", form.action);
  request.setRequestHeader("HX-Request", "true"); // the page that follows is fetched twice: the first time not by a person
  request.send(new FormData(form, submitter));
}
