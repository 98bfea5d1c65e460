"""The programs of the rig: mailrace and nats-server in each node's namespace, HAProxy, the sink and storms."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import power
from network import BALANCER, DOMAINS, GENERATOR, NODES, inside, run, sink_address, until

HERE = pathlib.Path(__file__).resolve().parent
# Domains that the storm writes to; behind them those that refuse, and that of the senders.
STORM_DOMAINS = 24
SPECIAL = {"from.rig.test": 28, "refused.rig.test": 29}
# Connections of one node to one domain, and to d1, which has a limit of its own.
CONNECTIONS = 5
LIMITED = 2
TOKEN = "0123456789abcdef0123456789abcdef"

CONFIG = """\
hostname = "n{number}.rig.test"

[server]
user = "root"
shutdown_grace = "1m"

[spool]
path = "{place}/spool/data"
size_max = "1GiB"
free_min = "8MiB"
ready_bytes = 0
segment_bytes = "4MiB"

[log]
path = "{place}/log"
format = "json"
level = 10

[control]
path = "{place}/control"

[submit]
directory = ""

[http]
address = "{address}:8025"

[[http.token]]
name = "rig"
file = "{place}/token"
role = "view"

[[listen]]
address = "{address}:25"
proxy_protocol = ["{balancer}/32"]

[accept]
exempt = ["10.77.0.0/16"]
reverse_dns = false

[relay]
from = ["{generator}/32"]

[route]
tls = "none"

[delivery]
connections_per_destination = {connections}
retry_first = "2s"
retry_max = "8s"
fast_command_time = "1m"

