#!/usr/bin/env python3
"""LDAP routing behind three nodes of a cluster: an outage of the directory, and changes in it.

    ldap.py PROGRAM [--down SECONDS] [--keep]

PROGRAM is a mailrace. One slapd routes the recipients of a domain for all nodes, whose answers are kept for four seconds.

| Case | Must hold |
|---|---|
| `killed` | slapd is away for `--down` seconds (12; a minute is 60), longer than answers are kept: mail for known
recipients gets its 250 as fast as before at each node and arrives where the directory said; unknown ones get 451;
afterwards a new one gets its 250 |
| `hangs` | slapd stands still for as long: the same, but an answer may take twice `ldap.timeout` more |
| `change` | a changed, a new and a removed entry are seen by each node within the time that answers are kept |

A line for each case; exit status 1 if one fails. What the machine lacks is named as skipped."""

import argparse
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import history as histories
from bad_input import skip
from members import Process, find_engine
from network import NODES, inside, missing, run, sink_address, until
from open_world import TEMPFAIL, OpenWorld
from rig_place import rig_place

ADDRESS, PORT = sink_address(27), 3389
KEPT, ABSENT_KEPT, TIMEOUT = 4, 2, 2
# Attempts of a busy machine, and the pause between two messages.
SLACK = 3
PEOPLE = 6
TABLE = f"""
[[ldap]]
name = "people"
servers = ["ldap://{ADDRESS}:{PORT}"]
base = "dc=test"
routing_domains = ["ldap.rig.test"]
bounce = true
cache_time = "{KEPT}s"
negative_time = "{ABSENT_KEPT}s"
timeout = "{TIMEOUT}s"
"""
BASE = "dn: dc=test\nobjectClass: domain\nobjectClass: top\ndc: test\n"


def entry(uid, target):
    return (
        f"dn: uid={uid},dc=test\nobjectClass: inetOrgPerson\nobjectClass: inetLocalMailRecipient\nuid: {uid}\ncn: {uid}\n"
        f"sn: {uid}\nmailLocalAddress: {uid}@ldap.rig.test\nmailRoutingAddress: {target}\n"
    )


class Directory(Process):
    """slapd, in the namespace of the receiver."""

    def __init__(self, network, work):
        super().__init__(network, "sink", work / "slapd.out")
        self.place = work / "slapd"

    def make(self):
        (self.place / "db").mkdir(parents=True)
        schemas = ("core", "cosine", "inetorgperson", "misc")
        text = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in schemas)
        # Where the database is built in there is no directory of modules.
        if pathlib.Path("/usr/lib/ldap").is_dir():
            text += "modulepath /usr/lib/ldap\nmoduleload back_mdb\n"
        text += f'pidfile {self.place}/pid\ndatabase mdb\nmaxsize 16777216\nsuffix "dc=test"\nrootdn "cn=admin,dc=test"\n'
        text += f"rootpw secret\ndirectory {self.place}/db\nindex objectClass,mailLocalAddress eq\n"
        (self.place / "conf").write_text(text)
        people = [entry(f"person{number}", f"person{number}@d3.rig.test") for number in range(1, PEOPLE + 1)]
        (self.place / "ldif").write_text("\n".join([BASE, *people]))
        run("slapadd", "-n", "1", "-f", self.place / "conf", "-l", self.place / "ldif")

    def start(self):
        self.launch("slapd", "-d", "0", "-f", self.place / "conf", "-h", f"ldap://{ADDRESS}:{PORT}")
        look = ("ldapsearch", "-LLL", "-b", "dc=test", "-s", "base")
        if not until(lambda: self.tool(*look, check=False).returncode == 0, 20):
            raise RuntimeError(f"slapd does not start: {self.says()[-300:]}")

    def tool(self, name, *words, text="", check=True):
        """A command of ldap-utils."""
        command = [name, "-x", "-H", f"ldap://{ADDRESS}:{PORT}", "-D", "cn=admin,dc=test", "-w", "secret", *words]
        done = subprocess.run([*inside(self.network.names[self.role]), *command], input=text, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stderr.strip()}")
        return done

    def route(self, uid, target):
        change = f"dn: uid={uid},dc=test\nchangetype: modify\nreplace: mailRoutingAddress\nmailRoutingAddress: {target}\n"
        self.tool("ldapmodify", text=change)


