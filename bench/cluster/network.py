"""The network of the rig: namespaces on one bridge, and what is done to the wires between them.

Each participant has a namespace with one address of 10.77.0.0/16; the bridge has a namespace of its own, so nothing of it
touches the machine's network. Rules of nft drop packets, tbf slows a wire."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

# Programs of daemons, for callers without them in their path.
os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
PREFIX = "mailrace-rig"
# The directory of a rig is named by this and its process.
WORK = "mailrace-cluster"
NODES = {1: "10.77.0.1", 2: "10.77.0.2", 3: "10.77.0.3"}
BALANCER = "10.77.1.1"
GENERATOR = "10.77.2.1"
DOMAINS = 30


def sink_address(number):
    """The address of domain `number`."""
    return f"10.77.9.{number}"


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace")
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(word) for word in words)}: {(done.stderr or done.stdout).strip()}")
    return done


def missing():
    """Why there can be no namespaces here; None if there can."""
    if os.getuid() != 0:
        return "root", "only root can make namespaces"
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("nft", "nftables"), ("haproxy", "haproxy")):
        if not shutil.which(program):
            return program, f"{program} is missing; install {package}"
    name = f"{PREFIX}-{os.getpid()}-probe"
    made = run("ip", "netns", "add", name, check=False)
    if made.returncode != 0:
        return "namespaces", f"no network namespace can be made: {made.stderr.strip()}"
    try:
        wire = run("ip", "-n", name, "link", "add", "b0", "type", "bridge", check=False)
        if wire.returncode != 0:
            return "namespaces", f"no bridge can be made: {wire.stderr.strip()}"
        rule = run(*inside(name), "nft", "add", "table", "inet", "probe", check=False)
        if rule.returncode != 0:
            return "namespaces", f"nft cannot make a rule: {rule.stderr.strip()}"
    finally:
        run("ip", "netns", "del", name, check=False)
    return None


def inside(namespace):
    """The words that run a command in a namespace; it keeps the mounts of this process."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def remove_left():
    """Removes the namespaces and mounts of rigs that were killed themselves."""
    is_left = lambda pid: pid and not pathlib.Path(f"/proc/{pid[1]}").exists()
    for path in pathlib.Path("/run/netns").glob(f"{PREFIX}-*"):
        if is_left(re.match(rf"{PREFIX}-(\d+)-", path.name)):
            end_namespace(path.name)
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        place = line.split(" ")[1]
        if is_left(re.search(rf"/{WORK}-(\d+)-", place)):
            run("umount", place, check=False)


def end_namespace(name):
    """Kills what runs in a namespace that the rig made, and removes it."""
    for pid in run("ip", "netns", "pids", name, check=False).stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    run("ip", "netns", "del", name, check=False)


class Network:
    """The namespaces n1, n2, n3, lb, gen and sink, and the bridge br."""

    def __init__(self):
        self.names = {}
        # What is in force: by the name of the fault, for each participant the rules for what comes in there.
        self.rules = {}
        self.slowed = {}

    def make(self):
        bridge = self.add("br")
        run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", bridge, "link", "set", "br0", "up")
        for number, address in NODES.items():
            self.attach(f"n{number}", [address])
        self.attach("lb", [BALANCER])
        self.attach("gen", [GENERATOR])
        self.attach("sink", [sink_address(number) for number in range(1, DOMAINS + 1)])

    def add(self, role):
        name = f"{PREFIX}-{os.getpid()}-{role}"
        self.names[role] = name
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def attach(self, role, addresses):
        name, bridge = self.add(role), self.names["br"]
        run("ip", "-n", bridge, "link", "add", role, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", bridge, "link", "set", role, "master", "br0", "up")
        for address in addresses:
            run("ip", "-n", name, "address", "add", f"{address}/16", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")

    def end(self):
        for name in self.names.values():
            end_namespace(name)
        self.names = {}

    def drop(self, fault, rules):
        """Puts rules of nft in force; `rules`: for each participant a list."""
        self.rules[fault] = rules
        self.apply(rules)

    def apply(self, roles):
        """Gives participants the rules of all faults that are not healed."""
        for role in roles:
            lines = [line for rules in self.rules.values() for line in rules.get(role, [])]
            text = "table inet rig\ndelete table inet rig\n"
            if lines:
                text += "table inet rig {\nchain in {\ntype filter hook input priority 0;\n" + "\n".join(lines) + "\n}\n}\n"
            words = [*inside(self.names[role]), "nft", "-f", "-"]
            done = subprocess.run(words, input=text, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"nft: {done.stderr.strip()}")

    def heal(self, fault):
        """The wires are as if this fault had not been."""
        self.apply(self.rules.pop(fault, {}))
        if role := self.slowed.pop(fault, None):
            run(*inside(self.names[role]), "tc", "qdisc", "del", "dev", "eth0", "root", check=False)

    def heal_all(self):
        for fault in [*self.rules, *self.slowed]:
            self.heal(fault)

    def cut(self, fault, pairs, one_way=False):
        """Nothing arrives between the nodes of each pair; `one_way`: from the first at the second."""
        rules = {}
        for one, other in pairs:
            rules.setdefault(f"n{other}", []).append(f"ip saddr {NODES[one]} drop")
            if not one_way:
                rules.setdefault(f"n{one}", []).append(f"ip saddr {NODES[other]} drop")
        self.drop(fault, rules)

    def isolate(self, fault, number):
        """A node that nothing reaches; its own packets get no answer."""
        self.drop(fault, {f"n{number}": ['iifname "eth0" drop']})

    def lose(self, fault, number, percent):
        """A part of what comes in at a node is lost."""
        self.drop(fault, {f"n{number}": [f'iifname "eth0" numgen random mod 100 < {percent} drop']})

    def slow(self, fault, number, rate="1mbit"):
        """A node sends no faster than this."""
        role = f"n{number}"
        if role not in self.slowed.values():
            words = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]
            run(*inside(self.names[role]), *words)
            self.slowed[fault] = role


def until(condition, seconds, pause=0.1):
    """Waits for a condition; returns its last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(pause)
    return value
