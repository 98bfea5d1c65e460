#!/usr/bin/env python3
"""Checks that files or standard input are delivery reports a program understands, with Python's own mail parser.

    dsn.py [--action failed] [--recipient bob@example.org] [--status 5.1.1] [--to ann@example.net] [FILE...]
    dsn.py --self-test

Exit code 0: every message is a well-formed report (RFC 6522, RFC 3464) with what was asked for. 1: one is not; each
fault stands on a line of its own on standard error. 2: wrong use. Needs nothing beyond the standard library."""

import argparse
import email
import email.policy
import email.utils
import re
import sys

ACTIONS = {"failed", "delayed", "delivered", "relayed", "expanded"}
STATUS = re.compile(r"^[245]\.\d{1,3}\.\d{1,3}$")
CLASSES = {"failed": "45", "delayed": "4", "delivered": "2", "relayed": "2", "expanded": "2"}


def groups_of(part):
    """The groups of fields of message/delivery-status, or of its relative for UTF-8, which the parser does not split."""
    payload = part.get_payload()
    if isinstance(payload, list) and part.get_content_type() == "message/delivery-status":
        return payload
    text = part.get_payload(decode=True) or b"".join(bytes(each) for each in payload)
    pieces = [piece for piece in re.split(rb"\r?\n\r?\n", text) if piece.strip()]
    return [email.message_from_bytes(piece, policy=email.policy.compat32) for piece in pieces]


def faults_of(raw, wanted):
    faults = []
    say = faults.append
    message = email.message_from_bytes(raw, policy=email.policy.compat32)
    if message.get_content_type() != "multipart/report":
        return [f"content type is {message.get_content_type()}, not multipart/report"]
    if (message.get_param("report-type") or "").lower() != "delivery-status":
        say(f"report-type is {message.get_param('report-type')}")
    # Deeper there is what the sender wrote, which may be as broken as it likes.
    for part in [message, *(message.get_payload() if message.is_multipart() else [])]:
        for defect in part.defects:
            say(f"{part.get_content_type()}: {type(defect).__name__}")
    for name in ("From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Auto-Submitted"):
        if len(message.get_all(name, [])) != 1:
            say(f"{len(message.get_all(name, []))} fields {name}")
    if not str(message.get("Auto-Submitted", "")).lower().startswith("auto-"):
        say("Auto-Submitted does not begin with auto-")
    if email.utils.parsedate_to_datetime(message["Date"]) is None:
        say(f"Date is {message['Date']}")
    if wanted.to and email.utils.parseaddr(str(message["To"]))[1].lower() != wanted.to.lower():
        say(f"To is {message['To']}, not {wanted.to}")

    parts = message.get_payload()
    kinds = [part.get_content_type() for part in parts]
    if len(parts) not in (2, 3) or kinds[0] != "text/plain":
        return faults + [f"parts are {kinds}"]
    if kinds[1] not in ("message/delivery-status", "message/global-delivery-status"):
        return faults + [f"second part is {kinds[1]}"]
    returned = ("message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers")
    if len(parts) == 3 and kinds[2] not in returned:
        say(f"third part is {kinds[2]}")
    words = (parts[0].get_payload(decode=True) or b"").decode(parts[0].get_content_charset() or "ascii")
    if len(words.split()) < 10:
        say("the first part says next to nothing")

    groups = groups_of(parts[1])
    if not groups or "Reporting-MTA" not in groups[0]:
        return faults + ["no Reporting-MTA"]
    if len(groups) < 2:
        say("no recipient")
    found = False
    for group in groups[1:]:
        for name in ("Final-Recipient", "Action", "Status"):
            if len(group.get_all(name, [])) != 1:
                say(f"{len(group.get_all(name, []))} fields {name} of a recipient")
        action = str(group.get("Action", "")).strip().lower()
        status = str(group.get("Status", "")).strip()
        address = str(group.get("Final-Recipient", "")).partition(";")[2].strip()
        if action not in ACTIONS:
            say(f"Action is {action!r}")
        elif not STATUS.match(status) or status[0] not in CLASSES[action]:
            say(f"Status {status!r} does not go with {action}")
        found = found or (
            (not wanted.action or action == wanted.action)
            and (not wanted.status or status == wanted.status)
            and (not wanted.recipient or address.lower() == wanted.recipient.lower())
        )
    if not found:
        say(f"no recipient with action={wanted.action} status={wanted.status} address={wanted.recipient}")
    return faults


GOOD = b"""From: Mail Delivery System <MAILER-DAEMON@mail.example.net>
To: <ann@example.net>
Subject: Not delivered
Date: Fri, 20 Nov 2026 09:04:39 +0100
Message-ID: <1@mail.example.net>
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

Your message was not delivered to bob, and it will not be tried again.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mail.example.net

Final-Recipient: rfc822; bob@example.org
Action: failed
Status: 5.1.1

--b
Content-Type: text/rfc822-headers

Subject: x

--b--
"""


def self_test():
    def faults(raw, *arguments):
        return faults_of(raw, parser().parse_args(arguments))

    good = [[], ["--action", "failed", "--recipient", "BOB@example.org", "--status", "5.1.1", "--to", "ann@example.net"]]
    for arguments in good:
        assert not faults(GOOD, *arguments), faults(GOOD, *arguments)
    # Each of these must be seen.
    broken = [
        (b"multipart/report", b"multipart/mixed"),
        (b"delivery-status; boundary", b"disposition-notification; boundary"),
        (b"--b--\n", b""),
        (b"Auto-Submitted: auto-replied\n", b""),
        (b"Reporting-MTA", b"Repeating-MTA"),
        (b"Action: failed", b"Action: lost"),
        (b"Action: failed", b"Action: failed\nAction: delayed"),
        (b"Status: 5.1.1", b"Status: 2.1.1"),
        (b"Final-Recipient", b"Recipient"),
        (b"text/rfc822-headers", b"image/png"),
        (b"Your message was not delivered to bob, and it will not be tried again.", b"Sorry."),
        (b"Subject: Not", b"Subject: a\nSubject: Not"),
    ]
    for old, new in broken:
        assert old in GOOD and faults(GOOD.replace(old, new, 1)), f"{old} -> {new} was not seen"
    for arguments in (["--action", "delayed"], ["--recipient", "eve@example.org"], ["--to", "eve@example.org"]):
        assert faults(GOOD, *arguments), f"{arguments} was not seen"


def parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="check the checks")
    parser.add_argument("--action", choices=sorted(ACTIONS))
    parser.add_argument("--recipient")
    parser.add_argument("--status")
    parser.add_argument("--to")
    parser.add_argument("files", nargs="*")
    return parser


def main():
    arguments = parser().parse_args()
    if arguments.self_test:
        self_test()
        return 0
    bad = False
    for name in arguments.files or ["-"]:
        if name == "-":
            raw = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                raw = file.read()
        for fault in faults_of(raw, arguments):
            bad = True
            print(f"{name}: {fault}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
