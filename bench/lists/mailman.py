"""GNU Mailman 3: mail reaches it by LMTP, and it sends by SMTP to mailrace."""

import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess

from rooms import FAR, LISTS, LOST, Failed, Room, Skipped, as_user, give, header
from servers import RUNNING, free_port
from wire import Refused

OFFICE = "office.example"
HOPS = 6
# Bounces are looked at at once, and what no mail needs is not started.
CONFIGURATION = """
[mailman]
layout: here
site_owner: owner@{far}
[paths.here]
var_dir: {var}
bin_dir: {bin}
[mta]
incoming: mailman.mta.postfix.LMTP
outgoing: mailman.mta.deliver.deliver
smtp_host: 127.0.0.1
smtp_port: {smtp}
lmtp_host: 127.0.0.1
lmtp_port: {lmtp}
configuration: {maps}
verp_delivery_interval: 2
[runner.bounces]
sleep_time: 1s
[runner.archive]
start: no
[runner.digest]
start: no
[runner.nntp]
start: no
[runner.rest]
start: no
[runner.task]
start: no
"""
# As docs/list-managers.md has it.
CONVERTER = """#!/bin/sh -e
case $1 in */postfix_lmtp) ;; *) exit 0 ;; esac
awk '/lmtp:/ && !/^#/ { print "To:" $1 "\\tOK" }' "$1" >"${1%/*}/access.lists.new"
mv "${1%/*}/access.lists.new" "${1%/*}/access.lists"
"""


class Mailman:
    """A Mailman of its own, with a database of its own."""

    def __init__(self, room, lmtp_port):
        command = shutil.which("mailman")
        places = ["/usr/lib/mailman3/bin", str(pathlib.Path(command or "/").resolve().parent)]
        self.master = shutil.which("master", path=":".join(places))
        if not command or not self.master:
            raise Skipped("mailman or its master missing; install mailman3")
        self.room = room
        self.port = lmtp_port
        self.home = room.work / "mailman"
        self.var = self.home / "var"
        self.file = self.home / "mailman.cfg"
        # Mailman writes its addresses down for Postfix, and calls this to have a map made of them.
        converter = self.home / "to-mailrace"
        converter.write_text(CONVERTER)
        converter.chmod(0o755)
        maps = self.home / "postfix.cfg"
        maps.write_text(f"[postfix]\ntransport_file_type: hash\npostmap_command: {converter}\n")
        values = {"far": FAR, "var": self.var, "bin": pathlib.Path(self.master).parent, "lmtp": lmtp_port, "maps": maps}
        self.file.write_text(CONFIGURATION.format(smtp=room.server.port, **values))
        give(self.home)
        self.process = None

    def run(self, *words):
        return self.room.run(shutil.which("mailman"), "-C", self.file, *words, env=self.environment())

    def environment(self):
        return {"HOME": str(self.home), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}

    def start(self):
        self.output = open(self.home / "output", "w+b")
        self.process = subprocess.Popen(
            [self.master, "-C", str(self.file)],
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            **as_user(),
        )
        RUNNING.append(self)
        self.room.await_that("Mailman listens", self.listens, 180)

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self):
        if self in RUNNING:
            RUNNING.remove(self)
        if not self.process:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()

    def subscribe(self, name, *people):
        file = self.home / "people"
        file.write_text("".join(f"{each}\n" for each in people))
        give(self.home)
        self.run("addmembers", "--no-welcome-msg", file, name)

    def unsubscribe(self, name, *people):
        self.run("delmembers", "--no-goodbye-msg", "-l", name, *(word for each in people for word in ("-m", each)))

    def bounced(self):
        """The members whose bounces it has noted."""
        with sqlite3.connect(f"file:{self.var}/data/mailman.db?mode=ro", uri=True) as database:
            return [email for (email,) in database.execute("select email from bounceevent")]

    def says(self):
        logs = sorted((self.var / "logs").glob("*.log"))
        return "".join(f"{log.name}:\n{log.read_text(errors='replace')[-800:]}\n" for log in logs)


def try_it(program, work):
    room = Room("mailman", program, work)
    mailman = None
    try:
        port = free_port()
        # A whole domain is Mailman's; of another one only a list is.
        room.route(f"{LISTS}\tlmtp:[127.0.0.1]#{port}\n")
        room.write("aliases", f"loopy: talk@{LISTS}\n")
        names = ("", "-bounces", "-confirm", "-join", "-leave", "-owner", "-request", "-subscribe", "-unsubscribe")
        patterns = ", ".join(f'"news{name}@{OFFICE}"' for name in names)
        rule = f'{{recipient=[{patterns}], at="before-local", via="lmtp:[127.0.0.1]#{port}"}}'
        known = room.work / "mailman" / "var" / "data" / "access.lists"
        known.parent.mkdir(parents=True)
        known.write_text("")
        give(room.work / "mailman")
        access = [room.write("access", f'To:{LISTS}\tERROR:5.1.1:"550 No such list"\n'), known]
        room.serve(
            local__domains=f'["{OFFICE}"]',
            relay__to=f'["{LISTS}"]',
            message__hops_max=HOPS,
            maps__access="[" + ", ".join(f'"{file}"' for file in access) + "]",
            route__rule=f"[{rule}]",
        )
        mailman = Mailman(room, port)
        lists(room, mailman)
        mailman.start()
        posts(room, mailman)
        commands(room, mailman)
        bounces(room, mailman)
        loops(room, mailman)
        of_another_domain(room, mailman)
        room.ends_empty()
    except Failed as why:
        room.faults.append(f"no further: {why}")
        if mailman:
            room.faults.append(mailman.says())
    finally:
        if mailman:
            mailman.stop()
        room.stop()
    return room