[[destination]]
match = ["d1.rig.test"]
connections = {limited}
"""


def find_engine():
    """The nats-server of the path, or that of the Go tool; None if there is none."""
    places = [shutil.which("nats-server"), pathlib.Path.home() / "go/bin/nats-server"]
    for place in places:
        if place and run(place, "--version", check=False).stdout.strip() >= "nats-server: v2.15.2":
            return str(place)
    return None


class Process:
    """A program in a namespace, which ends with the rig whatever ends that."""

    def __init__(self, network, role, output):
        self.network, self.role, self.output = network, role, output
        self.process = None

    def launch(self, *words, stdin=subprocess.DEVNULL):
        command = [*inside(self.network.names[self.role]), "setpriv", "--pdeathsig", "KILL", "--", *map(str, words)]
        environment = {**os.environ, "MAILRACE_CONFIG": "/dev/null"}
        # A group of its own: a SIGINT of the terminal is for the rig alone.
        with open(self.output, "ab") as out:
            self.process = subprocess.Popen(
                command, stdin=stdin, stdout=out, stderr=out, env=environment, process_group=0
            )

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        if self.runs():
            self.process.send_signal(number)

    def kill(self):
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def says(self):
        return pathlib.Path(self.output).read_text(errors="replace")


def remove_within(directory):
    for path in directory.iterdir():
        if path.name != "lost+found":
            shutil.rmtree(path)


class Engine(Process):
    """The nats-server of a node."""

    def __init__(self, network, number, program, place):
        super().__init__(network, f"n{number}", place / "engine.out")
        self.number, self.program, self.place = number, program, place

    def start(self):
        self.launch(self.program, "-c", self.place / "nats-server.conf")

    def empty(self):
        """Removes its data, as a new disk would."""
        remove_within(self.place / "store")


class Node(Process):
    """A mailrace."""

    def __init__(self, network, number, program, place):
        super().__init__(network, f"n{number}", place / "output")
        self.number, self.program, self.place = number, program, place

    def start(self):
        self.launch(self.program, "serve", "--config", self.place / "mailrace.toml")

    def empty(self):
        """Removes its spool, as a new disk would."""
        remove_within(self.place / "spool")

    def ask(self, *words, seconds=30):
        """What a command about the running server prints; None if it fails or takes too long."""
        words = [self.program, *words, "--control", str(self.place / "control")]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout

    def status(self):
        """The answer of `mailrace cluster status --json`; empty if there is none."""
        try:
            return json.loads(self.ask("cluster", "status", "--json") or "{}")
        except ValueError:
            return {}

    def queued(self):
        """Messages in its queue; None if it does not answer."""
        try:
            return json.loads(self.ask("status", "--json") or "")["queue"]["messages"]
        except (ValueError, KeyError):
            return None

    def log(self, since=0):
        """The events of its log behind this octet."""
        try:
            with open(self.place / "log", "rb") as file:
                file.seek(since)
                lines = file.read().splitlines()
        except OSError:
            return []
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except ValueError:
                pass  # The last one of a killed process.
        return events

    def log_size(self):
        return (self.place / "log").stat().st_size


class Balancer(Process):
    """HAProxy: PROXY protocol 2 to two nodes, 1 to the third, and a look at `/healthz/ready` of each."""

    def __init__(self, network, work):
        super().__init__(network, "lb", work / "haproxy.out")
        self.work = work

    def start(self):
        servers = ""
        for number, address in NODES.items():
            version = "send-proxy" if number == 3 else "send-proxy-v2"
            servers += f"  server n{number} {address}:25 {version} check port 8025 inter 1s fall 2 rise 2\n"
        text = (
            f"global\n  stats socket {self.work}/haproxy.sock mode 600 level admin\n  maxconn 2000\n"
            "defaults\n  mode tcp\n  timeout connect 2s\n  timeout check 3s\n  timeout client 90s\n  timeout server 90s\n"
            "  retries 3\n  option redispatch 1\n"
            f"listen smtp\n  bind {BALANCER}:25\n  balance roundrobin\n  option httpchk GET /healthz/ready\n{servers}"
        )
        (self.work / "haproxy.cfg").write_text(text)
        self.launch("haproxy", "-db", "-f", self.work / "haproxy.cfg")

    def sees(self):
        """The state of each node as its health check sees it, as in {"n1": "UP"}."""
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(5)
                sock.connect(f"{self.work}/haproxy.sock")
                sock.sendall(b"show stat\n")
                text = b"".join(iter(lambda: sock.recv(65536), b"")).decode()
        except OSError:
            return {}
        rows = [line.split(",") for line in text.splitlines() if line.startswith("smtp,n")]
        return {row[1]: row[17].split(" ")[0] for row in rows}

    def log_of_checks(self):
        """The changes of nodes as HAProxy tells of them, with the answer that made each."""
        return [line for line in self.says().splitlines() if "Server smtp/" in line]


class Sink(Process):
    """The receiver of all domains."""

    def __init__(self, network, work):
        super().__init__(network, "sink", work / "sink.out")
        self.history, self.script = work / "sink.history", work / "sink.script"

    def start(self):
        self.behave({})
        addresses = [sink_address(number) for number in range(1, DOMAINS + 1)]
        self.launch(sys.executable, HERE / "sink.py", self.history, self.script, *addresses)
        if not until(lambda: "ready" in self.says(), 60):
            raise RuntimeError(f"the sink does not start: {self.says()}")

    def behave(self, rules):
        """How it treats domains from now on (sink.py)."""
        rules = {"refused.rig.test": {"act": "refuse"}, **rules}
        draft = self.script.with_suffix(".new")
        draft.write_text(json.dumps(rules))
        draft.rename(self.script)


class Storm(Process):
    """A storm with a history of its own."""

    def __init__(self, network, work, name):
        super().__init__(network, "gen", work / f"{name}.storm.out")
        self.name, self.history = name, work / f"{name}.storm"

    def start(self, seed, rate, seconds):
        words = [self.history, self.name, seed, BALANCER, rate, seconds, STORM_DOMAINS]
        self.launch(sys.executable, HERE / "storm.py", *words)


class World:
    """A whole cluster with all that is around it."""

    def __init__(self, network, work, program, engine_program, copies=2):
        self.copies = copies
        self.network, self.work, self.program = network, work, program
        self.nodes, self.engines, self.mounts = {}, {}, []
        for number in NODES:
            place = work / f"n{number}"
            place.mkdir()
            for name in ("store", "spool"):
                (place / name).mkdir()
            self.nodes[number] = Node(network, number, program, place)
            self.engines[number] = Engine(network, number, engine_program, place)
        self.balancer, self.sink = Balancer(network, work), Sink(network, work)
        self.others = []
        self.disks = None

    def keep_on_power_disks(self, program, ignore_flushes):
        """Gives spools and stores disks whose power can be cut (power.py). Raises Missing where there are none."""
        places = [self.work / f"n{number}" / name for number in NODES for name in ("spool", "store")]
        self.disks = power.PowerDisks(program, places, self.work / "power-disk.out", ignore_flushes)

    def mount(self, number, name, mebibytes):
        """Gives a directory of a node a small file system of its own."""
        place, image = self.work / f"n{number}" / name, self.work / f"n{number}-{name}.image"
        with open(image, "wb") as file:
            file.truncate(mebibytes << 20)
        run("mkfs.ext4", "-q", "-m", "0", "-F", image)
        run("mount", "-o", "loop", image, place)
        self.mounts.append(place)

    def make_files(self):
        """The files of `mailrace cluster init` and `join`, and a configuration around them."""
        for number, address in NODES.items():
            place = self.work / f"n{number}"
            (place / "token").write_text(TOKEN + "\n")
            (place / "token").chmod(0o600)
            overrides = {f"d{one}.rig.test": one for one in range(1, STORM_DOMAINS + 1)} | SPECIAL
            text = CONFIG.format(
                number=number,
                place=place,
                address=address,
                balancer=BALANCER,
                generator=GENERATOR,
                connections=CONNECTIONS,
                limited=LIMITED,
            )
            for domain, at in overrides.items():
                text += f'\n[[dns.override]]\ndomain = "{domain}"\naddress = ["{sink_address(at)}"]\n'
            config = place / "mailrace.toml"
            config.write_text(text)
            words = ["--config", config, "--node", number, "--listen", f"{address}:4222", "--directory", place, "--json"]
            words += ["--store-dir", place / "store", "--store-size", "400MiB"]
            if number == 1:
                routes = [f"--route={other}:6222" for other in NODES.values() if other != address]
                done = run(self.program, "cluster", "init", "--name", "rig", *routes, *words)
            else:
                done = run(self.program, "cluster", "join", "--file", self.work / "n1" / "cluster.join", *words)
            more = f'copies = {self.copies}\ndrain_grace = "10s"\n'
            config.write_text(text + "\n" + json.loads(done.stdout)["toml"] + more)

    def start(self):
        self.make_files()
        self.sink.start()
        for engine in self.engines.values():
            engine.start()
        for node in self.nodes.values():
            node.start()
        self.balancer.start()
        if not until(self.is_whole, 300, 0.5):
            raise RuntimeError(f"the cluster does not come up: {self.shortcomings()}")
        for number in NODES:
            words = ["cluster", "verify", "--config", self.work / f"n{number}" / "mailrace.toml"]
            done = run(*inside(self.network.names[f"n{number}"]), self.program, *words, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"mailrace cluster verify at node {number}: {done.stdout}{done.stderr}")

    def shortcomings(self):
        """What keeps the cluster from being whole; empty if nothing does."""
        found = []
        for number, node in self.nodes.items():
            status = node.status()
            seen = sorted(one["node"] for one in status.get("nodes", []) if one["node"] != number and not one.get("draining"))
            if status.get("state") != "member" or len(seen) != len(NODES) - 1:
                why = status.get("refusal") or status.get("engine_problem") or ""
                found.append(f"node {number}: {status.get('state', 'no answer')}, sees {seen} {why}".strip())
        seen = self.balancer.sees()
        found += [f"HAProxy sees n{number} {seen.get(f'n{number}')}" for number in NODES if seen.get(f"n{number}") != "UP"]
        return found

    def is_whole(self):
        return not self.shortcomings()

    def writes_newest(self):
        """Whether all nodes write copies in the newest format that they read."""
        states = [node.status() for node in self.nodes.values()]
        return all(one and one["block_version"] == one["block_version_newest"] for one in states)

    def is_quiet(self):
        """No mail is left anywhere, and every copy is trimmed."""
        return not self.leftovers()

    def leftovers(self):
        found = []
        for number, node in self.nodes.items():
            status = node.status()
            if status.get("state") != "member":
                found.append(f"node {number}: {status.get('state', 'no answer')}")
                continue
            for key in ("messages", "unreplicated", "waiting_for_stream", "adopted_waiting"):
                if status.get(key):
                    found.append(f"node {number}: {key}={status[key]}")
            found += [f"node {number}: adoption of {one['owner']}: {one['step']}" for one in status.get("adoptions", [])]
            found += [f"node {number}: hostage of {one['owner']}: {one['why']}" for one in status.get("hostages", [])]
            for stream in status.get("streams", []):
                if stream["messages"] or stream["unstored_outcomes"]:
                    found.append(f"node {number}: stream at {stream['holder']}: {stream}")
            if queued := node.queued():
                found.append(f"node {number}: queue={queued}")
        return found

    def end(self):
        for process in [*self.others, *self.nodes.values(), *self.engines.values(), self.balancer, self.sink]:
            process.kill()
        for place in self.mounts:
            until(lambda: run("umount", place, check=False).returncode == 0, 5)
        if self.disks is not None:
            self.disks.end()
