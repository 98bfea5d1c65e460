#!/usr/bin/env python3
"""Has one filter on libmilter change the same messages under sendmail, Postfix and mailrace, and compares what leaves each.

    against-milters.py PROGRAM [CASE...]

PROGRAM is a mailrace. Cases are those of edit_cases.py. Every difference from sendmail and Postfix is listed here with
its reason, and in docs/filters.md; one that is not listed fails, and so does one that is listed and is none. Only
loopback, free ports. Exit status: 0 if all is as listed, 1 otherwise."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from edit_cases import CASES, RECIPIENTS, message
from servers import HERE, RUNNING, Mailrace, NotHere, Peer, free_port, run, until
from wire import Client, Receiver

LIBRARY = "/usr/lib/python3/dist-packages/Milter"
# How mailrace differs, by case: from which servers, and why.
SENDMAIL_ORDER = {"sendmail": "it counts fields of its own that it does not send"}
POSTFIX_NUMBERS = {"postfix": "a deleted field loses its number at once"}
DIFFERENCES = {
    "add twice": {"sendmail": "it puts the later field of a name above the earlier one"},
    "add folded with CR LF": {"sendmail": "it keeps the CR", "postfix": "it keeps the CR"},
    "add long": {"sendmail": "it breaks lines at 2,040 octets", "postfix": "it breaks lines at 998 octets"},
    "add long word": {"postfix": "it breaks lines at 998 octets"},
    "insert 2": SENDMAIL_ORDER,
    "insert last": SENDMAIL_ORDER,
    "insert behind the last": SENDMAIL_ORDER,
    "change in another case": {"sendmail": "it keeps the spelling of the name"},
    "change what is not there": {"sendmail": "it adds the field above the others of its name"},
    "delete 1 twice": POSTFIX_NUMBERS,
    "delete 1 and 2": POSTFIX_NUMBERS,
    "delete and change": POSTFIX_NUMBERS,
    "add a recipient that is there": {"postfix": "it sends the message twice"},
}
# Cases that change nothing under mailrace.
WITHOUT_EFFECT = {
    "nothing",
    "delete what is not there",
    "add a recipient that is there",
    "delete a recipient in another case",
    "delete a recipient that is not there",
    "add and delete a recipient",
    "delete and add a recipient",
}


class Filter:
    """The probe filter, on a port of its own."""

    def __init__(self, work):
        self.port = free_port()
        self.output = open(work / "filter.out", "wb")
        command = ["/usr/bin/python3", str(HERE / "probe_filter.py"), f"inet:{self.port}@127.0.0.1"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output)
        RUNNING.append(self)
        if not until(self.listens):
            raise RuntimeError(f"the probe filter does not listen: {(work / 'filter.out').read_text()}")

    def listens(self):
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        if self in RUNNING:
            RUNNING.remove(self)
        self.process.kill()
        self.process.wait()
        self.output.close()


def shown(received):
    """What is compared of a message: sender, recipients, content with the server's own trace field reduced to its place."""
    head, _, body = received.content.partition(b"\r\n\r\n")
    own = rb"Received:[^\n]*\n?(?:[ \t][^\n]*(?:\n|$))*"
    fields = re.split(rb"\r\n(?![ \t])", head)
    fields = [b"Received: (own)" if re.match(own, field) and b"hop.example" not in field else field for field in fields]
    recipients = sorted(recipient for recipient, _ in received.recipients)
    return received.sender, tuple(recipients), tuple(fields), body


def outcomes(name, port, receiver, cases):
    """What leaves a server for each case; None: nothing."""
    found = {}
    client = Client(port)
    for case in cases:
        client.send("sender@example.com", list(RECIPIENTS), message(case))
    client.close()
    tag = lambda case: f"X-Case: {case}\r\n".encode()
    def all_of(case):
        return [one for one in receiver.messages if tag(case) in one.content]
    until(lambda: all(all_of(case) for case in cases if case not in SILENT), 300)
    # A case may leave in several messages.
    seen = None
    while seen != len(receiver.messages):
        seen = len(receiver.messages)
        time.sleep(5)
    for case in cases:
        found[case] = sorted(shown(one) for one in all_of(case))
    return found


# Cases in which nothing leaves a server.
SILENT = {"quarantine", "delete all recipients"}


def words(outcome):
    if not outcome:
        return "nothing leaves"
    lines = []
    for sender, recipients, fields, body in outcome:
        lines.append(f"{sender} to {', '.join(recipients)}: {body[:60]!r}")
        lines += [f"    {field[:100]!r}" for field in fields]
    return "\n        ".join(lines)


def compare(found, cases):
    """Prints each difference; returns whether all are as listed."""
    good = True
    ours = found["mailrace"]
    for case in cases:
        listed = DIFFERENCES.get(case, {})
        for name in found:
            if name == "mailrace":
                continue
            differs = found[name][case] != ours[case]
            if differs and name not in listed:
                good = False
                print(f"milters: FAILED: {case}: mailrace differs from {name}")
                print(f"    mailrace:\n        {words(ours[case])}\n    {name}:\n        {words(found[name][case])}")
            if not differs and name in listed:
                good = False
                print(f"milters: FAILED: {case}: mailrace no longer differs from {name}; remove it from the list")
    # A filter that changes nothing would make all servers alike.
    base = ours.get("nothing")
    for case in cases:
        strip = lambda outcome: [(s, r, tuple(f for f in fs if b"X-Case" not in f and b"Message-ID" not in f), b) for s, r, fs, b in outcome]
        same = base is not None and strip(ours[case]) == strip(base)
        if same != (case in WITHOUT_EFFECT):
            good = False
            print(f"milters: FAILED: {case}: {'no change is seen' if same else 'a change is seen'} under mailrace")
    return good


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = str(pathlib.Path(sys.argv[1]).resolve())
    cases = sys.argv[2:] or list(CASES)
    if os.getuid() != 0:
        print("milters: skipped: sendmail and Postfix, because only root can start them")
        return
    if not pathlib.Path(LIBRARY).exists():
        print("milters: skipped: the probe filter, because python3-milter is missing")
        return

    def every_server(work):
        probe = Filter(work)
        found = {}
        receiver = Receiver()
        table = f'[{{name="probe", kind="milter", address="127.0.0.1:{probe.port}"}}]'
        ours = Mailrace(
            program, work, receiver.port, filter=table, listen='[{address="127.0.0.1:0", tls="none", filters=["probe"]}]'
        )
        found["mailrace"] = outcomes("mailrace", ours.port, receiver, cases)
        ours.stop()
        for name in ("sendmail", "postfix"):
            receiver = Receiver()
            try:
                peer = Peer(name, work, receiver.port, bare=True, milter=probe.port)
            except NotHere as why:
                print(f"milters: skipped: {name}, {why}")
                continue
            found[name] = outcomes(name, peer.port, receiver, cases)
            peer.stop()
        probe.stop()
        good = compare(found, cases)
        print(f"milters: {len(cases)} cases under {', '.join(found)}" + ("" if good else ", some FAILED"))
        return good

    run("milters", every_server)


if __name__ == "__main__":
    main()
