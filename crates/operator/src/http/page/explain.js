// Explain: where mail for an address goes, and each decision that leads there.
import { get } from "./api.js";
import { el, fill, row, table, visible } from "./dom.js";

const STEPS = [{ name: "Stage", class: "tight" }, { name: "Place" }, { name: "Entry" }, { name: "Decision" }];

export function explain(view, { query }) {
  const to = el("input", { class: "wide", id: "explain-to", required: true, value: query.get("to") || "", placeholder: "ann@example.org" });
  const from = el("input", { class: "wide", id: "explain-from", placeholder: "sender; <> for a report" });
  const client = el("input", { id: "explain-client", placeholder: "client's address" });
  const body = el("div");
  const ask = async (event) => {
    event?.preventDefault();
    try {
      fill(body, answer(await get("explain", { to: to.value.trim(), from: from.value.trim(), client: client.value.trim() })));
    } catch (error) { fill(body, el("p", { class: "error" }, visible(error.message))); }
  };
  fill(view, el("h1", {}, "Explain"),
    el("p", { class: "soft" }, "The maps and rules in force are asked as for a message; nothing is sent. Without a client it is mail of a program of this machine."),
    el("form", { class: "bar", onsubmit: ask }, el("label", { htmlFor: "explain-to" }, "To"), to, el("label", { htmlFor: "explain-from" }, "From"), from,
      el("label", { htmlFor: "explain-client" }, "Client"), client, el("button", { class: "primary" }, "Explain")), body);
  if (to.value) ask();
  return { refresh: () => to.value && ask() };
}

function answer(found) {
  const kind = { deliver: "good", discard: "warn", hold: "warn", refuse: "bad", defer: "warn" }[found.outcome] || "";
  return [
    el("div", { class: "card" }, el("h2", {}, visible(found.recipient), " ", el("span", { class: "tag " + kind }, found.outcome)),
      found.reason ? el("p", {}, visible(found.reason)) : null,
      found.refusal ? el("p", {}, found.refusal.code + " " + visible(found.refusal.status) + " " + visible(found.refusal.text)) : null,
      (found.deliveries || []).map((one) => el("dl", {}, el("dt", {}, "to"), el("dd", {}, visible(one.address)), el("dt", {}, "by"), el("dd", { class: "mono" }, visible(one.destination)),
        one.via ? [el("dt", {}, "via"), el("dd", { class: "mono" }, visible(one.via))] : null))),
    el("div", { class: "card" }, el("h2", {}, "Decisions"), table(STEPS, (found.steps || []).map((step) => row(STEPS, [
      visible(step.stage), step.file ? el("span", { class: "mono" }, visible(step.file) + (step.line ? ":" + step.line : "")) : "–",
      step.key ? el("span", { class: "mono" }, visible(step.key) + " → " + visible(step.value || "")) : "–", visible(step.text),
    ])), "No map or rule has anything to say: the usual way is taken.")),
  ];
}
