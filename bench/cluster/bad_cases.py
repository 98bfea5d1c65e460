"""The cases of bad_input.py: what is done, and what the node must say and answer.

A case that cannot be tried here returns the program that is missing, and a text."""

import pathlib
import re
import shutil
import subprocess
import sys
import time

from members import HERE, Node, Process
from network import NODES, until
from open_world import ACCEPT_LOCAL, TEMPFAIL

ENGINE = f"{NODES[3]}:4222"
HOUR = 3600


def change(path, old, new):
    """Replaces what must be there."""
    text = path.read_text()
    changed = re.sub(old, new, text, flags=re.S)
    if changed == text:
        raise RuntimeError(f"{path} has no {old!r}")
    path.write_text(changed)


def place(bench, number=3):
    return bench.world.work / f"n{number}"


def restart(process):
    process.kill()
    process.start()


def without_copies(bench):
    """Node 3 cannot copy: it accepts as its listeners say, delivers what has no copy, and the others go on."""
    bench.send(3, TEMPFAIL, 3, "451")
    alone = bench.send(3, ACCEPT_LOCAL, 3, "250")
    bench.arrive(alone, 30, "mail of node 3 that has no copy")
    bench.send(1, TEMPFAIL, 3, "250")
    bench.send(2, ACCEPT_LOCAL, 3, "250")


def unfit(bench, status, check, word, *parts):
    """The engine of node 3 may not be used; first seen by a node that runs, then by one that starts."""
    for is_start in (False, True):
        if is_start:
            bench.world.nodes[3].kill()
            bench.log_sizes[3] = bench.world.nodes[3].log_size()
            bench.world.nodes[3].start()
        bench.status_says(3, *parts)
        bench.log_says(3, *parts)
        without_copies(bench)
    bench.verify_says(3, status, check, word, *parts)


def old_engine(bench):
    """An engine older than 2.15.2, real or one that only says so."""
    bench.world.engines[3].kill()
    version = "2.14.9"
    if bench.arguments.old_engine:
        said = subprocess.run([bench.arguments.old_engine, "--version"], capture_output=True, text=True).stdout
        version = said.strip().rpartition("v")[2]
        config = place(bench) / "nats-server.conf"
        # A store of its own: the present one is for the newer program. Without routes it is a cluster of its own.
        change(config, r"\ncluster \{.*", "\n")
        change(config, r'/store"', '/old-store"')
        words = [bench.arguments.old_engine, "-c", config]
    else:
        words = [sys.executable, HERE / "fake_engine.py", ENGINE, version]
    other = Process(bench.network, "n3", place(bench) / "old-engine.out")
    bench.world.others.append(other)
    other.launch(*words)
    try:
        unfit(bench, 78, "version", "wrong", ENGINE, f'"{version}"', "2.15.2", "upgrade nats-server")
    finally:
        other.kill()
        shutil.rmtree(place(bench) / "old-store", ignore_errors=True)


def copied_elsewhere(bench):
    """Once node 3 knows that its engine is unfit, the others copy nothing to it."""
    bench.world.sink.behave({"d7.rig.test": {"act": "later"}})
    for number in (1, 2):
        before = copies_at(bench, number, 3)
        bench.send(number, TEMPFAIL, 5, "250", domain="d7.rig.test")
        if more := copies_at(bench, number, 3) - before:
            bench.problem(f"node {number} gives a 250 for {more} copies at the engine of node 3, which is known to be unfit")
    bench.world.sink.behave({})


def copies_at(bench, owner, holder):
    """Messages of a node with copies at another one."""
    streams = bench.world.nodes[owner].status().get("streams", [])
    return sum(one["messages"] for one in streams if one["holder"] == holder)


def default_sync(bench):
    """An engine that answers before it syncs."""
    change(place(bench) / "nats-server.conf", r"  sync_interval: always\n", "")
    restart(bench.world.engines[3])
    parts = [ENGINE, "answers before data is on the disk", "sync_interval: always", "restart"]
    bench.status_says(3, *parts)
    copied_elsewhere(bench)
    unfit(bench, 78, "sync", "wrong", *parts)
    bench.world.engines[3].kill()


def no_jetstream(bench):
    """An engine without JetStream among others that have it."""
    change(place(bench) / "nats-server.conf", r"jetstream \{.*?\n\}\n", "")
    restart(bench.world.engines[3])
    unfit(bench, 78, "", "wrong", ENGINE, "JetStream disabled", "enable")
    bench.world.engines[3].kill()


def wrong_password(bench):
    """The engines have another password than the node."""
    (place(bench) / "cluster.secret").write_text("wrong\n")
    bench.world.nodes[3].kill()
    bench.log_sizes[3] = bench.world.nodes[3].log_size()
    bench.world.nodes[3].start()
    parts = [ENGINE, "refuses the login", "make user and secret the same"]
    bench.status_says(3, *parts)
    bench.log_says(3, *parts)
    without_copies(bench)
    bench.verify_says(3, 77, "connect", "refused", *parts)
    bench.world.nodes[3].kill()


