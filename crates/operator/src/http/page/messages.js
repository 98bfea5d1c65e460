// Messages: search by an expression, one message in full, actions on a selection. Quarantine is the same with its own mail.
import { get, hasHistory } from "./api.js";
import { age, bytes, clock, el, fill, note, number, plural, row, table, visible } from "./dom.js";
import { ask, buttons } from "./actions.js";
import { addTimeline, past, showPast } from "./past.js";

const EXAMPLES = ["state:waiting age>1h", "to:@example.org", "reply~greylist", "tries>3 size>1M", "held:*"];
const RECIPIENTS = [{ name: "Recipient" }, { name: "State" }, { name: "Tries", class: "number" }, { name: "Next try", class: "tight" }, { name: "Last reply or reason" }];

export function messages(view, { query }) {
  const destination = query.get("destination");
  if (query.has("past")) {
    const found = past(view, { query, choice: choice(true) });
    if (query.get("id")) showPast(query.get("id"));
    return found;
  }
  const expression = destination ? "destination:" + quoted(destination) : query.get("expression") || "";
  const found = list(view, { title: "Messages", choice: choice(false), path: "queue", expression, actions: ["retry", "hold", "release", "reroute", "bounce", "delete"], more: {} });
  if (query.get("id")) show(query.get("id"), found.refresh);
  return found;
}

/** The choice between the queue and the history. */
function choice(isPast) {
  const link = (hash, text, current) => el("a", { href: hash, "aria-current": current ? "true" : null }, text);
  return el("div", { class: "choice", role: "group", "aria-label": "Which messages" }, link("#messages", "In the queue", !isPast), link("#messages?past", "Past", isPast));
}

export function quarantine(view) {
  return list(view, { title: "Quarantine", path: "quarantine", expression: "", actions: ["release", "forward", "delete"], more: { quarantined: true } });
}

