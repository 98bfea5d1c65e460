// The race: deliveries, failures and arrivals by the second, how long mail takes, and what fails.
import { get } from "./api.js";
import { age, bytes, clock, delay, el, fill, number, plural, rate, row, table, visible } from "./dom.js";

/** Seconds that the charts show. */
const SPAN = 300;
/** Seconds that a chart shows at least. */
const SPAN_MIN = 60;
/** Seconds over which rates and percentiles are taken. */
const WINDOW = 10;

const ERRORS = [{ name: "Age", class: "tight" }, { name: "Recipient" }, { name: "Host" }, { name: "Reply" }];

export function race(view, { history }) {
  const figures = el("div", { class: "figures" });
  const rates = el("div", { class: "chart" });
  const delays = el("div", { class: "chart" });
  const errors = el("div");
  const spool = el("div");
  fill(view, el("h1", {}, "Race"), figures,
    el("div", { class: "card" }, el("h2", {}, "Recipients by second"), rates,
      legend([["key-sent", "delivered"], ["key-failed", "failed and deferred, below"], ["key-arrived", "arrived (messages)"], ["key-sum", "delivered in all, right scale"]])),
    el("div", { class: "columns" },
      el("div", { class: "card" }, el("h2", {}, "Last errors"), errors),
      el("div", {}, el("div", { class: "card" }, el("h2", {}, "Time from acceptance to delivery"), delays, legend([["key-p50", "median"], ["key-p99", "99 %"]])),
        el("div", { class: "card" }, el("h2", {}, "Queue and spool"), spool))));
  let best = null;
  let earlier = [];
  let charts = make();
  function make() {
    return { rates: rateChart(rates), delays: delayChart(delays) };
  }
  function draw() {
    if (history.length === 0) return;
    const last = history[history.length - 1];
    const series = [...earlier.filter((one) => one.time < history[0].time / 1000), ...seconds(history)];
    charts.rates.setData(rateData(series));
    charts.delays.setData(delayData(history));
    fill(figures, figuresOf(history, last, series, best));
    fill(spool, spoolOf(last));
  }
  const loadErrors = async () => {
    try { fill(errors, errorsOf((await get("errors")).errors)); } catch (error) { fill(errors, el("p", { class: "error" }, error.message)); }
  };
  const loadBest = async () => {
    try {
      const statistics = await get("statistics");
      best = bestOf(statistics);
      if (earlier.length === 0) earlier = earlierOf(statistics);
      draw();
    } catch { best = null; }
  };
  const resize = new ResizeObserver(() => { for (const [box, chart] of [[rates, charts.rates], [delays, charts.delays]]) chart.setSize({ width: box.clientWidth, height: box.clientWidth < 500 ? 200 : 260 }); });
  resize.observe(rates); resize.observe(delays);
  loadErrors(); loadBest(); draw();
  let tick = 0;
  return {
    sample() { tick += 1; draw(); if (tick % 5 === 0) loadErrors(); if (tick % 60 === 0) loadBest(); },
    refresh() { loadErrors(); loadBest(); },
    theme() { charts.rates.destroy(); charts.delays.destroy(); charts = make(); draw(); },
    close() { resize.disconnect(); charts.rates.destroy(); charts.delays.destroy(); },
  };
}

function legend(keys) {
  return el("div", { class: "legend" }, keys.map(([key, text]) => el("span", {}, el("i", { class: key }), text)));
}

/** What happened between each two samples, by second. A restart of the server begins anew. */
function seconds(history) {
  const found = [];
  for (let at = 1; at < history.length; at += 1) {
    const [before, now] = [history[at - 1], history[at]];
    const time = (now.time - before.time) / 1000;
    if (time <= 0 || now.sent < before.sent || time > 5) { found.push({ time: now.time / 1000, sent: null, failed: null, arrived: null }); continue; }
    found.push({
      time: now.time / 1000,
      sent: (now.sent - before.sent) / time,
      failed: (now.failed + now.deferred - before.failed - before.deferred) / time,
      arrived: (now.accepted - before.accepted) / time,
    });
  }
  return found;
}