def refused(bench, node, number, *parts):
    """A node must not take part: it says why, takes no mail, and the others go on."""
    bench.says("cluster status", lambda: node.ask("cluster", "status"), parts)
    bench.says("the log", lambda: (node.place / "log").read_text().replace('\\"', '"'), parts, 5)
    bench.send(1, TEMPFAIL, 2, "250")
    bench.send(2, ACCEPT_LOCAL, 2, "250")


def foreign_cluster(bench):
    """A node of another cluster on these engines."""
    node, other = bench.world.nodes[3], "00112233445566778899aabbccddeeff"
    ours = re.search(r'\nid = "(\w+)"', (place(bench) / "mailrace.toml").read_text())[1]
    # Some mail of its own waits meanwhile.
    bench.world.sink.behave({"d7.rig.test": {"act": "later"}})
    bench.send(3, TEMPFAIL, 3, "250", domain="d7.rig.test")
    node.kill()
    change(place(bench) / "mailrace.toml", ours, other)
    (node.place / "log").rename(node.place / "log.before")
    node.start()
    refused(bench, node, 3, ours, other, "point the node to its own engine")
    for port in (TEMPFAIL, ACCEPT_LOCAL):
        bench.send(3, port, 2, "451")
    bench.verify_says(3, 78, "id", "wrong", ours, other, "point the node to its own engine")
    node.kill()
    (node.place / "log.before").rename(node.place / "log")


def second_node(bench, name):
    """A further server with the number 3, beside node 2, with its engine."""
    home, spare = place(bench), bench.world.work / f"spare-{bench.name}"
    spare.mkdir()
    text = (home / "mailrace.toml").read_text()
    text = text.replace(f"{home}/token", f"{home}/TOKEN").replace(f"{home}/cluster.s", f"{home}/S")
    text = text.replace(str(home) + "/", f"{spare}/").replace(f"{spare}/TOKEN", f"{home}/token")
    text = text.replace(f"{spare}/S", f"{home}/cluster.s")
    # Its engine first is that of node 2, whose monitor is the one beside it.
    text = re.sub(r"\nengines = .*?\n", f'\nengines = ["{NODES[2]}:4222", "{NODES[1]}:4222", "{NODES[3]}:4222"]\n', text)
    for port, other in (("8025", "8035"), ("25", "35"), ("2526", "3526"), ("2527", "3527")):
        text = text.replace(f'"{NODES[3]}:{port}"', f'"{NODES[2]}:{other}"')
    text = text.replace('hostname = "n3.rig.test"', f'hostname = "{name}.rig.test"')
    (spare / "mailrace.toml").write_text(text)
    node = Node(bench.network, 2, bench.arguments.program, spare)
    bench.world.others.append(node)
    return node


def two_nodes(bench, name, *parts):
    node = second_node(bench, name)
    node.start()
    try:
        refused(bench, node, 3, *parts)
        for port in (3526, 3527):
            bench.send(2, port, 2, "451")
        # The one that was there goes on.
        bench.send(3, TEMPFAIL, 3, "250")
        if bench.world.nodes[3].status().get("state") != "member":
            bench.problem(f"the node that had the number first: {bench.world.nodes[3].ask('cluster', 'status')}")
    finally:
        node.kill()


def same_name(bench):
    """Two servers with the number and the name of node 3."""
    two_nodes(bench, "n3", 'a node "n3', "with number 3 is running", "stop it, or give this node")


def same_number(bench):
    """A server with the number of node 3 and another name."""
    two_nodes(bench, "n9", 'number 3 belongs to node "n3', '"n9', "join the cluster again")


