// The frame of the page: views by the hash of the address, theme, token, live numbers, keys.
import { Live, learn, setToken, token } from "./api.js";
import { el, fill, note, visible } from "./dom.js";
import { race } from "./race.js";
import { destinations } from "./destinations.js";
import { messages, quarantine } from "./messages.js";
import { stragglers } from "./stragglers.js";
import { explain } from "./explain.js";
import { configuration } from "./configuration.js";
import { storm } from "./storm.js";
import { cluster } from "./cluster.js";

const VIEWS = [
  ["race", "Race", race], ["destinations", "Destinations", destinations], ["messages", "Messages", messages],
  ["stragglers", "Stragglers", stragglers], ["quarantine", "Quarantine", quarantine], ["explain", "Explain", explain],
  ["configuration", "Configuration", configuration], ["cluster", "Cluster", cluster], ["storm", "Storm", storm],
];
const find = (id) => document.getElementById(id);
const view = find("view");
/** The samples of the last minutes, for views that are opened later. */
const history = [];
let current = null;

function open() {
  const [name, query] = (location.hash.slice(1) || "race").split("?");
  const [key, title, make] = VIEWS.find(([key]) => key === name) || VIEWS[0];
  current?.close?.();
  fill(view);
  document.title = title + " – mailrace";
  for (const link of find("tabs").children) {
    if (link.hash === "#" + key) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest" }); } else link.removeAttribute("aria-current");
  }
  current = make(view, { query: new URLSearchParams(query), history });
}

function state(kind, text) {
  find("dot").className = "dot " + kind;
  fill(find("state"), text);
}

const live = new Live((sample) => {
  learn(sample);
  history.push(sample);
  if (history.length > 600) history.shift();
  fill(find("host"), visible(sample.hostname));
  fill(find("foot"), "mailrace " + visible(sample.version) + (sample.durable ? "" : " – the spool is volatile"));
  if (sample.stopping) state("warn", "stopping");
  else if (sample.pressure === "full" || sample.pressure === "poisoned") state("bad", "spool " + sample.pressure);
  else if (sample.pressure === "slow") state("warn", "spool slow");
  else state("good", "live");
  current?.sample?.(sample);
}, (what, error) => {
  state(what === "lost" ? "bad" : "", what === "lost" ? "no connection" : what);
  if (what === "lost" && error.status !== 401 && error.status !== 0) note(error.message, "bad");
});

function pause() {
  live.paused = !live.paused;
  find("pause").setAttribute("aria-pressed", String(live.paused));
  fill(find("pause"), live.paused ? "Go on" : "Pause");
  live.update();
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const next = { auto: dark ? "light" : "dark", light: "dark", dark: "light" }[document.documentElement.dataset.theme] || "auto";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("mailrace.theme", next);
  current?.theme?.();
}

function askToken() {
  const dialog = find("dialog");
  if (dialog.open) return;
  const input = el("input", { type: "password", id: "token-text", autocomplete: "off", value: token() });
  const submit = (event) => { event.preventDefault(); setToken(input.value.trim()); dialog.close(); live.again(); open(); };
  const parts = el("form", { onsubmit: submit }, el("h1", { id: "dialog-title" }, "Token"),
    el("p", { class: "soft" }, "The secret of a [[http.token]] in the configuration. It is kept until this tab is closed."),
    el("label", { htmlFor: "token-text" }, "Token"), input,
    el("div", { class: "actions" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), el("button", { class: "primary" }, "Use")));
  dialog.className = "small";
  fill(dialog, parts);
  dialog.showModal();
}

function keys(event) {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = Number(event.key);
  if (at >= 1 && at <= VIEWS.length) location.hash = VIEWS[at - 1][0];
  else if (event.key === "/") { const search = view.querySelector("input"); if (search) { event.preventDefault(); search.focus(); } }
  else if (event.key === "r") current?.refresh?.();
  else if (event.key === "p") pause();
  else if (event.key === "t") theme();
}

fill(find("tabs"), VIEWS.map(([key, title]) => el("a", { href: "#" + key }, title)));
find("pause").addEventListener("click", pause);
find("theme").addEventListener("click", theme);
find("token").addEventListener("click", askToken);
document.addEventListener("needs-token", askToken);
document.addEventListener("keydown", keys);
addEventListener("hashchange", open);
open();
live.update();