function rateData(series) {
  const shown = series.slice(-SPAN);
  let sum = 0;
  const sums = shown.map((one) => (sum += one.sent || 0));
  return [shown.map((one) => one.time), shown.map((one) => one.sent), shown.map((one) => (one.failed === null ? null : -one.failed)), shown.map((one) => one.arrived), sums];
}

/** The percentile of the deliveries between two samples, from the classes of delays; null without any. */
export function percentile(before, now, bounds, part) {
  const counts = now.map((count, at) => count - before[at]);
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all <= 0) return null;
  let below = 0;
  for (let at = 0; at < counts.length; at += 1) {
    if (below + counts[at] >= all * part) {
      const low = at === 0 ? 0 : bounds[at - 1];
      if (at >= bounds.length) return low;
      return low + (bounds[at] - low) * ((all * part - below) / counts[at]);
    }
    below += counts[at];
  }
  return bounds[bounds.length - 1];
}

function percentiles(history, at) {
  const from = Math.max(0, at - WINDOW);
  const [before, now] = [history[from], history[at]];
  if (from === at || now.sent < before.sent) return [null, null];
  return [0.5, 0.99].map((part) => percentile(before.delays, now.delays, now.bounds, part));
}

function delayData(history) {
  const first = Math.max(1, history.length - SPAN);
  const [times, middle, high] = [[], [], []];
  for (let at = first; at < history.length; at += 1) {
    const [p50, p99] = percentiles(history, at);
    times.push(history[at].time / 1000); middle.push(p50); high.push(p99);
  }
  return [times, middle, high];
}

function figuresOf(history, last, series, best) {
  const near = series.slice(-WINDOW).filter((one) => one.sent !== null);
  const mean = (key) => (near.length === 0 ? 0 : near.reduce((sum, one) => sum + one[key], 0) / near.length);
  const top = Math.max(0, ...series.map((one) => one.sent || 0));
  const [p50, p99] = percentiles(history, history.length - 1);
  const figure = (value, text, kind = "") => el("div", { class: "figure " + kind }, el("b", {}, value), el("span", {}, text));
  return [
    figure(rate(mean("sent")), "recipients delivered a second"),
    figure(rate(mean("arrived")), "messages arrive a second"),
    figure(rate(mean("failed")), "attempts fail a second", mean("failed") > 0 ? "warn" : ""),
    figure(number(last.messages), "messages in the queue"),
    figure(delay(p50) + " / " + delay(p99), "median / 99 % to delivery"),
    figure(number(Math.round(Math.max(top, best?.second || 0))), best?.ever ? "best second ever" : "best second"),
    ...(best ? [figure(number(best.minute), best.ever ? "best minute ever" : "best minute of a day"), figure(number(best.hour), best.ever ? "best hour ever" : "best hour of a month")] : []),
  ];
}

/** The best windows of the server's statistics, by recipients that were delivered. */
function bestOf(statistics) {
  const at = statistics.columns.indexOf("sent");
  const most = (lines) => Math.max(0, ...lines.windows.map((window) => window[at] || 0));
  if (at < 0) return null;
  // With a history the server knows the best of all times.
  const ever = (seconds) => (statistics.best || []).find((one) => one.seconds === seconds)?.sent || 0;
  return { second: Math.max(ever(1), most(statistics.seconds)), minute: Math.max(ever(60), most(statistics.minutes)), hour: Math.max(ever(3600), most(statistics.hours)), ever: (statistics.best || []).length > 0 };
}

