"""The faults, and the scenarios that are made of them."""

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time

import power
from members import HERE, Process
from network import GENERATOR, NODES, inside, run, until

# Holders are asked for three seconds; a fence comes 15 s behind the last block, and 13 s later mail is taken. A busy
# machine takes longer.
ADOPTION_MAX = 90
# What spools and stores lie on: files of this machine, disks whose power can be cut, or such ones that ignore flushes.
FILES, POWER, IGNORED_FLUSHES = "files", "power", "ignored flushes"


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done to a node, how it ends, and what it may cause. `apply` returns the nodes if there are several."""

    apply: callable
    heal: callable
    # Seconds until it is healed; with `adopts` at least so many, and until the mail is adopted.
    lasts: float
    # Others take over the mail of the node. Some of it stands at the receiver between DATA and its answer meanwhile.
    adopts: bool = False
    # Its transactions may be repeated by the node itself: the process or its wires are cut in the middle of them.
    cuts_transactions: bool = False
    # What the node has sent may arrive when the wires are healed, and the kernel sends it again for minutes.
    holds_packets: bool = False
    planned: bool = False
    # It can be done to this node alone.
    only: int | None = None
    gap: float | None = 5.0
    # Seconds of the storm behind its beginning.
    storm: float = 20.0
    disks: str = FILES


def kill_node(rig, number):
    rig.world.nodes[number].kill()


def start_node(rig, number):
    rig.world.nodes[number].start()


def kill_engine(rig, number):
    rig.world.engines[number].kill()


def start_engine(rig, number):
    rig.world.engines[number].start()


def kill_both(rig, number):
    kill_node(rig, number)
    kill_engine(rig, number)


def start_both(rig, number):
    start_engine(rig, number)
    start_node(rig, number)


def holder_of(rig, number):
    """The node that has most copies of the mail of a node."""
    streams = rig.world.nodes[number].status().get("streams", [])
    return max(streams, key=lambda one: one["messages"])["holder"] if streams else others(number)[0]


def kill_two(rig, number):
    """A node and the holder of its mail: nobody has it until one of them is back."""
    pair = [number, holder_of(rig, number)]
    rig.tell(f"nodes {pair[0]} and {pair[1]} are killed with their engines")
    for one in pair:
        kill_both(rig, one)
    return pair


def lose_disk(rig, number):
    """A node whose disk is gone with all that was on it: its mail is at the holder alone."""
    kill_both(rig, number)
    rig.world.nodes[number].empty()
    rig.world.engines[number].empty()


def kill_all(rig, _number):
    for one in NODES:
        kill_both(rig, one)
    return list(NODES)


def start_missing(rig, _number):
    for one in NODES:
        if not rig.world.engines[one].runs():
            start_engine(rig, one)
        if not rig.world.nodes[one].runs():
            start_node(rig, one)


def kill_engines(rig, _number):
    for one in NODES:
        kill_engine(rig, one)


def stop_node(rig, number):
    rig.world.nodes[number].signal(signal.SIGSTOP)


def resume_node(rig, number):
    rig.world.nodes[number].signal(signal.SIGCONT)


def stop_engine(rig, number):
    rig.world.engines[number].signal(signal.SIGSTOP)


def resume_engine(rig, number):
    rig.world.engines[number].signal(signal.SIGCONT)


def others(number):
    return [other for other in NODES if other != number]


def heal_wires(rig, _number):
    rig.network.heal(rig.fault)


def isolate(rig, number):
    rig.network.isolate(rig.fault, number)


def split(rig, number):
    """The node sees neither of the others, but the balancer and the sink."""
    rig.network.cut(rig.fault, [(number, other) for other in others(number)])


def cut_pair(rig, number):
    rig.network.cut(rig.fault, [(number, rig.choose.choice(others(number)))])


def one_way(rig, number):
    pair = [number, rig.choose.choice(others(number))]
    rig.choose.shuffle(pair)
    rig.tell(f"nothing of node {pair[0]} arrives at node {pair[1]}")
    rig.network.cut(rig.fault, [pair], one_way=True)


def lose(rig, number):
    rig.network.lose(rig.fault, number, 10)


def slow(rig, number):
    rig.network.slow(rig.fault, number)


def fill(place):
    """Takes the rest of a file system, to the last block."""
    file = os.open(place / "ballast", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while os.write(file, bytes(size)) > 0:
                    pass
    finally:
        os.close(file)


def fill_spool(rig, number):
    fill(rig.world.nodes[number].place / "spool")


def empty_spool(rig, number):
    (rig.world.nodes[number].place / "spool" / "ballast").unlink()


def fill_store(rig, number):
    fill(rig.world.engines[number].place / "store")


def empty_store(rig, number):
    """An engine that has had a full disk is started again, as its operator would."""
    (rig.world.engines[number].place / "store" / "ballast").unlink()
    engine = rig.world.engines[number]
    engine.kill()
    engine.start()


def lose_store(rig, number):
    engine = rig.world.engines[number]
    engine.kill()
    engine.empty()


def drain(rig, number):
    """The drain of a node with a transaction under way; its heal starts the node again."""
    run, address = rig.storm.name, NODES[number]
    probe = Process(rig.network, "lb", rig.work / f"{run}.probe.out")
    tag, recipient = f"{run}-9000001", f"{run}-9000001@d2.rig.test"
    version = "1" if number == 3 else "2"
    with rig.probe(probe, address, GENERATOR, version, tag, recipient) as ask:
        rig.expect("a transaction before the drain", ask(None), "open")
        said = rig.world.nodes[number].ask("cluster", "drain")
        rig.expect("mailrace cluster drain", said or "", "draining")
        time.sleep(0.3)
        rig.expect("a new session within cluster.drain_grace", ask("new"), "220")
        down = until(lambda: rig.world.balancer.sees().get(f"n{number}") == "DOWN", 30)
        rig.expect("HAProxy at a node that drains", "DOWN" if down else "UP", "DOWN")
        seen = [line for line in rig.world.balancer.log_of_checks() if f"smtp/n{number} is DOWN" in line][-1:]
        answer = "503" if any("code: 503" in line for line in seen) else str(seen)
        rig.expect("the health check of HAProxy at a node that drains", answer, "503")
        refused = until(lambda: ask("new").startswith("421"), 30)
        rig.expect("a new session behind cluster.drain_grace", "421" if refused else "no 421", "421")
        rig.expect("the server while a transaction is open", "runs" if rig.world.nodes[number].runs() else "ended", "runs")
        hashed, _, reply = ask("end").partition(" ")
        rig.expect("the end of a transaction at a node that drains", reply, "250")
        rig.add_attempt(tag, f"n{number}", reply, hashed)
    ends(rig, number, "drain")


def leave(rig, number):
    """A node leaves for good, and its engine stops; its heal starts both, and it joins again."""
    said = rig.world.nodes[number].ask("cluster", "leave", "--json", seconds=180)
    left = json.loads(said or "{}")
    rig.expect("mailrace cluster leave", str(left.get("step")), "left")
    rig.expect("mail that stays at a node that leaves", f"{left.get('staying')} {left.get('problems')}", "0 []")
    rig.expect("copies of others at a node that leaves", str(left.get("copies")), "[]")
    ends(rig, number, "leave")
    kill_engine(rig, number)


def ends(rig, number, how):
    """Waits for a server that was told to end."""
    ended = until(lambda: not rig.world.nodes[number].runs(), 150)
    status = rig.world.nodes[number].process.returncode
    rig.expect(f"the end of node {number} by {how}", f"status {status}" if ended else "it runs", "status 0")


def is_whole_behind(rig, number):
    whole = until(rig.world.is_whole, 180, 0.3)
    rig.expect(f"the cluster behind node {number}", "" if whole else str(rig.world.shortcomings()), "")


def restart(rig, number):
    """A node is stopped as systemctl restart does it, and keeps its mail."""
    rig.world.nodes[number].signal(signal.SIGTERM)
    ends(rig, number, "SIGTERM")
    start_node(rig, number)


def roll(rig, _number):
    """Node for node is drained and started again with its engine."""
    for number in NODES:
        rig.tell(f"node {number} is drained and started again, and its engine")
        said = rig.world.nodes[number].ask("cluster", "drain")
        rig.expect("mailrace cluster drain", said or "", "draining")
        ends(rig, number, "drain")
        rig.world.engines[number].signal(signal.SIGTERM)
        until(lambda: not rig.world.engines[number].runs(), 20)
        rig.world.engines[number].kill()
        start_both(rig, number)
        is_whole_behind(rig, number)


def nothing(_rig, _number):
    pass


def omit_header(rig, _number):
    """The balancer's address without the header of its protocol: there is no client then."""
    for number, address in NODES.items():
        done = run(*inside(rig.network.names["lb"]), sys.executable, HERE / "probe.py", address, check=False)
        rig.expect(f"node {number} to a connection without PROXY header", done.stdout.strip() or done.stderr, "closed")


