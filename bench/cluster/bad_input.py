#!/usr/bin/env python3
"""Gives nodes of a cluster what they must refuse or live with, and looks whether they say so and keep the mail.

    bad_input.py PROGRAM [--only NAME]... [--old-engine NATS_SERVER] [--list] [--keep]

PROGRAM is a mailrace. Nodes 1 and 2 are well all the time; node 3 gets the bad engine, setting, block or clock
(bad_cases.py). In each case `mailrace cluster status`, `verify` and the log must name the object, the value and the next
step, listeners must answer as documented, and a message with a 250 must arrive once the cause is gone. `--old-engine` is
a nats-server older than 2.15.2; without it a program that only says so stands in for it.

A line for each case; exit status 1 if one fails. What the machine lacks is named as skipped, and fails if
MAILRACE_TESTS_NEED names it."""

import argparse
import json
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
import bad_cases
import history as histories
import selftest
from checker import Limits, judge
from members import find_engine
from network import NODES, inside, missing, run, until
from open_world import ACCEPT_LOCAL, OpenWorld
from rig_place import rig_place

# A node looks at its engine each second, and at the others each two; an entry counts for 15 s.
SAID_SECONDS = 45
QUIET_SECONDS = 150


class Bench:
    """The cluster, and the case that is tried on it."""

    def __init__(self, arguments, work, network, engine):
        self.arguments, self.work, self.network, self.engine = arguments, work, network, engine
        self.world, self.worlds, self.problems, self.tries = None, 0, [], 0

    def tell(self, text):
        print(f"bad input: {text}", flush=True)

    def fresh_world(self):
        self.worlds += 1
        place = self.work / f"world-{self.worlds}"
        place.mkdir()
        self.world = OpenWorld(self.network, place, self.arguments.program, self.engine)
        self.world.start()

    def end_world(self):
        if self.world is not None:
            self.world.end()
        self.world = None

    def problem(self, text):
        self.problems.append(text)

    def send(self, number, port, count, wanted, domain="d2.rig.test"):
        """Sends messages; each answer must begin with `wanted` (empty: any). Returns the tags of those with a 250."""
        sent = self.world.send(self.name, self.tries * 1000 + 1, count, number, port, domain)
        self.tries += 1
        wrong = sorted({answer for _, answer, _ in sent if not answer.startswith(wanted)})
        if wrong:
            kind = "accept_local" if port == ACCEPT_LOCAL else "tempfail"
            self.problem(f"node {number}, listener {kind}: {wrong[0]!r} where {wanted} is due, {len(wrong)} such answers")
        return [tag for tag, answer, _ in sent if answer.startswith("250")]

    def arrive(self, tags, seconds, what):
        """These messages must arrive now."""
        def came():
            return {event.get("tag") for event in histories.lines_of(self.world.sink.history) if event["event"] == "delivered"}

        if not until(lambda: set(tags) <= came(), seconds, 0.3):
            self.problem(f"{what}: {len(set(tags) - came())} of {len(tags)} do not arrive within {seconds} s")
            for number, node in self.world.nodes.items():
                self.problem(f"node {number} then: {node.ask('cluster', 'status')}")

    def says(self, where, read, parts, seconds=SAID_SECONDS):
        """All parts must be in a text, which is read until they are."""
        said = ""

        def has_all():
            nonlocal said
            said = read() or ""
            return all(part in said for part in parts)

        if not until(has_all, seconds, 0.5):
            lacks = [part for part in parts if part not in said]
            self.problem(f"{where} does not say {lacks}: {said.strip()[-500:]!r}")

    def status_says(self, number, *parts):
        self.says(f"cluster status of node {number}", lambda: self.world.nodes[number].ask("cluster", "status"), parts)

    def verify_says(self, number, status, *parts, config=None):
        """`mailrace cluster verify` at a node ends with this status and has these parts in one line."""
        config = config or self.world.work / f"n{number}" / "mailrace.toml"
        words = [self.arguments.program, "cluster", "verify", "--config", config]
        done = run(*inside(self.network.names[f"n{number}"]), *words, check=False)
        if done.returncode != status:
            said = f"exit status {done.returncode}, {status} is due: {done.stdout}{done.stderr}"
            self.problem(f"cluster verify of node {number}: {said}")
        if not any(all(part in line for part in parts) for line in done.stdout.splitlines()):
            self.problem(f"cluster verify of node {number} has no line with {list(parts)}: {done.stdout}{done.stderr}")

    def log_says(self, number, *parts, seconds=15):
        """One line of its log has these parts."""
        since = self.log_sizes.get(number, 0)

        def line():
            texts = (json.dumps(event, ensure_ascii=False) for event in self.world.nodes[number].log(since))
            found = [text for text in (one.replace('\\"', '"') for one in texts) if all(part in text for part in parts)]
            return found[0] if found else ""

        self.says(f"the log of node {number} (one line)", line, parts, seconds)

    def case(self, name, tried):
        """Tries a case and puts everything back. Returns whether all went well."""
        self.name, self.problems, self.tries = name, [], 0
        if self.world is None:
            self.fresh_world()
        self.world.sink.behave({})
        self.log_sizes = {number: node.log_size() for number, node in self.world.nodes.items()}
        arrivals, began = self.world.sink.history.stat().st_size, time.time()
        kept = {path: path.read_bytes() for number in NODES for path in self.files(number)}
        try:
            skipped = tried(self)
        except Exception as error:  # The other cases go on.
            skipped = None
            self.problem(f"rig: {type(error).__name__}: {error}")
        if skipped:
            return skip(name, *skipped)
        for path, content in kept.items():
            path.write_bytes(content)
        for number in NODES:
            self.put_back(number)
        self.world.sink.behave({})
        self.wait_for_quiet()
        figures = self.judge(arrivals, began)
        self.tell(f"{name}: {figures}, {time.time() - began:.0f} s: {'FAIL' if self.problems else 'PASS'}")
        for text in self.problems:
            print(f"    {text}", flush=True)
        return not self.problems

    def files(self, number):
        place = self.world.work / f"n{number}"
        return [place / "mailrace.toml", place / "nats-server.conf", place / "cluster.secret"]

    def put_back(self, number):
        """Starts what does not run. A case leaves stopped what it has started in another way."""
        for process in (self.world.engines[number], self.world.nodes[number]):
            if not process.runs():
                process.start()

    def wait_for_quiet(self):
        if not until(self.world.is_whole, QUIET_SECONDS, 0.5):
            self.problem(f"the cluster does not come back: {self.world.shortcomings()}")
        elif not until(self.world.is_quiet, QUIET_SECONDS, 0.5):
            self.problem(f"afterwards there is left: {self.world.leftovers()}")

    def judge(self, arrivals, began):
        """Looks for lost mail, and for mail that came twice without a line of an adoption."""
        history = self.world.work / f"{self.name}.messages"
        sent = histories.lines_of(history) if history.exists() else []
        with open(self.world.sink.history) as file:
            file.seek(arrivals)
            sink = [json.loads(line) for line in file if line.endswith("\n")]
        logs = {f"n{number}": node.log() for number, node in self.world.nodes.items()}
        peers = {address: f"n{number}" for number, address in NODES.items()}
        limits = Limits(gap=None, duplicates=len(sent), fault_at=began, connections=100)
        verdict = judge(histories.read(self.name, {self.name}, sent, sink, logs, peers), limits)
        self.problems += [f"{check}: {text}" for check, text in verdict.problems]
        for node in self.world.nodes.values():
            if "panicked" in node.says():
                self.problem(f"panicked: {node.place / 'output'}")
        return f"{verdict.messages} of {len(sent)} messages acknowledged, lost {verdict.lost}, twice {verdict.twice}"