def lists(room, mailman):
    """Two lists, and the map of those who may be written to, made of what Mailman says."""
    mailman.run("create", "-d", f"talk@{LISTS}")
    mailman.run("create", "-d", f"news@{OFFICE}")
    known = (mailman.var / "data" / "access.lists").read_text().split("\n")
    wanted = {f"To:talk{name}@{LISTS}\tOK" for name in ("", "-bounces", "-confirm", "-owner")}
    room.check("Mailman says who may be written to", wanted <= set(known), known)
    mailman.subscribe(f"talk@{LISTS}", *(f"{name}@{FAR}" for name in ("ann", "bob", "carol")))


def posts(room, mailman):
    """A post reaches every member: each with a return path of his own, and then in one transaction."""
    people = [f"{name}@{FAR}" for name in ("ann", "bob", "carol")]
    address = f"talk@{LISTS}"
    mailman.subscribe(address, LOST)
    room.send(people[0], [address], "first")
    room.reaches_all("the post reaches all", people, seconds=180)
    room.misses_the_lost(people, 180)
    mailman.unsubscribe(address, LOST)
    paths = sorted(one.sender for one in room.hop.messages)
    wanted = [f"talk-bounces+{one.replace('@', '=')}@{LISTS}" for one in people]
    room.check("each has a return path of his own", paths == wanted, paths)
    room.send(people[1], [address], "second")
    room.reaches_all("the second post reaches all", people, 2, 180)
    mails = room.hop.messages[3:]
    room.check("in one transaction", len(mails) == 1, len(mails))
    last = mails[0]
    room.check("it comes from the address for bounces", last.sender == f"talk-bounces@{LISTS}", last.sender)
    room.check("it has a List-Id", header(last.content, "List-Id") == [f"<talk.{LISTS}>"], header(last.content, "List-Id"))
    room.check("it is bulk mail by its header", header(last.content, "Precedence") == ["list"])


def commands(room, mailman):
    """Commands by mail, whose answers have a detail."""
    dave = f"dave@{FAR}"
    room.send(dave, [f"talk-join@{LISTS}"], "join")
    (asked,) = room.await_that("dave is asked to confirm", lambda: room.hop.to(dave), 180)
    confirm = re.search(r"talk-confirm\+[0-9a-f]+@lists\.example", " ".join(header(asked.content, "From")))
    room.check("the answer goes to an address with a detail", confirm, header(asked.content, "From"))
    room.send(dave, [confirm[0]], "Re: confirm")
    room.await_that("dave is welcomed", lambda: len(room.hop.to(dave)) == 2, 180)
    room.check("dave is a member", dave in mailman.run("members", f"talk@{LISTS}"))


def bounces(room, mailman):
    """What the next hop refuses comes back by LMTP, with a return path for all and with one for each; whoever is not served now
    waits as bulk mail."""
    people = [f"refused@{FAR}", f"later@{FAR}"]
    mailman.subscribe(f"talk@{LISTS}", *people)
    room.send(f"ann@{FAR}", [f"talk@{LISTS}"], "third")
    room.await_that("the report is read", lambda: mailman.bounced() == people[:1], 180, lambda: room.log()[-2000:])
    room.send(f"ann@{FAR}", [f"talk@{LISTS}"], "fourth")
    room.await_that("so is what comes back by VERP", lambda: f"talk-bounces+refused={FAR}@{LISTS}" in room.log(), 180)
    waits = room.await_that("later waits twice", lambda: len(each := room.waiting_for(people[1])) == 2 and each, 180)
    room.check("as bulk mail", [one.get("class") for one in waits] == ["bulk"] * 2, waits)
    room.is_found_by_destination(people[1])
    room.control("queue", "delete", "--to", people[1])
    mailman.unsubscribe(f"talk@{LISTS}", *people)


def loops(room, mailman):
    """A member whose mail comes back to the list. Mailman 3.3.8 does not see it (it looks for its bare address in List-Post), so
    that the number of hops has to end it."""
    mailman.subscribe(f"talk@{LISTS}", f"loopy@{OFFICE}")
    before = len(room.hop.to(f"bob@{FAR}"))
    room.send(f"ann@{FAR}", [f"talk@{LISTS}"], "in a circle")
    room.await_that("the circle ends", lambda: "5.4.6" in room.log(), 180, lambda: room.log()[-2000:])
    copies = len(room.hop.to(f"bob@{FAR}")) - before
    room.check("before there are more copies than hops", 0 < copies <= HOPS, copies)
    mailman.unsubscribe(f"talk@{LISTS}", f"loopy@{OFFICE}")


def of_another_domain(room, mailman):
    """A list in a domain that has users here, by a rule; and who is no list."""
    mailman.subscribe(f"news@{OFFICE}", f"erin@{FAR}")
    room.send(f"erin@{FAR}", [f"news@{OFFICE}"], "news")
    (mail,) = room.await_that("the list of a shared domain works", lambda: room.hop.to(f"erin@{FAR}"), 180)
    path = f"news-bounces+erin={FAR}@{OFFICE}"
    room.check("it comes from there", mail.sender == path, mail.sender)
    for address in (f"nosuch@{LISTS}", f"talks@{LISTS}", f"nosuch-list@{OFFICE}"):
        try:
            room.send(f"erin@{FAR}", [address], "x")
            room.check(f"{address} is refused", False)
        except Refused as why:
            room.check(f"{address} is refused with 550", "550" in str(why), str(why))
