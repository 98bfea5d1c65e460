#!/usr/bin/env python3
"""Runs a cluster of three nodes in network namespaces behind HAProxy under a storm, does it harm, and looks for lost mail.

    faults.py PROGRAM [--bench PROGRAM] [--seed N] [--only NAME]... [--short] [--list] [--selftest] [--rate N] [--keep]

PROGRAM is a mailrace, `--bench` names a mailrace-bench with its rigs, whose disks lose power; without it that beside PROGRAM.
The seed chooses nodes, times, sizes, and what survives a power cut. A line for each scenario has the acknowledged messages,
those lost, those that came twice and how many of these the log told of, the longest time without a 250, the time until the
mail of a dead node was adopted, and the load of the machine. `--selftest` tries the checker on histories with faults in them;
every run begins with it.

Exit status: 0 if all that could be tried went well, 1 otherwise; then the directory with histories and logs stays. What
cannot run here is named as skipped; it is a failure if MAILRACE_TESTS_NEED names what is missing."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import history as histories
import selftest
from checker import UNSTORED_SECONDS, Cut, Limits, judge
from members import CONNECTIONS, LIMITED, STORM_DOMAINS, Storm, World, find_engine
from network import GENERATOR, NODES, missing, until
from power import Missing
from rig_place import rig_place
from scenarios import ADOPTION_MAX, CONTROLS, FAULTS, FILES, IGNORED_FLUSHES, SHORT, cluster_of, names, schedule

# Domains that take nothing until a while behind the first fault, so that there is a queue when it comes.
LATE = {f"d{number}.rig.test": {"act": "later"} for number in range(STORM_DOMAINS - 4, STORM_DOMAINS + 1)}
LATE["d6.rig.test"] = {"act": "away"}
# The others take a moment for each message, so that transactions are under way; one hangs up now and then.
BUSY = {"*": {"slow": 0.05}, "d3.rig.test": {"act": "drop", "part": 0.1}}
# Longer than a node may deliver without its holder, and than an adoption takes.
HELD = {"d4.rig.test": {"hold": 22}, "d5.rig.test": {"hold": 18}}
# Checks that later arrivals may change.
LASTING = ("twice", "foreign", "lost", "body", "owners")
QUIET_SECONDS = 360
ADOPTED_SECONDS = 30


class Rig:
    """The cluster, and the scenario that runs on it."""

    def __init__(self, arguments, work, network, engine):
        self.arguments, self.work, self.network, self.engine = arguments, work, network, engine
        self.world, self.worlds = None, 0
        # Copies and disks of the present world (scenarios.cluster_of).
        self.cluster = None
        # The storms of the present world, by name: limits, the offset of its first arrivals, and the dead node.
        self.past = {}
        self.choose = random.Random(arguments.seed)
        self.storm = None
        self.unexpected = []

    def tell(self, text):
        print(f"cluster: {text}", flush=True)

    def expect(self, what, said, wanted):
        if not said.startswith(wanted) or (not wanted and said):
            self.unexpected.append(("answer", f"{what}: {said!r} where {wanted!r} is due"))

    @contextlib.contextmanager
    def probe(self, process, *words):
        """A client beside the balancer (probe.py); yields what gives it a line and returns its answer."""
        process.launch(sys.executable, pathlib.Path(__file__).with_name("probe.py"), *words, stdin=subprocess.PIPE)
        self.world.others.append(process)
        heard = 0

        def ask(line):
            nonlocal heard
            if line is not None:
                process.process.stdin.write(line.encode() + b"\n")
                process.process.stdin.flush()
            until(lambda: process.says().count("\n") > heard or not process.runs(), 60)
            lines = process.says().splitlines()
            heard += 1
            return lines[heard - 1] if len(lines) >= heard else "no answer"

        try:
            yield ask
        finally:
            process.kill()

    def add_attempt(self, tag, node, reply, hashed):
        """Writes what a probe sent into the history of the storm."""
        result = "ok" if reply.startswith("250") else "refused" if reply[:1] in "45" else "unknown"
        event = {"event": "sent", "at": time.time(), "tag": tag, "node": node, "result": result, "hash": hashed}
        with open(self.storm.history, "a") as file:
            file.write(json.dumps(event) + "\n")

    def end_world(self):
        if self.world is not None:
            self.world.end()
        self.world = None

    def fresh_world(self, copies, disks):
        """Starts another cluster. Raises Missing if its disks cannot be had; then there is none."""
        self.end_world()
        self.worlds += 1
        self.past = {}
        place = self.work / f"world-{self.worlds}"
        place.mkdir()
        self.cluster = copies, disks
        self.world = World(self.network, place, self.arguments.program, self.engine, copies)
        if disks != FILES:
            self.give_power_disks(disks)
        elif not self.arguments.short:
            try:
                self.world.mount(2, "spool", 256)
                self.world.mount(3, "store", 256)
            except RuntimeError as error:
                self.tell(f"skipped: spool-full and store-full, because there is no small file system: {error}")
        began = time.monotonic()
        self.world.start()
        # New nodes write copies in the newest format when they have seen each other for half a minute.
        if not self.arguments.short and not until(self.world.writes_newest, 60, 0.5):
            raise RuntimeError("copies are not written in the newest format")
        self.tell(f"three nodes are up after {time.monotonic() - began:.0f} s, in {place}")

    def give_power_disks(self, disks):
        try:
            self.world.keep_on_power_disks(self.arguments.bench, disks == IGNORED_FLUSHES)
        except (Missing, RuntimeError):
            self.end_world()
            raise

    def scenario(self, name):
        """Runs a scenario. Returns whether all went well."""
        if self.world is None or self.cluster != cluster_of(name) or name in CONTROLS:
            try:
                self.fresh_world(*cluster_of(name))
            except Missing as missing:
                what, why = missing.args
                print(f"cluster: skipped: {name}: {why}", flush=True)
                return not is_needed(what)
        if FAULTS.get(name) and FAULTS[name].only and len(self.world.mounts) < 2:
            self.tell(f"skipped: {name}")
            return True
        self.choose = random.Random(f"{self.arguments.seed} {name}")
        plan = schedule(name, self.choose)
        self.unexpected = []
        self.storm = Storm(self.network, self.world.work, name)
        self.world.others.append(self.storm)
        arrivals = self.world.sink.history.stat().st_size
        log_sizes = {number: node.log_size() for number, node in self.world.nodes.items()}
        self.world.sink.behave({**BUSY, **LATE})
        seconds = max(at + FAULTS[fault].storm for at, fault, _ in plan) + 4
        limits, stopped = self.run_faults(name, plan, seconds)
        quiet = self.wait_for_quiet(name)
        self.past[name] = limits, arrivals, stopped
        verdict = self.judge(name)
        around = self.unexpected + self.servers_problems(log_sizes) + [("quiet", text) for text in quiet]
        if name in CONTROLS:
            # Lost mail shows nothing where the cluster did not come back and hand out the rest.
            around = [] if verdict.lost else [("control", CONTROLS[name])]
            around, verdict.problems = around + [("quiet", text) for text in quiet], []
            self.past = {}
        verdict.problems = around + verdict.problems
        self.report(name, verdict)
        return not verdict.problems

    def run_faults(self, name, plan, seconds):
        """Does what is planned while the storm blows. Returns the limits of the scenario, and the node that ended."""
        single = len(plan) == 1
        limits = Limits(connections=CONNECTIONS, connections_of={"d1.rig.test": LIMITED}, nodes=len(NODES))
        limits.gap = FAULTS[plan[0][1]].gap if single else None
        limits.duplicates = 0
        stopped = None
        began = time.monotonic()
        self.storm.start(self.arguments.seed, self.arguments.rate, seconds)
        due = [(at, "apply", fault, number) for at, fault, number in plan]
        held = HELD if single and FAULTS[plan[0][1]].adopts else {}
        first = min(at for at, _, _ in plan)
        moods = [(first - 1.5, {**BUSY, **LATE, **held}), (first + 3, {**BUSY, **held})]
        cuts = {}
        while due or moods:
            now = time.monotonic() - began
            if moods and now >= moods[0][0]:
                self.world.sink.behave(moods.pop(0)[1])
            due.sort(key=lambda one: one[0])
            if not due or due[0][0] > now:
                time.sleep(0.05)
                continue
            _, what, key, number = due.pop(0)
            fault = FAULTS[key]
            if what == "apply":
                self.tell(f"{name}: at {now:.1f} s: {key}, node {number}")
                at = time.time()
                if not fault.planned:
                    limits.fault_at = limits.fault_at or at
                    limits.duplicates += int(UNSTORED_SECONDS * self.arguments.rate) + 40
                self.fault = f"{key} {number}"
                hit = fault.apply(self, number) or [number]
                if fault.adopts and single:
                    stopped, limits.adopted = (f"n{number}", time.time()), ADOPTED_SECONDS
                if fault.holds_packets:
                    limits.late_packets.append(f"n{number}")
                if fault.cuts_transactions:
                    cuts[key] = [Cut(f"n{one}", at - 1) for one in hit]
                    limits.uncertain += cuts[key]
                due.append((time.monotonic() - began + fault.lasts, "heal", key, number))
            elif fault.adopts and single and self.adoption_waits(number, now, plan[0][0]):
                due.append((now + 0.5, "heal", key, number))
            else:
                self.tell(f"{name}: at {now:.1f} s: {key} is healed")
                self.fault = f"{key} {number}"
                fault.heal(self, number)
                for cut in cuts.get(key, []):
                    cut.until = time.time() + 1
        return limits, stopped

    def adoption_waits(self, number, now, fault_at):
        """Whether mail of a node that is gone is still to be adopted, or was only now."""
        if now > fault_at + ADOPTION_MAX:
            return False
        statuses = [node.status() for other, node in self.world.nodes.items() if other != number]
        adopted = sum(status.get("adopted", 0) for status in statuses)
        busy = any(status.get("adoptions") for status in statuses)
        goes_on, self.adopted_before = adopted != getattr(self, "adopted_before", None), adopted
        return busy or goes_on or adopted == 0 or now < fault_at + 25

    def wait_for_quiet(self, name):
        """Waits until all mail has come and nothing is left. Returns what is left."""
        if not until(lambda: not self.storm.runs(), 300):
            return [f"the storm does not end: {self.storm.says()[-300:]}"]
        if "Traceback" in self.storm.says():
            return [f"the storm failed: {self.storm.says()[-600:]}"]
        self.world.sink.behave({})
        began = time.monotonic()
        if not until(self.world.is_whole, QUIET_SECONDS, 0.5):
            return self.world.shortcomings()
        if not until(self.world.is_quiet, max(60, QUIET_SECONDS + began - time.monotonic()), 0.5):
            return self.world.leftovers()
        return []

    def judge(self, name, over_all=False):
        limits, offset, stopped = self.past[name]
        storm = histories.lines_of(self.storm_history(name))
        with open(self.world.sink.history) as file:
            file.seek(0 if over_all else offset)
            sink = [json.loads(line) for line in file if line.endswith("\n")]
        logs = {f"n{number}": node.log() for number, node in self.world.nodes.items()}
        peers = {address: f"n{number}" for number, address in NODES.items()}
        return judge(histories.read(name, set(self.past), storm, sink, logs, peers), limits, stopped)

    def storm_history(self, name):
        return self.world.work / f"{name}.storm"

    def servers_problems(self, log_sizes):
        """A server that ended by itself or panicked, and connections whose client is not the one that HAProxy named."""
        found = []
        for number, node in self.world.nodes.items():
            if "panicked" in node.says():
                found.append(("panic", f"node {number}: {node.place / 'output'}"))
            if not node.runs():
                found.append(("ended", f"node {number}: status {node.process.returncode}, {node.says()[-300:]}"))
            accepted = [one for one in node.log(log_sizes[number]) if one["event"] == "accepted" and one["from"] != "<>"]
            wrong = {one.get("client_ip") for one in accepted} - {GENERATOR}
            if wrong:
                found.append(("proxy", f"node {number} took mail of {wrong}, and HAProxy passed on {GENERATOR} alone"))
        return found

    def report(self, name, verdict):
        adopted = "-" if verdict.adopted_in is None else f"{verdict.adopted_in:.0f} s"
        words = f"{verdict.messages} messages, lost {verdict.lost}, twice {verdict.twice}/{verdict.logged} logged, "
        words += f"longest gap {verdict.gap:.1f} s, adopted in {adopted}, load {os.getloadavg()[0]:.1f}"
        print(f"cluster: {name}: {words}: {'FAIL' if verdict.problems else 'PASS'}", flush=True)
        for check, text in verdict.problems[:12]:
            print(f"    {check}: {text}", flush=True)
        if len(verdict.problems) > 12:
            print(f"    and {len(verdict.problems) - 12} more", flush=True)

    def look_back(self):
        """Judges all scenarios again: something may have come since."""
        good = True
        for name in self.past:
            problems = [one for one in self.judge(name, over_all=True).problems if one[0] in LASTING]
            if problems:
                good = False
                print(f"cluster: {name}, at the end of all: FAIL", flush=True)
                for check, text in problems[:12]:
                    print(f"    {check}: {text}", flush=True)
        return good


def is_needed(name):
    """Whether this was to be here."""
    return name in [one.strip() for one in os.environ.get("MAILRACE_TESTS_NEED", "").split(",")]


def skip(name, why):
    """Says that nothing was tried. A failure where this was to be here."""
    print(f"cluster: skipped: {name}: {why}", flush=True)
    sys.exit(int(is_needed(name)))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--bench", help="a mailrace-bench with its rigs; without it the one beside PROGRAM")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=names(), help="this scenario; may be given several times")
    parser.add_argument("--short", action="store_true", help=f"only {', '.join(SHORT)}")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    parser.add_argument("--selftest", action="store_true", help="only try the checker")
    parser.add_argument("--rate", type=float, default=60, help="messages a second")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    return parser.parse_args()


def run_all(rig, chosen):
    good = True
    for name in chosen:
        if rig.world is not None and rig.cluster != cluster_of(name):
            good = rig.look_back() and good
        try:
            went_well = rig.scenario(name)
        except Exception as error:  # The other scenarios go on.
            print(f"cluster: {name}: FAIL\n    rig: {type(error).__name__}: {error}", flush=True)
            went_well = False
        if not went_well:
            good = False
            rig.network.heal_all()
            rig.end_world()
    return (rig.world is None or rig.look_back()) and good


def main():
    arguments = options()
    if arguments.list:
        print("\n".join(names()))
        return
    if not selftest.passes():
        sys.exit("cluster: the checker does not see what it has to see")
    if arguments.selftest:
        return
    if not arguments.program:
        sys.exit(__doc__)
    arguments.program = str(pathlib.Path(arguments.program).resolve())
    beside = pathlib.Path(arguments.program).with_name("mailrace-bench")
    arguments.bench = str(pathlib.Path(arguments.bench or beside).resolve())
    if why := missing():
        skip(*why)
    if (engine := find_engine()) is None:
        skip("nats-server", "nats-server 2.15.2 is missing; ./.ci/setup installs it where Go is")
    with rig_place((arguments.keep, f"cluster: seed {arguments.seed}, histories and logs are in")) as place:
        rig = Rig(arguments, place.work, place.network, engine)
        place.ends.append(rig.end_world)
        place.good = run_all(rig, arguments.only or (SHORT if arguments.short else names()))
    sys.exit(int(not place.good))


if __name__ == "__main__":
    main()
