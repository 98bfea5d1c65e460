// Orders that stay in force: suspensions, hold rules, limits; the connections to a destination and its live transcript.
import { change, get, stream } from "./api.js";
import { age, clock, el, fill, note, number, plural, row, table, visible } from "./dom.js";
import { ask, seconds } from "./actions.js";

const RULES = [{ name: "Rule" }, { name: "Holds" }, { name: "Set by" }, { name: "Until" }, { name: "Actions", class: "tight" }];
const CONNECTIONS = [{ name: "Number", class: "number" }, { name: "Host" }, { name: "Age", class: "number" }, { name: "Messages" }, { name: "Actions", class: "tight" }];
const TRANSCRIPT_LINES = 500;

/** A value of an expression; one with blanks stands in double quotes. */
const quoted = (value) => (/[\s"]/.test(value) ? '"' + value.replace(/"/g, "") + '"' : value);

/** Suspensions and hold rules, with a button that ends each. */
export async function rules(card, load) {
  const { rules: all } = await get("queue/rules");
  card.hidden = all.length === 0;
  fill(card, el("h2", {}, "Suspensions and hold rules"), table(RULES, all.map((one) => row(RULES, [
    el("a", { class: "mono", href: "#messages?expression=" + encodeURIComponent("held:" + one.rule) }, visible(one.rule)),
    [el("div", { class: "mono" }, visible(one.expression)), one.reason ? el("div", { class: "soft small" }, visible(one.reason)) : null],
    [visible(one.set_by), el("div", { class: "soft small" }, clock(one.set_at))],
    one.until === undefined ? "it is resumed" : clock(one.until),
    el("button", { type: "button", onclick: () => resume(one.rule, load) }, "Resume"),
  ])), ""));
}

async function resume(rule, load) {
  try {
    const last = await change("queue/resume", { held_by: rule });
    note(rule + " has ended: " + plural(last.recipients || 0, "recipient") + " released", "good");
  } catch (error) { note(error.message, "bad"); }
  load();
}

/** Buttons of a destination beside those for its mail. */
export function orders(one, load) {
  const name = one.destination;
  const expression = "destination:" + quoted(name);
  return [
    el("button", { type: "button", onclick: () => ask("suspend", { expression }, load) }, "Suspend"),
    el("button", { type: "button", onclick: () => limit(one, load) }, "Limit"),
    el("button", { type: "button", onclick: () => connections(name) }, "Connections"),
  ];
}

/** The limit that an operator has set, in words. */
export function limitText(set) {
  const parts = [];
  if (set.connections !== undefined) parts.push(number(set.connections) + " connections");
  if (set.rate !== undefined) parts.push(visible(set.rate) + " messages a second");
  return "limited to " + parts.join(" and ") + " by " + visible(set.set_by) + (set.reason ? ": " + visible(set.reason) : "");
}

function field(id, label, attributes) {
  const input = el("input", { id, ...attributes });
  return [input, [el("label", { htmlFor: id }, label), input]];
}

function limit(one, load) {
  const set = one.set_limit || {};
  const dialog = document.getElementById("dialog");
  const [name, nameField] = field("limit-name", "Next hops: a domain, .domain, mx:*.host", { value: set.destination || one.destination, required: true });
  const [count, countField] = field("limit-connections", "Connections at once", { type: "number", min: 1, value: set.connections || "" });
  const [speed, speedField] = field("limit-rate", "Messages a second, as 0.5", { value: set.rate || "" });
  const [reason, reasonField] = field("limit-reason", "Reason", {});
  const [time, timeField] = field("limit-for", "For, as 2h; empty: until it is removed", {});
  const bar = el("div");
  const send = async (fields) => {
    try {
      await change("limits/set", fields);
      dialog.close();
      note(fields.remove ? "The limit is removed" : "The limit is in force", "good");
      load();
    } catch (error) { fill(bar, el("p", { class: "error" }, visible(error.message))); }
  };
  const submit = (event) => {
    event.preventDefault();
    const span = time.value.trim() ? seconds(time.value) : undefined;
    const fields = { destination: name.value.trim(), connections: count.value ? Number(count.value) : undefined, rate: speed.value.trim() || undefined, reason: reason.value.trim() || undefined, for: span };
    send(fields);
  };
  dialog.className = "small";
  fill(dialog, el("form", { onsubmit: submit }, el("h1", { id: "dialog-title" }, "Limit"),
    el("p", { class: "soft" }, "Counts at once and over restarts, before the configuration."),
    nameField, countField, speedField, reasonField, timeField, bar,
    el("div", { class: "actions" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      set.destination ? el("button", { type: "button", onclick: () => send({ destination: set.destination, remove: true }) }, "Remove") : null,
      el("button", { class: "primary" }, "Set"))));
  if (!dialog.open) dialog.showModal();
}

/** The connections to a destination, and its dialogs while they go on. */
function connections(name) {
  const dialog = document.getElementById("dialog");
  const list = el("div");
  const lines = el("pre", { class: "mono small transcript", tabIndex: 0, "aria-label": "Transcript" });
  const watch = el("button", { type: "button" }, "Watch");
  let watching = null;
  const load = async () => {
    try {
      const { connections: all } = await get("connections", { destination: name });
      fill(list, table(CONNECTIONS, all.map((one) => row(CONNECTIONS, [
        number(one.connection), visible(one.host || "opening"), age(one.age), one.messages.length > 0 ? el("span", { class: "mono small" }, visible(one.messages.join(" "))) : "idle",
        el("button", { type: "button", class: "danger", onclick: () => abort(one.connection, load) }, "Abort"),
      ])), "No connection is open."));
    } catch (error) { fill(list, el("p", { class: "error" }, visible(error.message))); }
  };
  const end = () => { watching?.abort(); watching = null; watch.textContent = "Watch"; };
  watch.addEventListener("click", async () => {
    if (watching) { end(); return; }
    const mine = watching = new AbortController();
    watch.textContent = "Stop";
    try {
      await stream("transcript", { destination: name }, (line) => {
        if (!line.direction) return;
        lines.append(new Date(line.at / 1000).toLocaleTimeString() + " " + line.connection + " " + line.direction + " " + visible(line.text) + "\n");
        while (lines.childNodes.length > TRANSCRIPT_LINES) lines.firstChild.remove();
        lines.scrollTop = lines.scrollHeight;
      }, mine.signal);
    } catch (error) { if (!mine.signal.aborted) note(error.message, "bad"); }
    if (watching === mine) end();
  });
  dialog.addEventListener("close", end, { once: true });
  dialog.className = "";
  fill(dialog, el("h1", { id: "dialog-title" }, "Connections"), el("p", { class: "mono soft" }, visible(name)), list,
    el("h2", {}, "Transcript"), el("p", { class: "soft small" }, "Commands and replies from the next message on; content as its size, secrets masked."), lines,
    el("div", { class: "actions" }, watch, el("button", { type: "button", onclick: load }, "Refresh"), el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  if (!dialog.open) dialog.showModal();
  load();
}

async function abort(connection, load) {
  try {
    await change("connections/abort", { connection });
    note("Connection " + connection + " is ended", "good");
  } catch (error) { note(error.message, "bad"); }
  load();
}
