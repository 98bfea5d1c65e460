// The configuration in force: each value, its default and where it was set; and a reload.
import { change, get } from "./api.js";
import { el, fill, note, number, row, table, visible } from "./dom.js";

const COLUMNS = [{ name: "Key" }, { name: "Value" }, { name: "Default" }, { name: "Set" }];

export function configuration(view) {
  const search = el("input", { type: "search", placeholder: "part of a key or value", "aria-label": "Part of a key or value" });
  const changed = el("input", { type: "checkbox", id: "only-changed", checked: true });
  const body = el("div", { class: "card" });
  let values = [];
  const draw = () => {
    const text = search.value.trim().toLowerCase();
    const shown = values.filter((one) => (!changed.checked || one.set !== "default") && (one.key + " " + shownValue(one.value)).toLowerCase().includes(text));
    fill(body, table(COLUMNS, shown.map((one) => row(COLUMNS, [
      el("span", { class: "mono" }, visible(one.key)), el("span", { class: "mono" }, visible(shownValue(one.value))),
      el("span", { class: "mono soft" }, visible(shownValue(one.default))), el("span", { class: one.set === "default" ? "soft" : "" }, visible(one.set)),
    ])), changed.checked ? "Every such value is its default." : "No such key."), el("p", { class: "soft small" }, number(shown.length) + " of " + number(values.length) + " keys"));
  };
  const load = async () => {
    try { values = (await get("config")).values; draw(); } catch (error) { fill(body, el("p", { class: "error" }, visible(error.message))); }
  };
  const reload = async () => {
    try {
      const answer = await change("reload", {});
      note(answer.changed?.length ? "reloaded: " + answer.changed.join("; ") : "reloaded; nothing has changed", "good");
      load();
    } catch (error) { note(error.message, "bad"); }
  };
  search.addEventListener("input", draw);
  changed.addEventListener("change", draw);
  fill(view, el("h1", {}, "Configuration"),
    el("div", { class: "bar" }, el("div", { class: "grow" }, search), el("label", { htmlFor: "only-changed" }, changed, " only what was set"), el("button", { type: "button", onclick: reload }, "Reload the file")), body);
  load();
  return { refresh: load };
}

function shownValue(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
