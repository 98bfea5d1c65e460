// Stragglers: recipients that have waited for long, added up.
import { get } from "./api.js";
import { age, el, fill, number, row, table, visible } from "./dom.js";
import { buttons } from "./actions.js";

const COLUMNS = [{ name: "Waits for" }, { name: "Recipients", class: "number" }, { name: "Messages", class: "number" }, { name: "Oldest", class: "number" }, { name: "Last reply or reason" }, { name: "Actions", class: "tight" }];

export function stragglers(view) {
  const by = el("select", { "aria-label": "Added up by" }, ["host", "destination", "recipient"].map((name) => el("option", { value: name }, "by " + name)));
  const older = el("select", { "aria-label": "Waiting for" }, [[60, "a minute"], [3600, "an hour"], [14400, "four hours"], [86400, "a day"]].map(([value, text]) => el("option", { value, selected: value === 3600 }, "waiting for " + text + " or longer")));
  const body = el("div", { class: "card" });
  const load = async () => {
    try {
      const { stragglers, totals } = await get("stragglers", { by: by.value, older: older.value, limit: 200 });
      fill(body, table(COLUMNS, stragglers.map((one) => line(one, load)), "Nothing waits for so long."),
        totals.more > 0 ? el("p", { class: "soft" }, number(totals.more) + " more groups") : null);
    } catch (error) { fill(body, el("p", { class: "error" }, visible(error.message))); }
  };
  by.addEventListener("change", load);
  older.addEventListener("change", load);
  fill(view, el("h1", {}, "Stragglers"), el("div", { class: "bar" }, by, older), body);
  load();
  return { refresh: load };
}

function line(one, load) {
  const name = one.to ?? one.host ?? one.destination ?? "?";
  const fields = one.to !== undefined ? { expression: "to:" + one.to } : one.host !== undefined ? { expression: "host:" + name } : { destination: name };
  const query = one.to !== undefined ? "expression=" + encodeURIComponent("to:" + one.to) : one.host !== undefined ? "expression=" + encodeURIComponent("host:" + name) : "destination=" + encodeURIComponent(name);
  return row(COLUMNS, [
    [el("a", { href: "#messages?" + query }, visible(name)), one.destinations > 1 ? el("div", { class: "soft small" }, number(one.destinations) + " destinations: " + (one.named || []).map(visible).join(", ")) : null],
    number(one.recipients), number(one.messages), age(one.oldest),
    [one.down ? el("div", {}, "down" + (one.retry_in === undefined ? "" : ", next try in " + age(one.retry_in))) : null, one.reason || one.down ? el("div", { class: "reply" }, visible(one.reason || one.down)) : el("span", { class: "soft" }, "–")],
    el("div", { class: "row-actions" }, buttons(["retry", "hold"], () => fields, load)),
  ]);
}
