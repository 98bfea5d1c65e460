"""What a list manager is tried with: a mailrace for its lists, a next hop that has all its subscribers, and a place to note
what was seen. All of it runs as an ordinary user, as whoever calls it or, for root, as nobody."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
from servers import Mailrace, until
from wire import Client, Receiver, path

NOBODY = 65534
# All people are there; whoever's name begins with "refused" is unknown, whoever's begins with "later" is not served now.
FAR = "far.example"
LISTS = "lists.example"
# Whose mail mailrace takes and drops: whatever looks for copies has to miss his.
LOST = "lost@gone.example"
# Where clients are who have no rights; list managers are at 127.0.0.1.
ABROAD = "127.0.0.2"


class Skipped(Exception):
    """A list manager that cannot be tried here, and why."""


class Failed(Exception):
    """Something did not happen; what follows would mean nothing."""


def as_user():
    """The arguments of Popen for a process that is not root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


def give(*paths):
    if os.getuid() == 0:
        for each in paths:
            for below in (each, *each.rglob("*")):
                os.chown(below, NOBODY, NOBODY)


class Hop(Receiver):
    """The next hop of mailrace."""

    def refuses(self, recipient):
        if recipient.startswith("later"):
            return "451 4.7.1 come back tomorrow"
        return super().refuses(recipient)

    def to(self, recipient):
        """The messages that a recipient has got."""
        return [one for one in list(self.messages) if recipient in [address for address, _ in one.recipients]]


class Room:
    """A directory of its own, a next hop, and what was found out."""

    def __init__(self, name, program, work, is_root=False):
        self.name = name
        self.work = work / name
        self.work.mkdir()
        self.program = self.work / "mailrace"
        shutil.copy2(program, self.program)
        self.hop = Hop()
        self.server = None
        self.is_root = is_root
        self.passed = []
        self.faults = []
        if not is_root:
            give(self.work)
        self.route()

    def route(self, more=""):
        """The mailertable: mail for LOST goes nowhere."""
        self.write("mailertable", f"{LOST.partition('@')[2]}\tdiscard:\n{more}")

    def serve(self, **settings):
        """Starts mailrace: mail for FAR goes to the hop, LISTS is here unless the settings say otherwise."""
        base = {
            "route__smart_host": f'["[127.0.0.1]:{self.hop.port}"]',
            "local__domains": f'["{LISTS}"]',
            "maps__directory": self.work / "maps",
            "maps__interval": "1s",
            "delivery__retry_first": "1h",
            "delivery__retry_max": "1h",
            "accept__reverse_dns": "false",
            "relay__from": '["127.0.0.1/32"]',
            # List managers write maps and run programs as the user or group that the server shares with them.
            "maps__group_writable": "true",
            "local__programs_as_server": "true",
        }
        user = NOBODY if os.getuid() == 0 and not self.is_root else None
        self.server = Mailrace(str(self.program), self.work, self.hop.port, user=user, **(base | settings))

    def write(self, name, text):
        """A file of maps.directory."""
        file = self.work / "maps" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        # Maps belong to root or to the server's user.
        if not self.is_root:
            give(file.parent)
        return file

    def run(self, *command, stdin="", **settings):
        """Runs a command that must succeed, and returns what it says."""
        done = subprocess.run(
            [str(word) for word in command], input=stdin, capture_output=True, text=True, timeout=180, **(as_user() | settings)
        )
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def control(self, *words):
        who = {"user": None, "group": None, "extra_groups": None} if self.is_root else {}
        return self.run(self.program, *words, "--control", self.server.work / "control", **who)

    def send(self, sender, recipients, subject, to=None, more="", body="hello"):
        """Hands a message to mailrace, as somebody who may not relay."""
        number = len(self.passed)
        head = f"From: <{sender}>\r\nTo: <{to or recipients[0]}>\r\nSubject: {subject}\r\n"
        head += f"Message-ID: <{number}.{os.getpid()}@{FAR}>\r\n"
        client = Client(self.server.port, ABROAD)
        client.send(sender, recipients, f"{head}Date: Thu, 01 Jan 2026 00:00:00 +0000\r\n{more}\r\n{body}\r\n".encode())
        client.close()

    def check(self, what, is_so, otherwise=""):
        """Notes something that has to be so."""
        (self.passed if is_so else self.faults).append(f"{what}{f': {otherwise}' if otherwise and not is_so else ''}")
        return bool(is_so)

    def await_that(self, what, condition, seconds=180, otherwise=lambda: ""):
        """Waits for something that has to come, without which there is no going on."""
        value = until(condition, seconds)
        if not self.check(what, value, otherwise() if not value else ""):
            raise Failed(what)
        return value

    def log(self):
        return self.server.log()

    def missed(self, people, count=1):
        """Those of them who do not have exactly so many messages."""
        return [each for each in people if len(self.hop.to(each)) != count]

    def reaches_all(self, what, people, count=1, seconds=180):
        self.await_that(what, lambda: not self.missed(people, count), seconds, lambda: f"not {self.missed(people, count)}")

    def misses_the_lost(self, people, seconds=180):
        """The control: LOST is a subscriber as they are, whose copies have come, and mailrace has dropped his."""
        # The return path names him, a line of the log the message.
        dropped = rf"(?s)(\w+): from=<[^>]*{LOST.replace('@', '=')}@.*\1: discarded"
        self.await_that("mailrace has dropped a copy", lambda: re.search(dropped, self.log()), seconds, lambda: self.log()[-2000:])
        missed = self.missed([*people, LOST])
        self.check("the control: it is missed, and no other", missed == [LOST], missed)

    def is_found_by_destination(self, person):
        """What an operator does who wants to know whom a list does not reach: where mail waits, for whom, and why."""
        where = self.control("queue", "destinations")
        self.check("destinations say where mail waits", re.search(rf"(?m)^ *\d+  {FAR}$", where), where)
        listed = self.control("queue", "list", "--destination", FAR)
        self.check("the list of it says for whom, and why", person in listed and "come back tomorrow" in listed, listed)

    def queue(self):
        """What `queue list` says: a message, and those of its recipients who wait or are being served."""
        return [json.loads(line) for line in self.control("queue", "list", "--json").splitlines()]

    def waiting_for(self, recipient):
        """Of each message, what is said of this recipient while he waits."""
        every = [one for message in self.queue() for one in message["recipients"]]
        return [one for one in every if one["to"] == recipient and one["state"] == "waiting"]

    def ends_empty(self):
        until(lambda: not self.queue())
        self.check("nothing waits in the end", not self.queue(), self.queue())

    def stop(self):
        if self.server:
            self.check("mailrace does not panic", self.server.stop())
        self.hop.close()


def header(content, name):
    """All values of a field."""
    head = content.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").decode("utf-8", "replace")
    fields = (line.partition(":") for line in head.split("\r\n"))
    return [value.strip() for key, _, value in fields if key.lower() == name.lower()]