def wrong_clock(bench, seconds, word):
    libraries = list(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        return "faketime", "libfaketime is missing; install faketime"
    with open(bench.arguments.program, "rb") as file:
        if b"ld-linux" not in file.read(8192):
            return "faketime", "the program is linked statically, so its clock cannot be moved"
    node = bench.world.nodes[3]
    node.kill()
    (node.place / "log").rename(node.place / "log.before")
    faked = [f"LD_PRELOAD={libraries[0]}", f"FAKETIME={seconds:+d}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
    node.launch("env", *faked, node.program, "serve", "--config", node.place / "mailrace.toml")
    try:
        refused(bench, node, 3, "the clock of this node is", f"s {word}", "60 s are allowed", "set the clock")
        said = re.search(r"the clock of this node is (\d+) s", node.ask("cluster", "status") or "")
        if said and abs(int(said[1]) - HOUR) > 30:
            bench.problem(f"the clock is off by {HOUR} s, and the status says {said[1]}")
        for port in (TEMPFAIL, ACCEPT_LOCAL):
            bench.send(3, port, 2, "451")
    finally:
        node.kill()
        (node.place / "log.before").rename(node.place / "log")
    return None


def clock_ahead(bench):
    """A node whose clock is an hour ahead."""
    return wrong_clock(bench, HOUR, "ahead of")


def clock_behind(bench):
    """A node whose clock is an hour behind."""
    return wrong_clock(bench, -HOUR, "behind")


def queued_at(bench, owner):
    """Mail of a node that waits, with its copies at the holder that this returns."""
    bench.world.sink.behave({"d7.rig.test": {"act": "later"}})
    bench.send(owner, TEMPFAIL, 20, "250", domain="d7.rig.test")
    streams = bench.world.nodes[owner].status().get("streams", [])
    return max(streams, key=lambda one: one["messages"])["holder"]


def flip(bench, owner, holder):
    """Turns octets round in the stored blocks of a stream, within the mail. The engine is stopped."""
    store = place(bench, holder) / "store"
    files = [path for path in store.glob(f"**/MRS_{owner}_{holder}_*_s/msgs/*.blk") if path.stat().st_size]
    if not files:
        raise RuntimeError(f"node {holder} has no blocks of node {owner}")
    hit = 0
    for path in files:
        content = bytearray(path.read_bytes())
        # Each message begins its content with its tag; one in three is hit behind it.
        for number, found in enumerate(re.finditer(rb"X-Rig-Id: ", bytes(content))):
            if number % 3 == 0:
                content[found.end() + 40] ^= 0xFF
                hit += 1
        path.write_bytes(content)
    bench.tell(f"{bench.name}: {hit} messages of node {owner} are damaged at node {holder}")
    if not hit:
        raise RuntimeError(f"no message is in the blocks of {files}")


def corrupt_block(bench):
    """A copy is damaged while its owner lives: it copies the mail anew."""
    owner = 1
    holder = queued_at(bench, owner)
    bench.world.engines[holder].kill()
    flip(bench, owner, holder)
    bench.world.engines[holder].start()
    bench.log_says(owner, "copies at", "are lost", "made anew", seconds=90)
    if not until(lambda: has_copies(bench, owner, 20), 60, 0.5):
        bench.problem(f"mail is not copied anew: {bench.world.nodes[owner].ask('cluster', 'status')}")
    # The new copies are good: the owner dies, and others deliver.
    bench.world.nodes[owner].kill()
    bench.world.sink.behave({})
    tags = [f"{bench.name}-{number}" for number in range(1, 21)]
    bench.arrive(tags, 60, "mail whose copies were made anew, of an owner that is dead")


def has_copies(bench, owner, messages):
    """Whether that much mail of a node has its copies stored: nothing is on its way any more, for three seconds."""
    for _ in range(7):
        status = bench.world.nodes[owner].status()
        streams = [one for one in status.get("streams", []) if one["messages"]]
        late = any(one.get("lag_ms") or one["state"] != "open" for one in streams)
        if status.get("unreplicated") or late or sum(one["messages"] for one in streams) < messages:
            return False
        time.sleep(0.5)
    return True


def corrupt_hostage(bench):
    """A copy is damaged and its owner is dead: the mail in it stays with the owner, and goes when that is back."""
    owner = 1
    holder = queued_at(bench, owner)
    # The others have seen the end of the stream: they look every two seconds.
    time.sleep(5)
    bench.world.nodes[owner].kill()
    bench.world.engines[holder].kill()
    flip(bench, owner, holder)
    bench.world.engines[holder].start()

    def told():
        """What the others say of it: their log while they adopt, their status while it waits."""
        found = ""
        for number in (2, 3):
            found += bench.world.nodes[number].ask("cluster", "status") or ""
            for event in bench.world.nodes[number].log(bench.log_sizes[number]):
                found += str(event.get("text", "")) + "\n"
        return found

    hints = ("cannot be read", "damaged", "corrupt")
    if not until(lambda: any(hint in told() for hint in hints), 90, 1):
        bench.problem(f"nobody says that the copies are damaged: {told()[-900:]!r}")
    bench.world.sink.behave({})
    time.sleep(5)
    bench.world.nodes[owner].start()
    tags = [f"{bench.name}-{number}" for number in range(1, 21)]
    bench.arrive(tags, 90, "mail whose copies were damaged, with its owner back")


CASES = {
    "old-engine": old_engine,
    "default-sync": default_sync,
    "no-jetstream": no_jetstream,
    "wrong-password": wrong_password,
    "foreign-cluster": foreign_cluster,
    "same-name": same_name,
    "same-number": same_number,
    "clock-ahead": clock_ahead,
    "clock-behind": clock_behind,
    "corrupt-block": corrupt_block,
    "corrupt-hostage": corrupt_hostage,
}