/** The seconds before the page was opened, from the statistics of the server. */
function earlierOf({ columns, seconds: { begin, windows }, now }) {
  // Times of the statistics are civil; the present is the same moment in both.
  const offset = Date.now() / 1000 - now;
  const value = (window, name) => window[columns.indexOf(name)] || 0;
  return windows.map((window, at) => ({
    time: begin + at + offset, sent: value(window, "sent"), failed: value(window, "failed") + value(window, "deferred"), arrived: value(window, "arrivals"),
  }));
}

function errorsOf(errors) {
  const now = Date.now() / 1000;
  return table(ERRORS, errors.map((one) => row(ERRORS, [
    el("span", { title: clock(one.time) }, age(now - one.time)),
    [el("span", { class: "tag " + (one.result === "failed" ? "bad" : "warn") }, one.result), " ", el("a", { href: "#messages?id=" + encodeURIComponent(one.id) }, visible(one.to))],
    visible(one.host), el("span", { class: "reply" }, visible(one.text)),
  ])), "No attempt has failed since the start.");
}

function spoolOf(last) {
  const used = last.segments_max === 0 ? 0 : (last.segments - last.segments_free) / last.segments_max;
  return [
    el("dl", {},
      el("dt", {}, "waiting"), el("dd", {}, plural(last.waiting, "recipient") + " at " + plural(last.destinations, "destination")),
      el("dt", {}, "held"), el("dd", {}, number(last.held)),
      el("dt", {}, "connections"), el("dd", {}, number(last.connections_in) + " in, " + number(last.connections_out) + " out"),
      el("dt", {}, "spool"), el("dd", {}, bytes(last.live_bytes) + ", pressure " + visible(last.pressure)),
      el("dt", {}, "up"), el("dd", {}, age(last.uptime))),
    el("progress", { max: 1, value: used, "aria-label": "Segments of the spool in use" }),
    el("p", { class: "soft small" }, (used * 100).toFixed(1) + " % of the spool's segments in use"),
  ];
}

/** A new chart grows from the right. */
function atLeast(_, low, high) {
  // Before the first second there is no time in the data.
  const end = high || Date.now() / 1000;
  return [Math.min(low || end, end - SPAN_MIN), end];
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axes(format, right) {
  const grid = { stroke: color("--line"), width: 1 };
  const usual = { stroke: color("--soft"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const all = [usual, { ...usual, size: 56, values: (_, ticks) => ticks.map(format) }];
  if (right) all.push({ ...usual, scale: "sum", side: 1, size: 60, grid: { show: false }, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) });
  return all;
}

function rateChart(box) {
  const bars = uPlot.paths.bars({ size: [0.8, 8] });
  return new uPlot({
    width: box.clientWidth || 600, height: box.clientWidth < 500 ? 200 : 260, cursor: { y: false },
    scales: { x: { time: true, range: atLeast }, y: { range: (_, low, high) => [Math.min(low || 0, 0), Math.max(high || 0, 1)] }, sum: { range: (_, low, high) => [0, Math.max(high || 0, 1)] } },
    series: [{}, { stroke: "#2f9e5b", fill: "#2f9e5b", paths: bars, points: { show: false } },
      { stroke: "#d1453b", fill: "#d1453b", paths: bars, points: { show: false } },
      { stroke: "#0b6bcb", width: 1.5, points: { show: false } },
      { stroke: "#9a6bd1", width: 1.5, scale: "sum", points: { show: false } }],
    axes: axes((tick) => rate(Math.abs(tick)), box.clientWidth >= 500),
  }, [[], [], [], [], []], box);
}

function delayChart(box) {
  return new uPlot({
    width: box.clientWidth || 300, height: box.clientWidth < 500 ? 200 : 260, cursor: { y: false },
    scales: { x: { time: true, range: atLeast }, y: { range: (_, low, high) => [0, Math.max(high || 0, 0.1)] } },
    series: [{}, { stroke: "#0b6bcb", width: 1.5, points: { show: false } }, { stroke: "#d98a1f", width: 1.5, points: { show: false } }],
    axes: axes(delay, false),
  }, [[], [], []], box);
}
