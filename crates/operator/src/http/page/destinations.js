// Destinations: what waits for them, their state, the limit that binds, and when they are tried again.
import { get } from "./api.js";
import { age, el, fill, number, rate, row, table, visible } from "./dom.js";
import { buttons } from "./actions.js";
import { limitText, orders, rules } from "./steering.js";

const COLUMNS = [{ name: "Destination" }, { name: "Queued", class: "number" }, { name: "In flight", class: "number" },
  { name: "Connections", class: "number" }, { name: "State" }, { name: "Why, and the limit that binds" }, { name: "Actions", class: "tight" }];
const HOSTS = [{ name: "Next hop" }, { name: "Last attempt", class: "number" }, { name: "Failures", class: "number" }, { name: "Next try", class: "number" }, { name: "TLS" }];

export function destinations(view) {
  const list = el("div", { class: "card" });
  const hosts = el("div", { class: "card" });
  const held = el("div", { class: "card", hidden: true });
  fill(view, el("h1", {}, "Destinations"), held, list, el("h2", {}, "Next hops that the server remembers"), hosts);
  const load = async () => {
    try {
      const { destinations, totals } = await get("destinations", { limit: 200 });
      fill(list, table(COLUMNS, destinations.map((one) => line(one, load)), "No mail waits for any destination."),
        totals.more > 0 ? el("p", { class: "soft" }, number(totals.more) + " more destinations; mailrace queue destinations --limit 0 has all") : null);
      await rules(held, load);
      fill(hosts, table(HOSTS, (await get("hosts")).hosts.map(host), "The server has not talked to any host yet."));
    } catch (error) { fill(list, el("p", { class: "error" }, visible(error.message))); }
  };
  load();
  let tick = 0;
  return { refresh: load, sample() { tick += 1; if (tick % 5 === 0 && !document.getElementById("dialog").open && !list.contains(document.activeElement)) load(); } };
}

function line(one, load) {
  const [kind, text] = stateOf(one);
  return row(COLUMNS, [
    [el("a", { href: "#messages?destination=" + encodeURIComponent(one.destination) }, visible(one.destination)),
      one.site && one.site !== one.destination ? el("div", { class: "soft small" }, visible(one.site)) : null],
    number(one.recipients), number(one.in_flight || 0),
    one.window === undefined ? number(one.connections || 0) : number(one.connections || 0) + " of " + number(one.window),
    el("span", { class: "tag " + kind }, text), whyOf(one),
    el("div", { class: "row-actions" }, buttons(["retry", "hold", "release"], () => ({ destination: one.destination }), load), orders(one, load)),
  ]);
}

function stateOf(one) {
  if (one.trying) return ["warn", "down, tried now"];
  if (one.down) return ["bad", one.retry_in === undefined ? "down" : "down, next try in " + age(one.retry_in)];
  if (one.waits_for) return ["warn", "waits"];
  if (one.in_flight > 0) return ["good", "delivering"];
  return ["", "waits for its time"];
}

function whyOf(one) {
  const parts = [];
  if (one.down) parts.push(el("div", { class: "reply" }, visible(one.down)));
  if (one.waits_for === "connection") {
    parts.push(el("div", {}, "for a connection" + (one.waits_since === undefined ? "" : " since " + age(one.waits_since)) + ": its share of delivery.connections_max" + (one.connections_max === undefined ? "" : " = " + number(one.connections_max)) + " is in use"));
  }
  if (one.set_limit) parts.push(el("div", {}, limitText(one.set_limit)));
  if (one.waits_for === "rate" && one.set_limit?.rate !== undefined) parts.push(el("div", {}, "for that rate"));
  else if (one.waits_for === "rate") parts.push(el("div", {}, "for the rate of its [[destination]]: " + rate(one.messages_per_second || 0) + " messages a second, " + rate((one.messages_per_second || 0) * 3600) + " an hour at most"));
  if (one.waits_for === "share") parts.push(el("div", {}, "for a share of its limits, which all nodes of the cluster keep together"));
  if (one.waits_for === "pace") parts.push(el("div", {}, "for the pace that its replies taught: " + rate(one.learned_messages_per_second || 0) + " messages a second"));
  if (one.lane === "slow") parts.push(el("div", { class: "soft" }, "its hosts were silent: it shares delivery.connections_silent_max"));
  return parts.length > 0 ? parts : el("span", { class: "soft" }, "–");
}

function host(one) {
  const tls = one.in_clear_for !== null ? "in clear for " + age(one.in_clear_for) : one.tls_fails_for !== null ? "fails for " + age(one.tls_fails_for) : one.tls_worked_ago !== null ? "worked " + age(one.tls_worked_ago) + " ago" : "–";
  return row(HOSTS, [el("span", { class: "mono" }, visible(one.address)), age(one.ago) + " ago", number(one.failures), one.retry_in === null ? "–" : "in " + age(one.retry_in), tls],
    { class: one.failures > 0 ? "failing" : "" });
}