CUT = {"cuts_transactions": True}
GONE = {"adopts": True, "cuts_transactions": True}
FAULTS = {
    "calm": Fault(omit_header, nothing, 5, planned=True, storm=10),
    "kill": Fault(kill_node, start_node, 20, **GONE),
    "kill-both": Fault(kill_both, start_both, 20, **GONE),
    "kill-back": Fault(kill_node, start_node, 3, storm=10, **CUT),
    "kill-two": Fault(kill_two, start_missing, 25, gap=None, **CUT),
    "kill-all": Fault(kill_all, start_missing, 3, gap=None, **CUT),
    "kill-engines": Fault(kill_engines, start_missing, 8, gap=None),
    "kill-engine": Fault(kill_engine, start_engine, 12),
    "pause-5": Fault(stop_node, resume_node, 5, storm=8, **CUT),
    "pause-20": Fault(stop_node, resume_node, 20, **CUT),
    "pause-60": Fault(stop_node, resume_node, 60, **GONE),
    "pause-engine": Fault(stop_engine, resume_engine, 5),
    "isolate": Fault(isolate, heal_wires, 40, holds_packets=True, **GONE),
    "split": Fault(split, heal_wires, 40, adopts=True),
    "split-short": Fault(split, heal_wires, 8, storm=12),
    "cut-pair": Fault(cut_pair, heal_wires, 20),
    "one-way": Fault(one_way, heal_wires, 25),
    "loss": Fault(lose, heal_wires, 20),
    "slow": Fault(slow, heal_wires, 20),
    "spool-full": Fault(fill_spool, empty_spool, 15, only=2),
    "store-full": Fault(fill_store, empty_store, 20, only=3),
    "disk-lost": Fault(lose_disk, start_both, 20, **GONE),
    "disk-new": Fault(lose_disk, start_both, 3, storm=15, **CUT),
    "store-lost": Fault(lose_store, start_engine, 5),
    "drain": Fault(drain, start_node, 0.5, planned=True, storm=13),
    "restart": Fault(restart, nothing, 5, planned=True, storm=10),
    "leave": Fault(leave, start_both, 10, planned=True),
    "rolling": Fault(roll, nothing, 0.5, planned=True, storm=45),
    "power-1": Fault(power.cut_node, power.return_power, 5, storm=15, disks=POWER, **CUT),
    "power-1-late": Fault(power.cut_node, power.return_power, 20, disks=POWER, **GONE),
    "power-all": Fault(power.cut_all, power.return_power, 4, gap=None, disks=POWER, **CUT),
    "power-engine": Fault(power.cut_engines, power.return_power, 8, gap=None, disks=POWER),
}
# These must be seen as lost mail: a lost disk where there are no copies, and a power cut of all copies where no sync counts.
CONTROL, POWER_CONTROL = "control", "power-control"
FAULTS[CONTROL] = FAULTS["disk-new"]
FAULTS[POWER_CONTROL] = dataclasses.replace(FAULTS["power-all"], disks=IGNORED_FLUSHES)
CONTROLS = {
    CONTROL: "no message is lost, though none had a copy",
    POWER_CONTROL: "no message is lost, though no disk kept what was synced",
}
SHORT = ("kill-both", "pause-5", "split-short", "drain")
# Several faults of these in a run.
MIXED = ("kill", "kill-both", "kill-back", "kill-engine", "pause-5", "pause-20", "pause-engine", "isolate", "split-short")
MIXED += ("split", "cut-pair", "one-way", "loss", "slow")


def schedule(name, choose):
    """The faults of a scenario: pairs of a time and a fault with its node."""
    if name.startswith("mixed"):
        names = choose.sample(MIXED, choose.choice((2, 3)))
        times = sorted(choose.uniform(4, 20) for _ in names)
        return [(at, one, choose.choice(list(NODES))) for at, one in zip(times, names)]
    fault = FAULTS[name]
    return [(choose.uniform(5, 7), name, fault.only or choose.choice(list(NODES)))]


def cluster_of(name):
    """The copies and the disks of the cluster that a scenario needs."""
    return 1 if name == CONTROL else 2, FAULTS[name].disks if name in FAULTS else FILES


def names():
    """All scenarios; those of one cluster follow each other."""
    usual = [name for name in FAULTS if name not in CONTROLS]
    usual = [*usual, "mixed-1", "mixed-2", "mixed-3"]
    return [*sorted(usual, key=lambda name: cluster_of(name)[1] != FILES), *CONTROLS]