class Bench:
    """The cluster with its directory, and the case that is tried."""

    def __init__(self, world, directory, down):
        self.world, self.directory, self.down = world, directory, down
        self.problems, self.number = [], 0

    def send(self, node, uid, count=1):
        """Messages to a person through a node: tag, answer and seconds of each."""
        first, self.number = self.number + 1, self.number + count
        return self.world.send(self.name, first, count, node, TEMPFAIL, f"{uid}@ldap.rig.test")

    def arrivals(self):
        """Where each message came."""
        events = histories.lines_of(self.world.sink.history)
        return {event["tag"]: event["to"][0] for event in events if event["event"] == "delivered"}

    def expect_arrivals(self, wanted):
        """These messages come there; `wanted`: an address for each tag."""
        if not until(lambda: wanted.keys() <= self.arrivals().keys(), 40, 0.3):
            self.problems.append(f"{len(wanted.keys() - self.arrivals().keys())} of {len(wanted)} messages do not arrive")
        came = self.arrivals()
        wrong = [f"{tag} at {came[tag]}" for tag, to in wanted.items() if tag in came and came[tag] != to]
        if wrong:
            self.problems.append(f"arrived elsewhere than the directory says: {', '.join(wrong[:5])}")

    def warm(self):
        """All nodes have asked for all. Returns the seconds of answers when nothing is wrong."""
        took, wanted = [], {}
        for _ in range(2):
            for node in NODES:
                for person in range(1, PEOPLE + 1):
                    took += self.taken(node, f"person{person}", f"person{person}@d3.rig.test", wanted)
        self.expect_arrivals(wanted)
        return took

    def taken(self, node, uid, to, wanted):
        """A message that must get its 250. Returns its seconds."""
        ((tag, answer, seconds),) = self.send(node, uid)
        if answer.startswith("250"):
            wanted[tag] = to
        else:
            self.problems.append(f"node {node}: {uid}: {answer!r} where 250 is due")
        return [seconds]

    def outage(self, begin, end, most):
        """The directory is away; answers may take `most` seconds more than before."""
        before = self.warm()
        begin()
        began, took, wanted, turn = time.monotonic(), [], {}, 0
        try:
            while time.monotonic() < began + self.down or turn < 3 * PEOPLE:
                node, person = turn % 3 + 1, turn // 3 % PEOPLE + 1
                took += self.taken(node, f"person{person}", f"person{person}@d3.rig.test", wanted)
                turn += 1
                time.sleep(0.1)
            for node in NODES:
                ((_, answer, _),) = self.send(node, "nobody")
                if not answer.startswith("451"):
                    self.problems.append(f"node {node}: an unknown recipient gets {answer!r} where 451 is due")
        finally:
            lasted = time.monotonic() - began
            end()
        self.expect_arrivals(wanted)
        if max(took) > max(before) + most:
            text = f"an answer took {max(took):.1f} s, {max(before):.1f} s at most before, {most:.1f} s more are allowed"
            self.problems.append(text)
        # A server that did not answer is left out for some seconds.
        uid = f"new{self.number}"
        self.directory.tool("ldapadd", text=entry(uid, f"{uid}@d3.rig.test"))
        for node in NODES:
            if not until(lambda: self.send(node, uid)[0][1].startswith("250"), 15, 0.5):
                self.problems.append(f"node {node} does not ask the directory that is back")
        spread = lambda times: f"{statistics.median(times):.2f} s [{min(times):.2f}–{max(times):.2f}]"
        return f"away for {lasted:.0f} s, {len(took)} messages, answers {spread(took)}, before {spread(before)}"

    def killed(self):
        return self.outage(self.directory.kill, self.directory.start, SLACK)

    def hangs(self):
        stop, go_on = (lambda: self.directory.signal(signal.SIGSTOP)), (lambda: self.directory.signal(signal.SIGCONT))
        return self.outage(stop, go_on, 2 * TIMEOUT + SLACK)

    def change(self):
        self.warm()
        self.directory.route("person1", "moved@d4.rig.test")
        moved = self.seen_by_all("person1", lambda tag, answer: self.arrived_at(tag, answer, "moved@d4.rig.test"), KEPT)
        for node in NODES:
            self.expect_refusal(node, "late")
        self.directory.tool("ldapadd", text=entry("late", "late@d3.rig.test"))
        added = self.seen_by_all("late", lambda _, answer: answer.startswith("250"), ABSENT_KEPT)
        self.directory.tool("ldapdelete", "uid=person2,dc=test")
        removed = self.seen_by_all("person2", lambda _, answer: answer.startswith("550"), KEPT)
        seen = f"a changed entry after {moved:.1f} s, a new one {added:.1f} s, a removed one {removed:.1f} s"
        return f"seen by all nodes: {seen}"

    def expect_refusal(self, node, uid):
        ((_, answer, _),) = self.send(node, uid)
        if not answer.startswith("550 5.1.1"):
            self.problems.append(f"node {node}: {uid}, who is not there, gets {answer!r} where 550 5.1.1 is due")

    def arrived_at(self, tag, answer, address):
        return answer.startswith("250") and until(lambda: self.arrivals().get(tag), 10, 0.05) == address

    def seen_by_all(self, uid, is_new, kept):
        """Sends to all nodes until each has the new answer. Returns the seconds until the last one has it."""
        began, waiting, at = time.monotonic(), set(NODES), 0.0
        while waiting and time.monotonic() < began + kept + 20:
            for node in sorted(waiting):
                # What is sent behind this moment must see the change.
                sent_at = time.monotonic() - began
                ((tag, answer, _),) = self.send(node, uid)
                if is_new(tag, answer):
                    waiting.discard(node)
                    at = max(at, sent_at)
            time.sleep(0.2)
        if waiting or at > kept + SLACK:
            who = f", never by nodes {sorted(waiting)}" if waiting else ""
            self.problems.append(f"{uid}: a change is seen after {at:.1f} s{who}; answers are kept for {kept} s")
        return at

    def case(self, name):
        """Tries a case. Returns whether all went well."""
        self.name, self.problems, self.number, figures = name, [], 0, ""
        try:
            figures = getattr(self, name)()
        except (RuntimeError, OSError) as error:
            self.problems.append(f"rig: {type(error).__name__}: {error}")
        if not until(self.world.is_quiet, 60, 0.5):
            self.problems.append(f"afterwards there is left: {self.world.leftovers()}")
        print(f"ldap: {name}: {figures}: {'FAIL' if self.problems else 'PASS'}", flush=True)
        for text in self.problems[:12]:
            print(f"    {text}", flush=True)
        return not self.problems


