// The cluster as this node sees it: nodes, copies, mail without a copy, mail that moves, and limits kept together.
import { get } from "./api.js";
import { age, bytes, el, fill, number, plural, rate, row, table, visible } from "./dom.js";

const NODES = [{ name: "Node" }, { name: "Name" }, { name: "State" }];
const STREAMS = [{ name: "Copies at node", class: "number" }, { name: "State" }, { name: "Messages", class: "number" },
  { name: "Results not there yet", class: "number" }, { name: "Behind", class: "number" }];
const ADOPTIONS = [{ name: "Mail of node", class: "number" }, { name: "Copies at node", class: "number" }, { name: "Step" }, { name: "Taken", class: "number" }];
const HOSTAGES = [{ name: "Mail of node", class: "number" }, { name: "Messages", class: "number" }, { name: "Why it waits, and what helps" }];
const LIMITS = [{ name: "Next hop" }, { name: "Limit" }, { name: "All nodes", class: "number" }, { name: "This node", class: "number" }, { name: "Wanted here", class: "number" }];
const HOSTS = [{ name: "Next hop" }, { name: "State" }, { name: "Reported by node", class: "number" }, { name: "No attempt here for", class: "number" }];
const STATES = {
  member: ["good", "takes part"], joining: ["warn", "joining"], draining: ["warn", "draining"], leaving: ["warn", "leaving for good"],
  alone: ["bad", "no majority of the engines answers: nothing is adopted"], refused: ["bad", "must not take part"],
};

export function cluster(view) {
  const body = el("div", {});
  fill(view, el("h1", {}, "Cluster"), body);
  const load = async () => {
    try {
      const { cluster: state, hostname } = await get("status");
      fill(body, state ? parts(state, hostname) : alone());
    } catch (error) { fill(body, el("p", { class: "error" }, visible(error.message))); }
  };
  load();
  let tick = 0;
  return { refresh: load, sample() { tick += 1; if (tick % 3 === 0 && !body.contains(document.activeElement)) load(); } };
}

function alone() {
  return el("div", { class: "card" }, el("p", {}, "This server is no node of a cluster: its mail is on its own disk alone."),
    el("p", { class: "soft" }, "mailrace cluster demo shows three nodes on one machine; mailrace cluster init makes the files of a node."));
}

function parts(state, hostname) {
  const [kind, text] = STATES[state.state] || ["", state.state];
  const bad = [state.refusal, state.engine_problem].filter(Boolean);
  return [
    el("div", { class: "card" },
      el("p", {}, el("strong", {}, "Node " + state.node), " of cluster ", el("span", { class: "mono" }, visible(state.cluster)), " ", el("span", { class: "tag " + kind }, text)),
      bad.map((why) => el("p", { class: "error" }, visible(why))),
      el("p", {}, plural(state.messages, "message") + ", ", state.unreplicated > 0
        ? el("span", { class: "tag bad" }, number(state.unreplicated) + " without a copy") : null,
        state.with_fewer_copies > 0 ? el("span", { class: "tag bad" }, number(state.with_fewer_copies) + " with one copy, not two") : null,
        state.unreplicated + state.with_fewer_copies > 0 ? ", " : "each with its copies, ",
        number(state.waiting_for_stream + state.adopted_waiting) + " wait until their owner is known"),
      el("p", { class: "soft" }, "since the start: " + number(state.adopted) + " adopted from other nodes, " + number(state.given_up) + " given up to them, copies of "
        + bytes(state.copied_bytes) + " stored in " + bytes(state.stored_bytes))),
    state.hostages.length > 0 ? [el("h2", {}, "Mail of absent nodes that nobody can take now"), card(HOSTAGES, state.hostages.map(hostage), "")] : null,
    state.adoptions.length > 0 ? [el("h2", {}, "Adoptions by this node"), card(ADOPTIONS, state.adoptions.map(adoption), "")] : null,
    el("h2", {}, "Nodes"), card(NODES, [nodeRow(state.node, hostname, { draining: state.state === "draining", leaving: state.state === "leaving" }, true), ...state.nodes.map((one) => nodeRow(one.node, one.name, one, false)), ...(state.departed || []).map(departedRow)], ""),
    el("h2", {}, "Copies of the mail of this node"), card(STREAMS, state.streams.map(stream), "No other node has copies: mail of this node is on its disk alone."),
    el("h2", {}, "Limits that all nodes keep together"), card(LIMITS, (state.limits || []).map(limit), "No next hop with a [[destination]] table has mail here now."),
    state.hosts ? [el("h2", {}, "Next hops that other nodes report"), card(HOSTS, state.hosts.reported.map(host), "None now."),
      el("p", { class: "soft" }, number(state.hosts.reported_count) + " reports, mail waits here for " + number(state.hosts.waiting) + " of them; since the start "
        + number(state.hosts.sent) + " sent, " + number(state.hosts.received) + " received, " + number(state.hosts.dropped + state.hosts.unreadable) + " dropped")] : null,
  ];
}

function card(columns, rows, empty) {
  return el("div", { class: "card" }, table(columns, rows, empty));
}

function nodeRow(node, name, { draining, leaving }, own) {
  return row(NODES, [String(node), [visible(name), own ? el("span", { class: "soft" }, " (this one)") : null],
    draining || leaving ? el("span", { class: "tag warn" }, leaving ? "leaving" : "draining") : el("span", { class: "tag good" }, "up")]);
}

function departedRow(one) {
  const copies = one.messages > 0 ? ", with copies of " + plural(one.messages, "message") + " of this node on its engine" : "";
  return row(NODES, [String(one.node), "", el("span", { class: "soft" }, "left" + copies)]);
}

function stream(one) {
  const kind = one.state === "open" ? "good" : one.state === "stalled" || one.state === "with adopter" ? "bad" : "warn";
  return row(STREAMS, [String(one.holder), el("span", { class: "tag " + kind }, one.state), number(one.messages), number(one.unstored_outcomes),
    one.lag_ms === undefined ? "–" : number(one.lag_ms) + " ms"]);
}

function adoption(one) {
  return row(ADOPTIONS, [String(one.owner), String(one.holder), one.step, number(one.taken)]);
}

function hostage(one) {
  return row(HOSTAGES, [String(one.owner), one.messages === undefined ? "unknown" : number(one.messages), visible(one.why)]);
}

function host(one) {
  return row(HOSTS, [visible(one.next_hop), el("span", { class: "tag " + (one.state === "down" ? "bad" : "warn") }, visible(one.state)), String(one.node), age(one.wait)]);
}

function limit(one) {
  const unit = one.kind === "connections" ? "connections" : "messages a second";
  return row(LIMITS, [visible(one.next_hop), unit, rate(one.limit), rate(one.share), rate(one.wanted)]);
}
