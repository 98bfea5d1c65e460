"""The figures of scaling.py as tables and JSON."""

import os
import statistics

import groups

# What is aimed at: times the rate of one node, microseconds of engines for a message.
RATIOS = {("4k", 3): 2.6, ("50k", 3): 2.2}
ENGINE_US = {"4k": 26, "50k": 200}
WRITTEN = 2.1
ADDED_MS = 2.0
# With twice the sessions the rate may rise by this much.
RISE = 1.10
# IBM's study of sendmail clusters: submits/s and connection errors of MailStone behind a balancer, queues in memory.
SOURCE = {
    1: [("one server, no balancer", 49.0, 0.0)],
    2: [("Alteon", 95.9, 43.1), ("balance", 74.6, 30.1)],
    3: [("Alteon", 102.8, 87.8), ("balance", 103.8, 81.4)],
}


def spread(samples, value):
    """Median, least and most of a figure of samples; None without any."""
    values = [one for one in map(value, samples) if one is not None]
    return [statistics.median(values), min(values), max(values)] if values else None


def summary(chosen, samples, more):
    """Everything as plain data."""
    cells = []
    for (size, count), all_samples in samples.items():
        good = [one for one in all_samples if not one["void"]]
        wait = lambda key: spread(good, lambda one: (one["wait_ms"] or {}).get(key))
        cell = {"size": size, "nodes": count, "rounds": len(good), "of": len(all_samples)}
        for key in ("rate", "per_cpu_second", "node_cpu_us", "engine_cpu_us", "written_per_byte", "connect_errors"):
            cell[key] = spread(good, lambda one: one[key])
        cell["load_core_busy"] = spread(good, lambda one: one["load_core_busy"])
        cell["share_used"] = spread(good, lambda one: min(one["share_used"].values()))
        cell["other_programs"] = spread(good, lambda one: one["other_programs"])
        cell["segments_were_made"] = any(one["segments_were_made"] for one in good)
        cell["wait_p50_ms"], cell["wait_p99_ms"] = wait("p50"), wait("p99")
        cells.append(cell)
    for cell in cells:
        compare(cell, next((one for one in cells if one["size"] == cell["size"] and one["nodes"] == 1), None))
    proof = {}
    for size, one in more.items():
        cell = next(each for each in cells if each["size"] == size and each["nodes"] == max(chosen.nodes))
        rise = one["rate"] / cell["rate"][0] if cell["rate"] and one.get("rate") else None
        proof[size] = {"rate": one.get("rate"), "times": rise, "void": one["void"]}
    kept = ("seconds", "rounds", "sessions", "quota", "rate", "ready", "through")
    settings = {key: getattr(chosen, key) for key in kept} | {"period_us": groups.PERIOD_US}
    listed = [{"size": size, **one} for (size, _), all_samples in samples.items() for one in all_samples]
    machine = {"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()}
    return {"machine": machine, "settings": settings, "cells": cells, "twice": proof, "samples": listed}


def compare(cell, one):
    """Adds what a cell is beside one node."""
    cell["times_one"] = cell["efficiency"] = cell["added_p50_ms"] = None
    if one and one["rate"] and cell["rate"]:
        cell["times_one"] = cell["rate"][0] / one["rate"][0]
        cell["efficiency"] = cell["times_one"] / cell["nodes"]
    if one and one["wait_p50_ms"] and cell["wait_p50_ms"] and cell is not one:
        cell["added_p50_ms"] = cell["wait_p50_ms"][0] - one["wait_p50_ms"][0]


def text_of(values, digits=0):
    if values is None:
        return "-"
    least, most = f"{values[1]:,.{digits}f}", f"{values[2]:,.{digits}f}"
    return f"{values[0]:,.{digits}f} [{least}–{most}]"


def with_target(value, text, target, at_least=False):
    """A figure with its target if it misses it."""
    if value is None or target is None:
        return text
    is_met = value >= target if at_least else value <= target
    return text if is_met else f"{text}, target {'≥' if at_least else '≤'} {target}"


def markdown(chosen, report):
    """The table of nodes by themselves."""
    lines = [
        "| Size | Nodes | Accepted/s | × one node | Efficiency | Messages per CPU second | Engines, CPU µs a message "
        "| Written per octet | Share used | 250 at a low rate: p50, ms | p99, ms | p50 more than one node | Rounds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in report["cells"]:
        size, count = cell["size"], cell["nodes"]
        times = "-" if cell["times_one"] is None else f"{cell['times_one']:.2f}"
        times = with_target(cell["times_one"], times, RATIOS.get((size, count)), at_least=True)
        engines = cell["engine_cpu_us"] if count > 1 else None
        engine = with_target(engines and engines[0], text_of(engines), ENGINE_US.get(size))
        octets = cell["written_per_byte"]
        written = with_target(octets and octets[0], text_of(octets, 2), WRITTEN)
        written += "*" if cell["segments_were_made"] else ""
        more = cell["added_p50_ms"]
        added = "" if more is None else with_target(more, f"{more:.2f}", ADDED_MS)
        efficiency = "-" if cell["efficiency"] is None else f"{cell['efficiency']:.2f}"
        columns = [size, str(count), text_of(cell["rate"]), times, efficiency]
        columns += [text_of(cell["per_cpu_second"]), engine, written]
        share = cell["share_used"]
        columns += ["-" if share is None else f"{100 * share[0]:.0f} %"]
        columns += [text_of(cell["wait_p50_ms"], 2), text_of(cell["wait_p99_ms"], 1), added, f"{cell['rounds']} of {cell['of']}"]
        lines.append("| " + " | ".join(columns) + " |")
    if any(cell["segments_were_made"] for cell in report["cells"]):
        lines += ["", "\\* with the zeroes of segments that were made during a sample; a larger --ready avoids them"]
    return "\n".join(lines + remarks(chosen, report))


def balanced(chosen, report):
    """The table of nodes behind HAProxy, beside that of the study."""
    lines = [
        "| Size | Servers | Submits/s | × one | Connect errors | Busy clients' core | Rounds | sendmail's cluster: submits/s | × one "
        "| Connect errors |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in report["cells"]:
        wanted = (cell["size"], cell["nodes"])
        all_samples = [one for one in report["samples"] if (one["size"], one["nodes"]) == wanted]
        # Of all samples: those with errors do not count, and hide nothing.
        errors = spread(all_samples, lambda one: one.get("connect_errors"))
        times = "-" if cell["times_one"] is None else f"{cell['times_one']:.2f}"
        source = SOURCE.get(cell["nodes"], [])
        busy = cell["load_core_busy"]
        columns = [cell["size"], str(cell["nodes"]), text_of(cell["rate"]), times]
        columns += ["-" if errors is None else f"{100 * errors[0]:.1f} % [{100 * errors[1]:.1f}–{100 * errors[2]:.1f}]"]
        columns += ["-" if busy is None else f"{100 * busy[0]:.0f} %", f"{cell['rounds']} of {cell['of']}"]
        columns += ["; ".join(f"{name} {rate}" for name, rate, _ in source)]
        columns += ["; ".join(f"{rate / SOURCE[1][0][1]:.2f}" for _, rate, _ in source)]
        columns += ["; ".join(f"{part} %" for _, _, part in source)]
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines + remarks(chosen, report))


def remarks(chosen, report):
    """What a reader of the table must know."""
    lines = [""]
    low = "" if chosen.through else f"; 250 at {chosen.rate} messages/s a node without quota"
    way = "a new connection for each message" if chosen.through else "kept alive"
    lines.append(
        f"Each node {chosen.quota:g} % of a core, {chosen.sessions} sessions a node, {way}, {chosen.seconds} s a sample; "
        f"medians [least–most]{low}."
    )
    for size, one in report["twice"].items():
        if one["times"] is None:
            lines.append(f"{size}, twice the sessions: no figure; {'; '.join(one['void'])}")
        else:
            limit = "" if one["times"] <= RISE else ": the clients may have been the limit"
            void = f", void: {'; '.join(one['void'])}" if one["void"] else ""
            rate = f"{one['times']:.2f} of the rate{limit}{void}"
            lines.append(f"{size}, {max(chosen.nodes)} nodes, twice the sessions: {rate}")
    others = [cell["other_programs"][2] for cell in report["cells"] if cell["other_programs"]]
    if others:
        load = report["machine"]["load"][0]
        lines.append(f"Other programs took up to {100 * max(others):.0f} % of a core; load {load:.1f} at the end.")
    for one in report["samples"]:
        if one["void"]:
            lines.append(f"void: {one['size']}, {one['nodes']} nodes: {'; '.join(one['void'])}")
    return lines
