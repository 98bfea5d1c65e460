// Storms: stretches of minutes with much mail, and what became of each.
import { get } from "./api.js";
import { age, bytes, el, fill, number, plural, row, table, visible } from "./dom.js";

const COLUMNS = [{ name: "Began", class: "tight" }, { name: "Took", class: "number" }, { name: "Messages", class: "number" }, { name: "Delivered", class: "number" }, { name: "Deferred", class: "number" }, { name: "Failed", class: "number" }, { name: "Best minute", class: "number" }];

export function storm(view) {
  const list = el("div", { class: "card" });
  const report = el("div", { class: "card", hidden: true });
  const box = el("div", { class: "chart" });
  let [chart, chosen, answer] = [null, null, { storms: [], now: 0, least: 0 }];
  fill(view, el("h1", {}, "Storm"), list, report);

  async function load() {
    try { answer = await get("storms"); } catch (error) { fill(list, el("p", { class: "error" }, visible(error.message))); return; }
    const rows = answer.storms.map((one) => row(COLUMNS, [
      el("button", { type: "button", class: "link", onclick: () => show(one.begin) }, civil(one.begin)),
      [age(one.seconds), one.running ? [" ", el("span", { class: "tag good" }, "now")] : null],
      number(one.arrivals), number(one.sent), number(one.deferred), number(one.failed), number(one.sent_minute),
    ], { class: one.begin === chosen ? "chosen" : "" }));
    fill(list, table(COLUMNS, rows, "No storm in the last two days: no minute with " + number(answer.least) + " messages, recipients or deliveries."),
      el("p", { class: "soft small" }, "A minute with " + number(answer.least) + " messages, recipients or deliveries belongs to a storm; five quiet minutes end it."));
    draw();
  }

  function show(begin) { chosen = begin; load(); }

  function draw() {
    chart?.destroy();
    chart = null;
    const one = answer.storms.find((storm) => storm.begin === chosen) || answer.storms[0];
    report.hidden = !one;
    if (!one) return;
    const left = one.arrived_recipients - one.sent - one.failed;
    const facts = [["came", plural(one.arrivals, "message") + " for " + plural(one.arrived_recipients, "recipient") + ", " + bytes(one.arrived_bytes)],
      ["delivered", plural(one.sent, "recipient") + ", " + number(Math.round(one.sent / one.seconds)) + " a second"],
      ["best minute", plural(one.arrivals_minute, "message") + " came, " + plural(one.sent_minute, "recipient") + " delivered"],
      ["not delivered", plural(one.failed, "recipient") + " failed, " + plural(one.deferred, "attempt") + " deferred, " + plural(one.reports, "report")],
      ["refused", number(one.refused) + " clients, commands and messages"],
      ["left at its end", left > 0 ? plural(left, "recipient") + ", delivered later or still waiting" : "nothing"]];
    fill(report, el("h2", {}, "Storm of " + civil(one.begin) + ", " + age(one.seconds)), box,
      el("div", { class: "legend" }, [["key-sent", "delivered"], ["key-failed", "failed and deferred, below"], ["key-arrived", "arrived (messages)"]].map(([key, text]) => el("span", {}, el("i", { class: key }), text))),
      el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
    const offset = Date.now() / 1000 - answer.now;
    const part = (at, sign) => one.minutes.map((minute) => sign * minute[at]);
    const bars = uPlot.paths.bars({ size: [0.8, 24] });
    const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    chart = new uPlot({
      width: box.clientWidth || 600, height: 240, cursor: { y: false },
      scales: { x: { time: true, range: (_, low, high) => [low - 60, high + 60] }, y: { range: (_, low, high) => [Math.min(low || 0, 0), Math.max(high || 0, 1)] } },
      series: [{}, { stroke: "#2f9e5b", fill: "#2f9e5b", paths: bars, points: { show: false } }, { stroke: "#d1453b", fill: "#d1453b", paths: bars, points: { show: false } }, { stroke: "#0b6bcb", width: 1.5, points: { show: one.minutes.length < 3 } }],
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => number(Math.abs(tick))) }],
    }, [one.minutes.map((_, at) => one.begin + at * 60 + offset), part(1, 1), part(2, -1), part(0, 1)], box);
  }

  const resize = new ResizeObserver(() => chart?.setSize({ width: box.clientWidth, height: 240 }));
  resize.observe(box);
  let tick = 0;
  load();
  return { refresh: load, theme: draw, sample() { tick += 1; if (tick % 15 === 0) load(); }, close() { resize.disconnect(); chart?.destroy(); } };
}

/** A moment of the server's civil time, as its log shows it. */
function civil(seconds) { return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " "); }
