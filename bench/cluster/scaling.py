#!/usr/bin/env python3
"""Measures what a node more brings: 1, 2, 3 and 5 nodes, each with its engine and the same part of one core.

    scaling.py PROGRAM [--nodes 1,2,3,5] [--sizes 4k,50k] [--seconds N] [--rounds N] [--json FILE]
    scaling.py PROGRAM --through haproxy [--nodes 1,2,3]

PROGRAM is a mailrace, as root on a quiet machine with two cores or more. What is measured is accepting: nodes take mail
from `mailrace storm` and keep it (`delivery.mode = "queue"`), each 250 behind the copy at another node. One node is a
server without [cluster]. Two nodes have a third engine without mail, which counts with them.

Nodes run on core 0, each in a control group with `--quota` percent of it, together less than all of it; storms and HAProxy
run on core 1. Connections are spread evenly over the nodes: a storm for each, or one through HAProxy with a connection for
each message. A sample is a fresh cluster whose spools have their free segments. Before the load the wait for a 250 is
measured at `--rate` messages a second and node, without quota. A sample is void, and named, if

- a connection or a message failed, or mail had no copy at the end, or
- core 1 was busy for 70 % or more.

The column *share used* tells whether processor time was the limit: below nine tenths it was the disk, other programs, or
the wait of nodes for each other.

Figures are medians with [least-most] of the rounds. At the end the most nodes are measured with twice the sessions: the
rate must not rise by much, or the clients were the limit. Exit status 1 if a cell has no figure."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
import groups
import network
import scaling_report
from members import find_engine
from scaled import Cluster

BUSY_MAX = 0.70


def numbers(text):
    return [int(part) for part in text.split(",")]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--nodes", type=numbers, help="numbers of nodes [1,2,3,5; through HAProxy 1,2,3]")
    parser.add_argument("--sizes", type=lambda text: text.split(","), help="[4k,50k; through HAProxy 4k]")
    parser.add_argument("--seconds", type=int, default=10, help="of a sample [10]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--sessions", type=int, default=60, help="of each node [60]")
    parser.add_argument("--quota", type=float, default=18, help="percent of a core for each node [18]")
    parser.add_argument("--rate", type=int, default=20, help="messages/s of a node for the wait of a 250 [20]")
    parser.add_argument("--wait-seconds", type=int, default=5, help="of that measurement; 0: none [5]")
    parser.add_argument("--ready", type=int, default=384, help="MiB of free segments of each node [384]")
    parser.add_argument("--own-text", action="store_true", help="messages share no text [those of a storm do]")
    parser.add_argument("--through", choices=["haproxy"])
    parser.add_argument("--generator", help="the mailrace whose storm is used [PROGRAM]")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where spools and stores are [the system's]")
    parser.add_argument("--json", help="a file for all samples and figures")
    chosen = parser.parse_args()
    chosen.program = str(pathlib.Path(chosen.program).resolve())
    chosen.generator = str(pathlib.Path(chosen.generator or chosen.program).resolve())
    chosen.nodes = chosen.nodes or ([1, 2, 3] if chosen.through else [1, 2, 3, 5])
    chosen.sizes = chosen.sizes or (["4k"] if chosen.through else ["4k", "50k"])
    if max(chosen.nodes) * chosen.quota > 100:
        sys.exit(f"scaling: {max(chosen.nodes)} nodes with {chosen.quota} % each are more than one core; lower --quota")
    return chosen


def tell(text):
    print(f"scaling: {text}", file=sys.stderr, flush=True)


def sample(chosen, work, count, size, sessions, with_wait=True):
    """A sample of a fresh cluster, as plain data."""
    cluster = Cluster(chosen, work / f"{count}-nodes", count, chosen.through)
    try:
        cluster.start()
        cluster.storm(size, 1, sessions)
        wait = None
        if with_wait and chosen.wait_seconds and not chosen.through:
            wait = wait_of(cluster.storm(size, chosen.wait_seconds, 4, chosen.rate))
        cluster.groups.limit(chosen.quota)
        counts = cluster.measure(size, chosen.seconds, sessions)
        cluster.groups.limit(None)
        network.until(cluster.is_whole, 20, 0.2)
        return figures(chosen, count, counts, wait, cluster.shortcomings())
    finally:
        cluster.end()


def wait_of(reports):
    """Milliseconds from the time when a message was due to its 250: the mean of the nodes' p50, and their greatest p99."""
    if any(not report["complete"] or report["messages"]["accepted"] == 0 for report in reports):
        return {"failed": [report["messages"] for report in reports]}
    waits = [report["latency_us"] for report in reports]
    return {"p50": sum(one["p50"] for one in waits) / len(waits) / 1000, "p99": max(one["p99"] for one in waits) / 1000}


