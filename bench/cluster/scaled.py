"""One cluster for a measurement: its nodes, engines and clients on loopback in a namespace, each in its control groups."""

import json
import os
import pathlib
import shutil
import subprocess
import time

from groups import Groups, machine_seconds
from network import PREFIX, end_namespace, inside, run, until

SEGMENT_MIB = 16
BALANCER = "127.77.1.1"
CONFIG = """\
hostname = "n{number}.scale.test"

[server]
user = "root"

[spool]
path = "{place}/spool"
size_max = "{size_max}MiB"
free_min = "64MiB"
ready_bytes = "{ready}MiB"
segment_bytes = "{segment}MiB"

[log]
path = "{place}/log"

[control]
path = "{place}/control"

[submit]
directory = ""

[[listen]]
address = "{address}:2525"
{proxy}
[accept]
exempt = ["127.0.0.0/8"]
reverse_dns = false

[relay]
from = ["127.0.0.0/8"]

[delivery]
mode = "queue"
"""


def address_of(number):
    return f"127.77.0.{number}"


class Cluster:
    """`count` nodes; one is a server without [cluster], and two have an engine without mail beside them."""

    def __init__(self, options, work, count, through=None):
        self.options, self.work, self.count, self.through = options, work, count, through
        self.engines = [] if count == 1 else list(range(1, max(count, 3) + 1))
        self.namespace = f"{PREFIX}-{os.getpid()}-scale"
        self.processes = {}
        work.mkdir()
        self.groups = Groups()

    def nodes(self):
        return range(1, self.count + 1)

    def launch(self, name, words, cores="nodes", share=None):
        """Starts a program under a name, which its group of time has, too."""
        command = [*inside(self.namespace), "setpriv", "--pdeathsig", "KILL", "--"]
        command += [*self.groups.words(cores, name, share), *map(str, words)]
        with open(self.work / f"{name}.out", "ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "MAILRACE_CONFIG": "/dev/null"},
                process_group=0,
            )
        self.processes[name] = process
        return process

    def start(self):
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        for number in sorted({*self.nodes(), *self.engines}):
            self.make_files(number)
        for number in self.engines:
            words = [self.options.engine, "-c", self.work / f"n{number}" / "nats-server.conf"]
            self.launch(f"engine-{number}", words, share=number)
        self.fill_ahead()
        for number in self.nodes():
            config = self.work / f"n{number}" / "mailrace.toml"
            self.launch(f"node-{number}", [self.options.program, "serve", "--config", config], share=number)
        if self.through:
            self.start_balancer()
        if not until(self.is_whole, 120, 0.3):
            raise RuntimeError(f"{self.count} nodes do not come up: {self.outputs()}")
        if self.engines and not until(self.writes_newest, 60, 0.5):
            raise RuntimeError(f"copies are not written in the newest format: {self.outputs()}")

    def make_files(self, number):
        place, address = self.work / f"n{number}", address_of(number)
        place.mkdir()
        proxy = f'proxy_protocol = ["{BALANCER}/32"]\n' if self.through else ""
        # At most an eighth of a spool is filled ahead. The server that fills ends before the other one starts, which makes
        # no free segments: a sample would have the zeroes of those that it makes meanwhile.
        size_max = self.options.ready * 8
        words = {"number": number, "place": place, "address": address, "proxy": proxy, "size_max": size_max}
        words["segment"] = SEGMENT_MIB
        (place / "filling.toml").write_text(CONFIG.format(ready=self.options.ready, **words))
        text = CONFIG.format(ready=0, **words)
        config = place / "mailrace.toml"
        config.write_text(text)
        if not self.engines:
            return
        words = ["--config", config, "--node", number, "--listen", f"{address}:4222", "--directory", place, "--json"]
        words += ["--monitor", f"{address}:8222", "--store-dir", place / "store", "--store-size", "4GiB"]
        if number == 1:
            routes = [f"--route={address_of(other)}:6222" for other in self.engines if other != 1]
            done = run(self.options.program, "cluster", "init", "--name", "scale", *routes, *words)
        else:
            done = run(self.options.program, "cluster", "join", "--file", self.work / "n1" / "cluster.join", *words)
        config.write_text(text + "\n" + json.loads(done.stdout)["toml"])

    def start_balancer(self):
        servers = "".join(f"  server n{number} {address_of(number)}:2525 send-proxy-v2\n" for number in self.nodes())
        text = (
            "global\n  maxconn 8000\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 90s\n"
            "  timeout server 90s\n  retries 0\n"
            f"listen smtp\n  bind {BALANCER}:2525 backlog 4096\n  balance roundrobin\n  source {BALANCER}\n{servers}"
        )
        (self.work / "haproxy.cfg").write_text(text)
        self.launch("haproxy", ["haproxy", "-db", "-f", self.work / "haproxy.cfg"], cores="load")

    def outputs(self):
        texts = {path.name: path.read_text(errors="replace")[-300:] for path in self.work.glob("*.out")}
        return "; ".join(f"{name}: {text}" for name, text in texts.items() if text) + f" {self.shortcomings()}"

    def control(self, number, *words):
        words = [self.options.program, *words, "--control", str(self.work / f"n{number}" / "control")]
        try:
            return json.loads(subprocess.run(words, capture_output=True, text=True, timeout=20).stdout)
        except (ValueError, subprocess.TimeoutExpired):
            return {}

    def shortcomings(self):
        """What keeps the cluster from being whole, or mail from having its copies."""
        found = []
        for number in self.nodes():
            if not self.control(number, "status", "--json"):
                found.append(f"node {number} does not answer")
            elif self.engines:
                status = self.control(number, "cluster", "status", "--json")
                others = {one["node"] for one in status.get("nodes", [])} - {number}
                if status.get("state") != "member" or len(others) != self.count - 1:
                    found.append(f"node {number}: {status.get('state')}, sees {sorted(others)}")
                if status.get("unreplicated"):
                    found.append(f"node {number}: {status['unreplicated']} messages have no copy")
        return found

    def writes_newest(self):
        """Whether copies have the newest format, which new nodes write when they have seen each other for a while."""
        states = [self.control(number, "cluster", "status", "--json") for number in self.nodes()]
        return all(one.get("block_version") == one.get("block_version_newest") for one in states)

    def is_whole(self):
        return not self.shortcomings()

    def segments(self):
        """Segments of each spool. A segment is filled with zeroes when it is made, which is no cost of a message."""
        return {number: len(list((self.work / f"n{number}/spool").glob("*/seg-*"))) for number in self.nodes()}

    def fill_ahead(self):
        """Makes the free segments, so that none is filled with zeroes during a sample."""
        wanted = self.options.ready // SEGMENT_MIB
        for number in self.nodes():
            config = self.work / f"n{number}" / "filling.toml"
            self.launch(f"filler-{number}", [self.options.program, "serve", "--config", config], share=number)
        are_there = until(lambda: all(count >= wanted for count in self.segments().values()), 180, 0.3)
        for number in self.nodes():
            self.processes[f"filler-{number}"].terminate()
        for number in self.nodes():
            self.processes[f"filler-{number}"].wait(60)
        if not are_there:
            raise RuntimeError(f"free segments are not made: {self.segments()}, {wanted} are wanted; {self.outputs()}")

    def written(self):
        """Octets that nodes and engines have given to the disk."""
        total = 0
        for name, process in self.processes.items():
            if name.startswith(("node-", "engine-")):
                lines = pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines()
                total += int(dict(line.split(": ") for line in lines)["write_bytes"])
        return total

    def storm(self, size, seconds, sessions, rate=None):
        """A storm for each node at the same time, or one through the balancer. Returns their reports."""
        self.storms = getattr(self, "storms", 0) + 1
        places = [(number, f"{address_of(number)}:2525") for number in self.nodes()]
        if self.through:
            places, sessions = [(0, f"{BALANCER}:2525")], sessions * self.count
        waiting = []
        for number, to in places:
            words = [self.options.generator, "storm", "--to", to, "--size", size, "--seconds", seconds, "--json"]
            words += ["-n", 100_000_000 if rate is None else int(rate * seconds), "--sessions", sessions]
            words += ["--run", f"{self.storms}-{number}", "--pipelining"]
            words += ["--rate", rate] if rate else []
            words += ["--new-connection"] if self.through else []
            words += ["--own-text"] if self.options.own_text else []
            name = f"storm-{self.storms}-{number}"
            waiting.append((name, self.launch(name, words, cores="load")))
        reports = []
        for name, process in waiting:
            try:
                process.wait(seconds + 90)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            text = (self.work / f"{name}.out").read_text(errors="replace")
            try:
                reports.append(json.loads(text))
            except ValueError:
                raise RuntimeError(f"a storm has no report: {text[-300:]}") from None
        return reports

    def measure(self, size, seconds, sessions):
        """A storm with everything that is counted around it."""
        before = self.groups.seconds(), self.groups.waited(), self.written(), machine_seconds(), time.monotonic()
        segments = self.segments()
        reports = self.storm(size, seconds, sessions)
        took = time.monotonic() - before[4]
        after = self.groups.seconds(), self.groups.waited(), self.written(), machine_seconds()
        used = {name: value - before[0].get(name, 0) for name, value in after[0].items()}
        waited = {name: value - before[1].get(name, 0) for name, value in after[1].items()}
        return Counts(reports, took, used, waited, after[2] - before[2], after[3] - before[3], self.segments() != segments)

    def end(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.groups.end()
        end_namespace(self.namespace)
        shutil.rmtree(self.work, ignore_errors=True)


class Counts:
    """What a storm and the machine told."""

    def __init__(self, reports, took, used, waited, written, machine, grew):
        self.reports, self.took, self.used, self.waited = reports, took, used, waited
        self.written, self.machine, self.grew = written, machine, grew

    def total(self, *path):
        values = []
        for report in self.reports:
            for key in path:
                report = report[key]
            values.append(report)
        return sum(values)

    def used_by(self, *prefixes):
        return sum(value for name, value in self.used.items() if name.startswith(prefixes))