def skip(name, program, why):
    """Says that a case was not tried. Returns whether that is no failure here."""
    needed = [one.strip() for one in os.environ.get("MAILRACE_TESTS_NEED", "").split(",")]
    print(f"bad input: skipped: {name}: {why}", flush=True)
    return program not in needed


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    cases = list(bad_cases.CASES)
    parser.add_argument("--only", action="append", choices=cases, help="this case; may be given several times")
    parser.add_argument("--old-engine", help="a nats-server older than 2.15.2")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    return parser.parse_args()


def run_all(bench, chosen):
    good = True
    for name in chosen:
        try:
            went_well = bench.case(name, bad_cases.CASES[name])
        except RuntimeError as error:
            bench.tell(f"{name}: FAIL\n    rig: {error}")
            went_well = False
        if not went_well:
            good = False
            bench.end_world()
    return good


def main():
    arguments = options()
    if arguments.list:
        print("\n".join(bad_cases.CASES))
        return
    if not arguments.program:
        sys.exit(__doc__)
    if not selftest.passes():
        sys.exit("bad input: the checker does not see what it has to see")
    arguments.program = str(pathlib.Path(arguments.program).resolve())
    if why := missing():
        sys.exit(int(not skip("all", *why)))
    if (engine := find_engine()) is None:
        why = "nats-server 2.15.2 is missing; ./.ci/setup installs it where Go is"
        sys.exit(int(not skip("all", "nats-server", why)))
    with rig_place((arguments.keep, "bad input: histories and logs are in")) as place:
        bench = Bench(arguments, place.work, place.network, engine)
        place.ends.append(bench.end_world)
        place.good = run_all(bench, arguments.only or list(bad_cases.CASES))
    sys.exit(int(not place.good))


if __name__ == "__main__":
    main()