/** A value of an expression; one with blanks stands in double quotes. */
function quoted(value) { return /[\s"]/.test(value) ? '"' + value.replace(/"/g, "") + '"' : value; }

function list(view, { title, choice, path, expression, actions, more }) {
  const chosen = new Set();
  let meant = expression;
  const search = el("input", { type: "search", value: expression, placeholder: "from: to: destination: host: state: reason: reply~ age> size> tries>", "aria-label": "Expression", spellcheck: false });
  const body = el("div", { class: "card" });
  const bar = el("div", { class: "bar selection", hidden: true });
  const columns = [{ name: "Choose", class: "tight" }, { name: "Id", class: "tight" }, { name: "Age", class: "number" }, { name: "Size", class: "number" }, { name: "Sender" }, { name: "Recipients" }];
  let rows = [];
  const find = (event) => { event?.preventDefault(); meant = search.value.trim(); chosen.clear(); load(); };
  fill(view, el("h1", {}, title), choice,
    el("form", { class: "bar", onsubmit: find }, el("div", { class: "grow" }, search), el("button", { class: "primary" }, "Search")),
    el("p", { class: "soft small" }, "Terms that must all hold; ! before one turns it round. ", EXAMPLES.map((example) => [el("button", { type: "button", class: "link mono small", onclick: () => { search.value = example; find(); } }, example), " \u00a0 "])),
    body, bar);

  async function load(after) {
    try {
      const page = await get(path, { expression: meant, limit: 100, recipients: 5, after });
      if (!after) rows = [];
      rows.push(...page.messages);
      draw(page);
    } catch (error) { fill(body, el("p", { class: "error" }, visible(error.message))); fill(bar); bar.hidden = true; }
  }

  function draw(page) {
    const lines = rows.map((message) => line(message));
    fill(body, table(columns, lines, meant ? "No such message." : "Nothing is here."),
      page.unreadable ? el("p", { class: "error" }, plural(page.unreadable.length, "message") + " cannot be read; mailrace spool verify says why") : null,
      page.next ? el("div", { class: "bar" }, el("button", { type: "button", onclick: () => load(page.next) }, "More")) : null);
    update();
  }

  function line(message) {
    const box = el("input", { type: "checkbox", checked: chosen.has(message.id), "aria-label": "Choose " + message.id });
    const cells = [box, el("button", { type: "button", class: "link mono", onclick: () => show(message.id, load) }, visible(message.id)),
      el("span", { title: clock(message.arrived) }, age(message.age)), message.size === undefined ? "?" : bytes(message.size), sender(message), recipients(message)];
    const made = row(columns, cells, { class: chosen.has(message.id) ? "chosen" : "" });
    box.addEventListener("change", () => { if (box.checked) chosen.add(message.id); else chosen.delete(message.id); made.className = box.checked ? "chosen" : ""; update(); });
    return made;
  }

  function update() {
    bar.hidden = rows.length === 0;
    const everything = Object.keys(more).length === 0 && meant === "" ? { all: true } : { ...more, ...(meant ? { expression: meant } : {}) };
    const selection = () => (chosen.size > 0 ? { ...more, ids: [...chosen] } : everything);
    const text = chosen.size > 0 ? number(chosen.size) + " chosen" : meant ? "all that match" : "all";
    fill(bar, el("span", { class: "tag" }, text), buttons(actions, selection, () => load()),
      chosen.size > 0 ? el("button", { type: "button", class: "link", onclick: () => { chosen.clear(); load(); } }, "choose none") : null);
  }

  load();
  return { refresh: () => load() };
}

function sender(message) {
  if (message.from === undefined) return el("span", { class: "soft" }, visible(message.trouble || "not readable"));
  return message.from === "" ? el("span", { class: "soft" }, "<> (a report)") : visible(message.from);
}

function tag(one) {
  const kind = { held: "warn", active: "good" }[one.state] || (one.reason ? "warn" : "");
  return el("span", { class: "tag " + kind }, one.hold?.kind === "quarantine" ? "quarantine" : one.state);
}

function recipients(message) {
  const more = message.more_recipients || 0;
  return [message.recipients.map((one) => el("div", {}, visible(one.to || "recipient " + one.position), " ", tag(one), one.tries > 0 ? el("span", { class: "soft small" }, " " + number(one.tries) + " tries") : null,
    reasonOf(one))), more > 0 ? el("div", { class: "soft" }, "and " + number(more) + " more") : null];
}

function reasonOf(one) {
  const text = one.hold ? [one.hold.by, one.hold.text].filter(Boolean).join(": ") : one.reason;
  return text ? el("div", { class: "reply" }, visible(text)) : null;
}

/** One message in full. */
async function show(id, changed, headers) {
  const dialog = document.getElementById("dialog");
  let found;
  try { found = await get("messages/" + encodeURIComponent(id), headers ? { headers: true } : {}); } catch (error) {
    if (error.status === 404 && await hasHistory) await showPast(id);
    else note(error.status === 404 ? id + " is not in the queue; what was delivered or failed is in the log" : error.message, "bad");
    return;
  }
  const [first] = found.messages;
  const lines = found.messages.flatMap((part) => part.recipients);
  const way = el("div");
  addTimeline(way, id);
  const changedHere = () => { changed(); show(id, changed); };
  dialog.className = "";
  fill(dialog, el("h1", { id: "dialog-title" }, "Message ", el("span", { class: "mono" }, visible(first.id))), facts(first),
    el("h2", {}, number(lines.length) + (lines.length === 1 ? " recipient" : " recipients")),
    table(RECIPIENTS, lines.map((one) => row(RECIPIENTS, [
      [visible(one.to || "?"), el("div", { class: "soft small" }, "to " + visible(one.destination))], tag(one), number(one.tries || 0), next(one), reasonOf(one) || "–",
    ])), "No recipient."),
    states(first), way, first.headers === undefined ? null : [el("h2", {}, "Header section"), el("pre", { tabIndex: 0 }, visible(first.headers.replace(/\r\n/g, "\n")).replace(/\\u000a/g, "\n").replace(/\\u0009/g, "\t"))],
    el("div", { class: "actions" }, headers ? null : el("button", { type: "button", onclick: () => show(id, changed, true) }, "Header section"),
      ["retry", "hold", "release", "reroute", "bounce", "delete"].map((name) => el("button", { type: "button", class: name === "delete" || name === "bounce" ? "danger" : "", onclick: () => ask(name, { ids: [id] }, name === "delete" || name === "bounce" ? changed : changedHere) }, name[0].toUpperCase() + name.slice(1))),
      el("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
  if (!dialog.open) dialog.showModal();
}

function facts(message) {
  const facts = [["from", sender(message)], ["arrived", clock(message.arrived) + ", " + age(message.age) + " ago"],
    ["size", message.size === undefined ? undefined : bytes(message.size)],
    ["client", message.client && visible(message.client) + (message.helo ? ", which calls itself " + visible(message.helo) : "")],
    ["protocol", message.protocol], ["parameters", message.params && visible(message.params)], ["trouble", message.trouble && visible(message.trouble)]];
  return el("dl", {}, facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function next(one) {
  const at = one.retry_at || one.due;
  if (one.state === "active") return "now";
  if (one.state === "held") return one.hold?.until ? "held until " + clock(one.hold.until) : "held";
  return at ? clock(at) : "as soon as it can";
}

function states(message) {
  const entries = Object.entries(message.destinations || {}).filter(([, state]) => state.down || state.waits_for);
  if (entries.length === 0) return null;
  return [el("h2", {}, "What its destinations wait for"), el("dl", {}, entries.map(([name, state]) => [el("dt", {}, visible(name)),
    el("dd", {}, state.down ? "down: " + visible(state.down) + (state.retry_in === undefined ? "" : "; next try in " + age(state.retry_in)) + (state.reported_by === undefined ? "" : ", by the report of node " + state.reported_by) : "waits for its " + state.waits_for)]))];
}
