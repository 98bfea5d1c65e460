// Builds elements. Text goes in as text: nothing of a peer is ever read as HTML.

/** Makes an element: attributes, then children (elements or text). */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key in element && key !== "list" && key !== "form") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Shows control characters and marks that change the direction of text, so that no text hides another. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (letter) => "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A table: columns of {name, class}, rows of lists of cells. */
export function table(columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "empty" }, empty);
  const head = columns.map((column) => el("th", { scope: "col", class: column.class }, column.name));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
}

export function row(columns, cells, attributes = {}) {
  return el("tr", attributes, cells.map((cell, at) => el("td", { class: columns[at].class, "data-label": columns[at].name }, el("div", {}, cell))));
}

export function number(value) {
  return Number(value).toLocaleString("en-US");
}

/** "1 message", "2 messages". */
export function plural(count, word) {
  return number(count) + " " + word + (count === 1 ? "" : "s");
}

export function rate(value) {
  return value >= 100 ? number(Math.round(value)) : value.toLocaleString("en-US", { maximumFractionDigits: 1 });
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return (at === 0 ? value : value.toFixed(1)) + " " + units[at];
}

/** A time in seconds: 45s, 12m, 3h12m, 2d7h. */
export function age(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days > 0) return days + "d" + (hours > 0 ? hours + "h" : "");
  if (hours > 0) return hours + "h" + (minutes > 0 ? minutes + "m" : "");
  return minutes > 0 ? minutes + "m" : whole + "s";
}

/** A time of a histogram in seconds: 12 ms, 1.2 s, 3m. */
export function delay(seconds) {
  if (seconds === null) return "–";
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  return seconds < 60 ? seconds.toFixed(1) + " s" : age(seconds);
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

/** A message at the edge of the page that goes away by itself. */
export function note(text, kind = "") {
  const box = el("div", { class: "note " + kind }, visible(text));
  document.getElementById("notes").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 12000 : 5000);
}