def figures(chosen, count, counts, wait, shortcomings):
    accepted = counts.total("messages", "accepted")
    connections = {key: counts.total("connections", key) for key in ("greeted", "failed", "refused")}
    seconds = max(report["seconds"] for report in counts.reports)
    nodes, engines = counts.used_by("node-"), counts.used_by("engine-")
    load = counts.used_by("storm-", "haproxy")
    share = {number: counts.used_by(f"node-{number}", f"engine-{number}") for number in range(1, count + 1)}
    # Other programs of the machine; a tick is 10 ms, so a small figure says nothing.
    others = max(0.0, counts.machine - nodes - engines - load) / counts.took
    found = {
        "nodes": count,
        "accepted": accepted,
        "bytes": counts.total("bytes"),
        "seconds": seconds,
        "rate": accepted / seconds,
        "connections": connections,
        "not_accepted": {key: counts.total("messages", key) for key in ("failed", "refused", "unanswered")},
        "errors": [error for report in counts.reports for error in report["errors"]],
        "node_cpu_seconds": nodes,
        "engine_cpu_seconds": engines,
        "share_used": {number: used / (counts.took * chosen.quota / 100) for number, used in share.items()},
        "share_waited_seconds": counts.waited,
        "load_core_busy": load / counts.took,
        "balancer_cpu_seconds": counts.used_by("haproxy"),
        "other_programs": others,
        "written": counts.written,
        "segments_were_made": counts.grew,
        "wait_ms": wait,
        "wait_at_full_load_us": [report["latency_us"] for report in counts.reports],
    }
    if accepted:
        found["node_cpu_us"] = 1e6 * nodes / accepted
        found["engine_cpu_us"] = 1e6 * engines / accepted
        found["per_cpu_second"] = accepted / (nodes + engines)
        found["written_per_byte"] = counts.written / found["bytes"]
    offered = sum(connections.values())
    found["connect_errors"] = (connections["failed"] + connections["refused"]) / offered if offered else 1.0
    found["void"] = reasons(chosen, found, shortcomings)
    return found


def reasons(chosen, found, shortcomings):
    """Why a sample does not count."""
    void = list(shortcomings)
    if found["connect_errors"]:
        void.append(f"{100 * found['connect_errors']:.1f} % of the connections failed")
    if any(found["not_accepted"].values()):
        void.append(f"messages: {found['not_accepted']}, {found['errors'][:2]}")
    if found["load_core_busy"] >= BUSY_MAX:
        void.append(f"the core of the clients was busy for {100 * found['load_core_busy']:.0f} %")
    if (found["wait_ms"] or {}).get("failed"):
        void.append(f"at {chosen.rate} messages/s: {found['wait_ms']['failed']}")
    return void


def measure_all(chosen, work):
    """Samples by size and number of nodes; each round begins with another number."""
    samples = {(size, count): [] for size in chosen.sizes for count in chosen.nodes}
    for turn in range(chosen.rounds):
        for size in chosen.sizes:
            at = turn % len(chosen.nodes)
            for count in chosen.nodes[at:] + chosen.nodes[:at]:
                try:
                    one = sample(chosen, work, count, size, chosen.sessions)
                except RuntimeError as error:
                    one = {"nodes": count, "void": [str(error)]}
                samples[size, count].append(one)
                state = f"void: {'; '.join(one['void'])}" if one["void"] else "counts"
                tell(f"round {turn + 1}, {size}, {count} nodes: {one.get('rate', 0):.0f} messages/s, {state}")
    return samples


def twice(chosen, work):
    """The most nodes with twice the sessions, for each size."""
    found = {}
    for size in chosen.sizes:
        try:
            found[size] = sample(chosen, work, max(chosen.nodes), size, 2 * chosen.sessions, with_wait=False)
        except RuntimeError as error:
            found[size] = {"void": [str(error)]}
        tell(f"{size}, {max(chosen.nodes)} nodes, twice the sessions: {found[size].get('rate', 0):.0f} messages/s")
    return found


def main():
    chosen = options()
    if why := groups.missing() or network.missing():
        sys.exit(f"scaling: {why[1]}")
    chosen.engine = find_engine()
    if chosen.engine is None:
        sys.exit("scaling: nats-server 2.15.2 is missing; ./.ci/setup installs it where Go is")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    network.remove_left()
    groups.remove_left()
    os.sched_setaffinity(0, {groups.LOAD_CORE})
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{network.WORK}-{os.getpid()}-", dir=chosen.dir))
    try:
        samples = measure_all(chosen, work)
        more = twice(chosen, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report = scaling_report.summary(chosen, samples, more)
    print(scaling_report.balanced(chosen, report) if chosen.through else scaling_report.markdown(chosen, report))
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(int(any(not cell["rounds"] for cell in report["cells"])))


if __name__ == "__main__":
    main()
