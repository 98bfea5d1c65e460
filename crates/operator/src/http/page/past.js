// Past messages: a search of the history, and the way of one message step by step.
import { get, hasHistory } from "./api.js";
import { age, bytes, clock, el, fill, note, number, row, table, visible } from "./dom.js";

const EXAMPLES = ["status:failed after:2d", "to:@example.org", "from:<>", "reply~\"mailbox full\"", "host:mx1.example"];
const COLUMNS = [{ name: "Id", class: "tight" }, { name: "Arrived", class: "tight" }, { name: "State", class: "tight" }, { name: "Size", class: "number" }, { name: "Sender" }, { name: "Recipients" }];
const KINDS = { sent: "good", deferred: "warn", held: "warn", failed: "bad", bounced: "bad", deleted: "bad", waiting: "warn" };

export function past(view, { query, choice }) {
  let meant = query.get("expression") || "";
  let rows = [];
  const search = el("input", { type: "search", value: meant, placeholder: "from: to: id: host: client: before: after: status: reply~ or words", "aria-label": "Expression", spellcheck: false });
  const body = el("div", { class: "card" });
  const find = (event) => { event?.preventDefault(); meant = search.value.trim(); load(); };
  fill(view, el("h1", {}, "Messages"), choice,
    el("form", { class: "bar", onsubmit: find }, el("div", { class: "grow" }, search), el("button", { class: "primary" }, "Search")),
    el("p", { class: "soft small" }, "The youngest first. ", EXAMPLES.map((example) => [el("button", { type: "button", class: "link mono small", onclick: () => { search.value = example; find(); } }, example), " \u00a0 "])),
    body);

  async function load(after) {
    try {
      const page = await get("history", { expression: meant, limit: 100, after });
      if (!after) rows = [];
      rows.push(...page.messages);
      const more = page.next ? el("div", { class: "bar" }, el("button", { type: "button", onclick: () => load(page.next) }, page.cut ? "Search on" : "More"), page.cut ? el("span", { class: "soft" }, "the time for one search was over") : null) : null;
      fill(body, table(COLUMNS, rows.map(line), meant ? "No such message in the history." : "The history is empty."), more,
        page.dropped ? el("p", { class: "soft small" }, number(page.dropped) + " entries were dropped since the start (history)") : null);
    } catch (error) { fill(body, el("p", { class: "error" }, visible(error.message))); }
  }

  load();
  return { refresh: () => load() };
}

function line(message) {
  const [step] = message.steps;
  return row(COLUMNS, [el("button", { type: "button", class: "link mono", onclick: () => showPast(message.id) }, visible(message.id)),
    clock(message.arrived_ms / 1000), state(message), message.from === undefined ? "?" : bytes(message.size), sender(message),
    step ? [recipients(step, 3), step.reply ? el("div", { class: "reply" }, visible(step.reply)) : null] : el("span", { class: "soft" }, number(message.recipients))]);
}

function state(message) { return el("span", { class: "tag " + (KINDS[message.status] || "") }, visible(message.status)); }

function sender(message) {
  if (message.from === undefined) return el("span", { class: "soft" }, "(came before the history)");
  return message.from === "" ? el("span", { class: "soft" }, "<> (a report)") : visible(message.from);
}

function recipients(step, most) {
  const more = (step.more_recipients || 0) + Math.max(0, step.to.length - most);
  return [step.to.slice(0, most).map((to) => el("div", {}, visible(to))), more > 0 ? el("div", { class: "soft" }, (step.to.length > 0 ? "and " : "") + number(more) + (step.to.length > 0 ? " more" : " recipients")) : null];
}

/** How long the phases of an attempt took. */
function phases(step) {
  if (!step.phases || step.phases.length === 0) return null;
  const time = (us) => (us < 1000 ? us + " µs" : number(Math.round(us / 1000)) + " ms");
  return el("div", { class: "soft small" }, step.phases.map((one) => visible(one.phase) + " " + time(one.us)).join(", "));
}

/** The steps of a message, the oldest first, with the time since its arrival. */
export function timeline(message) {
  if (message.steps.length === 0) return el("p", { class: "empty" }, "Nothing has happened to it yet.");
  return [el("ol", { class: "timeline" }, message.steps.map((step) => el("li", { class: KINDS[step.kind] || "" },
    el("div", {}, el("span", { class: "tag " + (KINDS[step.kind] || "") }, visible(step.kind)), " ", el("strong", {}, clock(step.time_ms / 1000)),
      el("span", { class: "soft small" }, " after " + age((step.time_ms - message.arrived_ms) / 1000) + (step.took_ms === undefined ? "" : ", took " + (step.took_ms / 1000).toFixed(3) + " s"))),
    step.host ? el("div", {}, "by " + visible(step.host) + (step.mailer ? ", " + visible(step.mailer) : "")) : null,
    phases(step), recipients(step, 20), step.reply ? el("div", { class: "reply" }, visible(step.reply)) : null))),
    message.more_steps ? el("p", { class: "soft" }, "and " + number(message.more_steps) + " more steps") : null];
}

/** The way of a message in the queue, below the facts of the queue; nothing without a history. */
export async function addTimeline(box, id) {
  if (!await hasHistory) return;
  try {
    const [message] = (await get("history/messages/" + encodeURIComponent(id))).messages;
    fill(box, el("h2", {}, "What happened until now"), timeline(message));
  } catch { /* there is no history, or it began later */ }
}

/** One past message in full. Returns whether the history has it. */
export async function showPast(id) {
  const dialog = document.getElementById("dialog");
  let message;
  try { [message] = (await get("history/messages/" + encodeURIComponent(id))).messages; } catch (error) {
    note(error.status === 404 ? id + " is not in the history" : error.message, "bad");
    return false;
  }
  const facts = [["from", sender(message)], ["arrived", clock(message.arrived_ms / 1000)], ["size", message.from === undefined ? undefined : bytes(message.size)],
    ["client", visible(message.client)], ["message id", visible(message.message_id)],
    ["recipients", number(message.recipients) + ", sent " + number(message.sent) + ", failed " + number(message.failed)]];
  dialog.className = "";
  fill(dialog, el("h1", { id: "dialog-title" }, "Message ", el("span", { class: "mono" }, visible(message.id)), " ", state(message)),
    el("dl", {}, facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("h2", {}, "What happened"), timeline(message),
    el("div", { class: "actions" }, el("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
  if (!dialog.open) dialog.showModal();
  return true;
}
