// Talks to the server: requests, changes with their lines, and the live numbers.

const KEY = "mailrace.token";

let tellHistory;
/** Whether the server keeps a history, as the first live numbers say. */
export const hasHistory = new Promise((resolve) => { tellHistory = resolve; });
export function learn(sample) { tellHistory(sample.history === true); }

export function token() { return sessionStorage.getItem(KEY) || ""; }

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value); else sessionStorage.removeItem(KEY);
}

function headers(more = {}) {
  return token() ? { Authorization: "Bearer " + token(), ...more } : more;
}

/** The refusal of the server in words. */
export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function refused(response) {
  let text = response.status + " " + response.statusText;
  try { text = (await response.json()).error || text; } catch { /* the status says enough */ }
  if (response.status === 401) document.dispatchEvent(new CustomEvent("needs-token"));
  return new Refused(response.status, text);
}

async function request(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Refused(0, "the server does not answer");
  }
}

/** Asks for an object. Empty fields are left out. */
export async function get(path, fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== "" && value !== undefined));
  const text = query.toString();
  const response = await request("/api/v1/" + path + (text ? "?" + text : ""), { headers: headers() });
  if (!response.ok) throw await refused(response);
  return response.json();
}

/** Carries out a change; tells of every line of the answer and returns the last. */
export function change(path, fields, onLine = () => {}) { return stream(path, fields, onLine); }

/** The same until `signal` ends it. */
export async function stream(path, fields, onLine, signal) {
  const options = { method: "POST", signal, headers: headers({ "Content-Type": "application/json", "X-Mailrace": "1" }), body: JSON.stringify(fields) };
  const response = await request("/api/v1/" + path, options);
  if (!response.ok) throw await refused(response);
  let last = {};
  for await (const line of lines(response)) { last = JSON.parse(line); onLine(last); }
  if (last.ok === false) throw new Refused(response.status, last.error);
  return last;
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield part;
  }
  if (rest) yield rest;
}

/** Live numbers, a sample each second, while the page is visible and not paused. */
export class Live {
  constructor(onSample, onState) {
    Object.assign(this, { onSample, onState, paused: false, stop: null, wait: 1000 });
    document.addEventListener("visibilitychange", () => this.update());
  }

  update() {
    const wanted = !this.paused && !document.hidden;
    if (wanted && !this.stop) this.run();
    if (!wanted && this.stop) { this.stop.abort(); this.stop = null; this.onState(this.paused ? "paused" : "hidden"); }
  }

  async run() {
    const stop = this.stop = new AbortController();
    try {
      const response = await fetch("/api/v1/live", { headers: headers(), signal: stop.signal });
      if (!response.ok) throw await refused(response);
      this.wait = 1000;
      for await (const line of lines(response)) {
        if (line.startsWith("data: ")) this.onSample(JSON.parse(line.slice(6)));
      }
      throw new Refused(0, "the server has ended the live numbers");
    } catch (error) {
      if (stop.signal.aborted) return;
      this.onState("lost", error);
    }
    if (this.stop !== stop) return;
    const again = () => { if (this.stop === stop) { this.stop = null; this.update(); } };
    setTimeout(again, this.wait);
    this.wait = Math.min(this.wait * 2, 15000);
  }

  again() { if (this.stop) { this.stop.abort(); this.stop = null; } this.wait = 1000; this.update(); }
}
