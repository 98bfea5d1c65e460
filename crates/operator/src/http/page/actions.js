// Changes of the queue: asks with the number of what is meant, carries out, shows how far it is.
import { change, get } from "./api.js";
import { el, fill, note, number, plural, visible } from "./dom.js";

export const ACTIONS = {
  retry: { title: "Retry", text: ["is tried now", "are tried now"] },
  hold: { title: "Hold", text: ["is kept until it is released", "are kept until they are released"], fields: [["reason", "Reason (kept with the mail)"]] },
  suspend: { title: "Suspend", text: ["and all that comes is kept until it is resumed", "and all that come are kept until they are resumed"], fields: [["reason", "Reason (kept with the mail)"], ["for", "For, as 2h; empty: until it is resumed"]] },
  release: { title: "Release", text: ["waits for delivery again", "wait for delivery again"] },
  reroute: { title: "Reroute", text: ["is sent elsewhere", "are sent elsewhere"], fields: [["new_destination", "New destination, as smtp:[192.0.2.1]:25 or example.org", true]] },
  forward: { title: "Forward", text: ["is sent as a copy", "are sent as copies"], fields: [["forward_to", "Address that gets a copy", true]] },
  bounce: { title: "Bounce", text: ["fails now, with a report to its sender", "fail now, with reports to their senders"], danger: true, fields: [["reason", "Reason (the sender reads it)"]] },
  delete: { title: "Delete", text: ["is removed for ever, without a report", "are removed for ever, without reports"], danger: true },
};

/** 90s, 15m, 2h, 1d as seconds; another text as it is, which the server refuses. */
export function seconds(text) {
  const found = /^(\d+)\s*([smhd])$/.exec(text.trim());
  return found ? Number(found[1]) * { s: 1, m: 60, h: 3600, d: 86400 }[found[2]] : text.trim();
}

/** Buttons for actions on what `selection` returns: the fields that a request has. */
export function buttons(names, selection, done) {
  return names.map((name) => el("button", {
    type: "button", class: ACTIONS[name].danger ? "danger" : "", onclick: () => ask(name, selection(), done),
  }, ACTIONS[name].title));
}

/** The number of messages and recipients that are meant. */
async function count(selection) {
  if (selection.ids) return selection.ids.length === 1 ? "1 message" : plural(selection.ids.length, "message");
  const { all, ...fields } = selection;
  const { totals } = await get("queue/count", fields);
  return plural(totals.messages, "message") + " with " + plural(totals.recipients, "recipient");
}

export async function ask(name, selection, done) {
  const action = ACTIONS[name];
  let meant;
  try { meant = await count(selection); } catch (error) { note(error.message, "bad"); return; }
  const dialog = document.getElementById("dialog");
  const inputs = (action.fields || []).map(([field, label, required]) => [field, label, el("input", { id: "field-" + field, required })]);
  const bar = el("div");
  const go = el("button", { class: action.danger ? "danger" : "primary" }, action.title);
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    const fields = { ...selection };
    for (const [field, , input] of inputs) if (input.value.trim()) fields[field] = field === "for" ? seconds(input.value) : input.value.trim();
    const far = el("span", { class: "soft" }, "at work …");
    fill(bar, el("progress", {}), far);
    let lines = 0, left = "";
    try {
      const last = await change("queue/" + name, fields, (line) => {
        lines += 1;
        if (line.not_owned) left ||= ". " + line.not_owned + ": " + line.trouble;
        if (line.seen !== undefined) fill(far, number(line.seen) + " of " + number(line.of));
        else if (lines % 100 === 0) fill(far, plural(lines, "line"));
      });
      dialog.close();
      note(action.title + ": " + plural(last.messages, "message") + ", " + plural(last.recipients, "recipient") + leftOver(last) + left, left ? "bad" : "good");
    } catch (error) {
      fill(bar, el("p", { class: "error" }, visible(error.message)));
      go.disabled = false;
    }
    done();
  };
  dialog.className = "small";
  fill(dialog, el("form", { onsubmit: submit }, el("h1", { id: "dialog-title" }, action.title),
    el("p", {}, el("strong", {}, meant), " " + action.text[/^1 message( |$)/.test(meant) ? 0 : 1] + "."),
    selection.expression ? el("p", { class: "mono soft" }, visible(selection.expression)) : null,
    selection.destination ? el("p", { class: "mono soft" }, visible(selection.destination)) : null,
    inputs.map(([, label, input]) => [el("label", { htmlFor: input.id }, label), input]), bar,
    el("div", { class: "actions" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go)));
  if (!dialog.open) dialog.showModal();
}

function leftOver(last) {
  const parts = [["unchanged", "unchanged"], ["kept", "kept for their time"], ["active", "in delivery"], ["unreadable", "not readable"],
    ["not_owned", "left alone, as another node may own them"]];
  return parts.filter(([key]) => last[key] > 0).map(([key, text]) => ", " + number(last[key]) + " " + text).join("");
}