def try_all(network, work, arguments, engine):
    world = OpenWorld(network, work, arguments.program, engine, TABLE)
    directory = Directory(network, work)
    try:
        directory.make()
        directory.start()
        world.start()
        bench = Bench(world, directory, arguments.down)
        return all([bench.case(name) for name in ("killed", "hangs", "change")])
    finally:
        directory.kill()
        world.end()


def lacking():
    """What is not here: program and text; None if all is."""
    if why := missing():
        return why
    for name, package in (("slapd", "slapd"), ("slapadd", "slapd"), ("ldapmodify", "ldap-utils")):
        if not shutil.which(name):
            return name, f"{name} is missing; install {package}"
    if find_engine() is None:
        return "nats-server", "nats-server 2.15.2 is missing; ./.ci/setup installs it where Go is"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--down", type=float, default=12, help="seconds without a directory [12]")
    parser.add_argument("--keep", action="store_true", help="keep the directory of logs in any case")
    arguments = parser.parse_args()
    arguments.program = str(pathlib.Path(arguments.program).resolve())
    if why := lacking():
        sys.exit(int(not skip("ldap", *why)))
    with rig_place((arguments.keep, "ldap: logs are in")) as place:
        place.good = try_all(place.network, place.work, arguments, find_engine())
    sys.exit(int(not place.good))


if __name__ == "__main__":
    main()
