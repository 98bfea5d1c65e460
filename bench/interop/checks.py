"""What is tried with a peer, and how each result is proved.

A `Trial` is one mailrace between driver and peer, or behind the peer. Messages are told apart by a token in their Subject.
Whether TLS, PIPELINING and CHUNKING were used is not believed but read: in the octets of a tap, in the Received field that
the taking server wrote, and in logs."""

import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import messages
from servers import Mailrace, until
from wire import Client, Refused, Tap

DSN_CHECK = pathlib.Path(__file__).resolve().parent.parent / "checks" / "dsn.py"
MAIL = re.compile(rb"(?i)MAIL FROM:")
NOTIFY = "NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;Ann+2BOriginal@orig.example"


class Result:
    """Names what worked and what did not."""

    def __init__(self, peer, trial):
        self.peer, self.trial = peer, trial
        self.passed, self.failed, self.notes = [], [], []

    def check(self, name, fault):
        """`fault` is None or False if all is well, else what is wrong."""
        if fault:
            self.failed.append(f"{name}: {fault if fault is not True else 'no'}")
        else:
            self.passed.append(name)

    def note(self, text):
        self.notes.append(text)


def dsn_faults(content, **wanted):
    """What bench/checks/dsn.py has against a report."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        arguments = [argument for key, value in wanted.items() for argument in (f"--{key}", value)]
        done = subprocess.run([sys.executable, DSN_CHECK, *arguments, file.name], capture_output=True, text=True, timeout=180)
    return done.returncode != 0 and (done.stdout + done.stderr).strip()


def send(client, result, name, *arguments, **more):
    try:
        client.send(*arguments, **more)
    except Refused as refused:
        result.check(name, str(refused))


def reports(receiver, token):
    """Reports that came back about a message."""
    return [each for each in list(receiver.messages) if not each.sender and token.encode() in each.content]


def report_for(receiver, token, action=b"failed", by=b""):
    """The report on a message that `by` wrote, after a wait."""

    def find():
        for each in reports(receiver, token):
            lower = each.content.lower()
            if re.search(rb"(?m)^action: *" + action, lower) and re.search(rb"(?m)^reporting-mta: *dns; *" + by, lower):
                return each
        return None

    return until(find)


def relayed(receiver, token):
    return [each for each in list(receiver.messages) if each.sender and f"Subject: {token}\r".encode() in each.content]


def check_dsn(result, name, wanted_envid, message):
    """DSN parameters on a message that a peer or mailrace passed on."""
    if not message:
        return result.check(name, "did not arrive")
    params, recipient = message[0].params, message[0].recipients[0][1]
    got = (params.get("ENVID"), params.get("RET"), set(recipient.get("NOTIFY", "").upper().split(",")), recipient.get("ORCPT"))
    wanted = (wanted_envid, "HDRS", {"SUCCESS", "FAILURE"}, "rfc822;Ann+2BOriginal@orig.example")
    result.check(name, got != wanted and f"parameters are {got}, not {wanted}")


def to_peer(program, work, peer, receiver, trial, secured, expected, bare=False, **settings):
    """mailrace → peer. `secured`: TLS must have been used, or must not."""
    result = Result(peer.name, f"to {trial}")
    tap = Tap(peer.port)
    # What the peer lacks is asked for once more before it is final.
    retry = {"delivery__retry_first": "1s", "delivery__retry_max": "2s"}
    mailrace = Mailrace(program, work, tap.port, **{**retry, **settings})
    tag = f"{peer.name}-{'bare' if bare else 'full'}-{trial}".replace(" ", "-")
    token = lambda name: f"{tag}-{name}"
    try:
        offers = Client(peer.port)
        offered = offers.offers
        offers.close()
        client = Client(mailrace.port)
        sent = messages.contents(token)
        if bare:
            # There is a message of its own for the limit.
            sent["large"] = ("", sent["large"][1][:400_000].rpartition(b"\r\n")[0] + b"\r\n")
        for name, (params, content) in sent.items():
            send(client, result, name, "sender@back.example", ["ann@box.example"], content, params)
        small = lambda name: messages.head(token(name)) + b"Hello.\r\n"
        send(client, result, "open-end", "sender@back.example", ["ann@box.example"], small("open-end")[:-2], bdat=True)
        partial = ["ann@box.example", "nobody@box.example", "bob@box.example"]
        send(client, result, "partial", "sender@back.example", partial, small("partial"))
        ret = lambda name: f"RET=HDRS ENVID=env+3D{token(name)}"
        send(client, result, "dsn-final", "sender@back.example", [("ann@box.example", NOTIFY)], small("dsn-final"), ret("dsn-final"))
        send(client, result, "dsn-on", "sender@back.example", [("far@next.example", NOTIFY)], small("dsn-on"), ret("dsn-on"))
        utf8 = messages.head(token("utf8"), "X-Name: J\u00fcrgen \u03b1\r\n") + "Gr\u00fc\u00dfe\r\n".encode()
        send(client, result, "utf8", "sender@back.example", ["j\u00fcrgen@next.example"], utf8, "SMTPUTF8 BODY=8BITMIME")
        if bare:
            too_large = messages.head(token("too-large")) + messages.filler(600_000)
            send(client, result, "too-large", "sender@back.example", ["ann@box.example"], too_large)
        client.close()
        wanted = {**{name: content for name, (_, content) in sent.items()}, "open-end": small("open-end"), "dsn-final": small("dsn-final")}

        def stored(name, box="ann"):
            subject = f"\nSubject: {token(name)}\n".encode()
            return [octets for each, octets in peer.stored() if each == box and subject in octets]

        for name, content in wanted.items():
            got = until(lambda name=name: stored(name))
            if len(got) != 1:
                result.check(name, f"{len(got)} copies in the mailbox")
                continue
            lines = content.replace(b"\r\n", b"\n")
            if name == "eight-bit" and "8BITMIME" not in offered:
                result.check("eight-bit converted", converted_fault(got[0], lines))
            elif name == "long-lines":
                longest = max(len(line) for line in got[0].split(b"\n"))
                fault = f"a line of {longest} octets" if longest > 998 else converted_fault(got[0], lines)
                result.check("long lines encoded", fault)
            else:
                result.check(name, messages.difference(got[0], lines, 2))
        secure = [bool(re.search(rb"(?i)with\s+ESMTPS|version=TLS|\(TLS", first_received(octets))) for octets in stored("small")]
        result.check("TLS" if secured else "no TLS", secure != [secured] and f"{len(secure)} messages, TLS: {secure}")
        has_said = lambda: "STARTTLS=client, relay=" in mailrace.log()
        # A thread of its own writes the log.
        said = bool(until(has_said)) if secured else has_said()
        result.check("TLS in the log" if secured else "no TLS in the log", said != secured)
        if settings.get("route__tls") == "opportunistic" and not bare:
            has_failed = lambda: "STARTTLS=client, error: connect failed" in mailrace.log()
            result.check("failed handshakes in the log", not until(has_failed))

        boxes = until(lambda: len(stored("partial")) == len(stored("partial", "bob")) == 1)
        result.check("partial", not boxes and "it is not once in both mailboxes")
        report = report_for(receiver, token("partial"), by=b"mailrace")
        wants = {"recipient": "nobody@box.example", "to": "sender@back.example", "action": "failed"}
        result.check("partial: report", dsn_faults(report.content, **wants) if report else "none came")

        if "DSN" in offered:
            by, action = peer.name.encode(), b"delivered"
        else:
            by, action = b"mailrace", b"relayed"
        report = report_for(receiver, token("dsn-final"), action, by)
        if by == b"mailrace":
            fault = dsn_faults(report.content, action="relayed", recipient="ann@box.example") if report else "none came"
            result.check("success report by mailrace", fault)
        else:
            result.check(f"success report by {peer.name}", not report and "none came")
        if report:
            report_says(result, report, token("dsn-final"), expected if "DSN" in offered else {})
        on = until(lambda: relayed(receiver, token("dsn-on")))
        if "DSN" in offered:
            check_dsn(result, "DSN parameters through the peer", f"env+3D{token('dsn-on')}", on)
        else:
            result.check("relayed without DSN", not on and "it did not arrive")

        if "SMTPUTF8" in offered:
            got = until(lambda: relayed(receiver, token("utf8")))
            fault = "it did not arrive" if not got else messages.difference(got[0].content, utf8, 2)
            result.check("SMTPUTF8", fault)
        else:
            report = report_for(receiver, token("utf8"), by=b"mailrace")
            result.check("SMTPUTF8: report", dsn_faults(report.content, action="failed", status="5.6.7") if report else "none came")
        if bare:
            report = report_for(receiver, token("too-large"), by=b"mailrace")
            result.check("SIZE: report", dsn_faults(report.content, action="failed", status="5.3.4") if report else "none came")

        if not bare:
            one_connection = settings.get("delivery__connections_per_destination") == 1
            burst(result, mailrace, peer, receiver, token("burst"), each=30 if one_connection else 20)
        deferred = re.findall(r"stat=Deferred: [^\n]*", mailrace.log())
        if "SMTPUTF8" not in offered:
            asked_again = [line for line in deferred if line.endswith("does not offer SMTPUTF8")]
            result.check("SMTPUTF8: asked for once more", len(asked_again) != 1 and f"{len(asked_again)} times")
            deferred = [line for line in deferred if line not in asked_again]
        result.check("nothing deferred", deferred and deferred[0])
        if not secured:
            wire(result, tap, offered, settings)
            if "CHUNKING" in offered and settings.get("delivery__chunking", True):
                # What follows is the next command, or nothing.
                open_end = rb"(?s)Subject: " + token("open-end").encode() + rb"\r\n.*?\r\n\r\nHello\.(\Z|[A-Z]{4})"
                result.check("open-end: nothing added", not tap.saw(re.compile(open_end)))
            result.check("several messages over a connection", tap.count(MAIL) <= tap.taken and f"{tap.taken} connections")
        else:
            result.check("no command in clear", tap.saw(MAIL) and "MAIL before TLS")
            peer_saw_chunks(result, peer, offered, settings)
    finally:
        result.check("clean end of mailrace", not mailrace.stop())
        keep(result, mailrace)
        tap.close()
    return result


def burst(result, mailrace, peer, receiver, tag, clients=5, each=20):
    """Many messages at once, so that transactions follow each other on a connection without waiting; of some every recipient is
    refused, which must not touch those before and behind."""
    body = lambda at: messages.filler(at * 97 % 9_000) + b".\r\n..%d\r\n" % at
    sent = {at: messages.head(f"{tag}-{at}") + body(at) for at in range(clients * each)}
    is_refused = lambda at: at % 7 == 3

    def one(first):
        client = Client(mailrace.port)
        for at in range(first, clients * each, clients):
            to = ["nobody@box.example"] if is_refused(at) else ["eve@box.example"]
            send(client, result, f"burst {at}", "sender@back.example", to, sent[at])
        client.close()

    threads = [threading.Thread(target=one, args=(first,)) for first in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [at for at in sent if not is_refused(at)]
    subject = re.compile(rb"\nSubject: " + tag.encode() + rb"-(\d+)\n")

    def arrived():
        found = ((subject.search(octets[:4_000]), octets) for box, octets in peer.stored() if box == "eve")
        return [(int(match[1]), octets) for match, octets in found if match]

    until(lambda: len(arrived()) >= len(wanted), 300)
    got = arrived()
    numbers = sorted(at for at, _ in got)
    fault = numbers != wanted and f"{len(set(wanted) - set(numbers))} missing, {len(numbers) - len(set(numbers))} twice"
    result.check(f"burst of {len(wanted)}", fault)
    wrong = [f"{at} {fault}" for at, octets in got if (fault := messages.difference(octets, sent[at].replace(b"\r\n", b"\n"), 2))]
    result.check("burst: octets", wrong and f"{len(wrong)} altered, first: {wrong[0]}")
    refused = len(sent) - len(wanted)
    until(lambda: len(reports(receiver, tag)) >= refused)
    count = len(reports(receiver, tag))
    result.check("burst: reports", count != refused and f"{count} for {refused}")


def report_says(result, report, token, expected):
    """ENVID and ORCPT in a success report; servers differ in whether they undo xtext."""
    for name, field, wanted in (
        ("ENVID", b"Original-Envelope-Id", f"env={token}".encode()),
        ("ORCPT", b"Original-Recipient", b"rfc822;Ann+Original@orig.example"),
    ):
        found = re.search(rb"(?mi)^" + field + rb": *(.*?)\r?$", report.content)
        value = found and found[1].replace(b"+3D", b"=").replace(b"+2B", b"+").replace(b" ", b"")
        # What is known of a server stays a check: a newer version that does better is to be noticed.
        if name in expected.get("not in reports", ()):
            result.check(f"no {name} in the report", value and f"it has {value}")
        else:
            result.check(f"{name} in the report", value != wanted and f"{field.decode()} is {value}")


def wire(result, tap, offered, settings):
    """What the tap saw of PIPELINING and CHUNKING, either way."""
    pipelining = "PIPELINING" in offered and settings.get("delivery__pipelining", True)
    chunking = "CHUNKING" in offered and settings.get("delivery__chunking", True)
    result.check("PIPELINING" if pipelining else "no PIPELINING", tap.saw(Tap.PIPELINED) != pipelining)
    result.check("BDAT" if chunking else "no BDAT", tap.saw(Tap.CHUNKED) != chunking)
    result.check("no DATA" if chunking else "DATA", tap.saw(Tap.COMMAND_DATA) == chunking)


def peer_saw_chunks(result, peer, offered, settings):
    """Inside TLS only the peer knows; Postfix counts commands, Exim marks messages."""
    marks = {"postfix": r"disconnect from .* starttls=1 .*bdat=\d", "exim": r"<= sender@back.example .*P=esmtps L\.? .* K "}
    if peer.name in marks and "CHUNKING" in offered and settings.get("delivery__chunking", True):
        found = until(lambda: re.search(marks[peer.name], peer.log()))
        result.check("BDAT inside TLS", not found and f"the log of {peer.name} has no line like {marks[peer.name]}")


def first_received(octets):
    """The uppermost Received field: that of the server which took the message last."""
    found = re.search(rb"(?mi)^Received:[^\n]*\n([ \t][^\n]*\n)*", octets)
    return found[0] if found else b""


def converted_fault(got, sent):
    """Content made 7-bit, for a peer without 8BITMIME or for its long lines: the same when decoded."""
    import email
    import email.policy

    if any(octet > 127 for octet in got):
        return "there are still octets over 127"
    body = email.message_from_bytes(got, policy=email.policy.compat32).get_payload(decode=True)
    wanted = sent.partition(b"\n\n")[2]
    return None if body.replace(b"\r\n", b"\n") == wanted else f"decodes to {body[:60]!r}"


def keep(result, mailrace):
    """The log, if something failed."""
    if result.failed:
        result.note(f"logs: {mailrace.work}")


def refuses_without_tls(program, work, peer, receiver):
    """The control: with route.tls = "required" nothing goes to a peer without a certificate, and what looks for TLS says so."""
    result = Result(peer.name, "to, TLS required and not offered")
    tap = Tap(peer.port)
    mailrace = Mailrace(program, work, tap.port, route__tls="required")
    token = f"{peer.name}-bare-required"
    try:
        client = Client(mailrace.port)
        client.send("sender@back.example", ["ann@box.example"], messages.head(token) + b"Hello.\r\n")
        client.close()
        line = until(lambda: re.search(r"stat=Deferred: [^\n]*", mailrace.log()))
        result.check("deferred", not line and "no line in the log")
        result.check("the reason names TLS", line and not re.search("TLS", line[0]) and line[0])
        result.check("nothing sent", tap.saw(MAIL))
        there = any(token.encode() in octets for _, octets in peer.stored())
        result.check("not in the mailbox", there)
    finally:
        result.check("clean end of mailrace", not mailrace.stop())
        keep(result, mailrace)
        tap.close()
    return result


def sees_damage(program, work, peer):
    """The control: between mailrace and peer a dot and a letter are changed, and the comparison must see both."""
    result = Result(peer.name, "to, damaged on the way")

    class Damaging(Tap):
        @staticmethod
        def carry(source, sink, record=None):
            class Sink:
                def sendall(self, piece):
                    sink.sendall(piece.replace(b"\n...dots", b"\n..dots").replace(b"Hello", b"Hallo"))

                def shutdown(self, how):
                    sink.shutdown(how)

            Tap.carry(source, Sink(), record)

    tap = Damaging(peer.port)
    mailrace = Mailrace(program, work, tap.port, route__tls="none", delivery__chunking=False)
    sent = {"dot": b"..dots\r\n", "letter": b"Hello.\r\n", "nothing": b"Welcome.\r\n"}
    try:
        client = Client(mailrace.port)
        for name, body in sent.items():
            client.send("sender@back.example", ["ann@box.example"], messages.head(f"damaged-{name}") + body)
        client.close()
        for name, body in sent.items():
            stored = lambda: [octets for _, octets in peer.stored() if f"\nSubject: damaged-{name}\n".encode() in octets]
            got = until(stored)
            content = (messages.head(f"damaged-{name}") + body).replace(b"\r\n", b"\n")
            seen = got and messages.difference(got[0], content, 2) is not None
            result.check(f"damage: {name}", seen != (name != "nothing") and f"difference seen: {seen}")
    finally:
        result.check("clean end of mailrace", not mailrace.stop())
        keep(result, mailrace)
        tap.close()
    return result


def from_peer(program, work, peer, tap, receiver, secured, expected):
    """peer → mailrace → receiver. `tap` stands between peer and mailrace; it goes back to the receiver."""
    trial = "with TLS" if secured else "in clear"
    result = Result(peer.name, f"from {trial}")
    mailrace = Mailrace(program, work, receiver.port, certificate=secured)
    token = lambda name: f"{peer.name}-from-{'tls' if secured else 'clear'}-{name}"
    back = tap.target
    tap.turn(mailrace.port)
    try:
        client = Client(peer.port)
        sent = messages.contents(token, line_max=998)
        recipients = ["one@next.example", "two@next.example", "refused@next.example"]
        for name, (params, content) in sent.items():
            send(client, result, name, "sender@back.example", ["far@next.example"], content, params)
        small = lambda name: messages.head(token(name)) + b"Hello.\r\n"
        send(client, result, "several", "sender@back.example", recipients, small("several"))
        envid = f"env+3D{token('dsn')}"
        if "DSN" in client.offers:
            send(client, result, "dsn", "sender@back.example", [("far@next.example", NOTIFY)], small("dsn"), f"RET=HDRS ENVID={envid}")
        utf8 = messages.head(token("utf8"), "X-Name: J\u00fcrgen \u03b1\r\n") + "Gr\u00fc\u00dfe\r\n".encode()
        if "SMTPUTF8" in client.offers:
            send(client, result, "utf8", "sender@back.example", ["j\u00fcrgen@next.example"], utf8, "SMTPUTF8 BODY=8BITMIME")
        many = {f"many-{at}": small(f"many-{at}") for at in range(40)}
        for name, content in many.items():
            send(client, result, name, "sender@back.example", ["far@next.example"], content)
        client.close()
        numbers = lambda: sum(len(relayed(receiver, token(name))) for name in many)
        until(lambda: numbers() >= len(many))
        faults = [name for name in many if len(relayed(receiver, token(name))) != 1]
        result.check(f"burst of {len(many)}", faults and f"not once: {faults[:5]}")
        for name, (_, content) in sent.items():
            got = until(lambda name=name: relayed(receiver, token(name)))
            result.check(name, messages.difference(got[0].content, content, 2) if len(got) == 1 else f"{len(got)} copies")
        # A server may give each recipient a transaction of its own.
        names = lambda: sorted(one for each in relayed(receiver, token("several")) for one, _ in each.recipients)
        until(lambda: len(names()) >= 2)
        result.check("several", names() != sorted(recipients[:2]) and f"it came for {names()}")
        report = report_for(receiver, token("several"), by=b"mailrace")
        wants = {"recipient": "refused@next.example", "to": "sender@back.example", "action": "failed"}
        result.check("several: report", dsn_faults(report.content, **wants) if report else "none came")
        if "DSN" in client.offers:
            check_dsn(result, "DSN parameters", envid, until(lambda: relayed(receiver, token("dsn"))))
        if "SMTPUTF8" in client.offers:
            got = until(lambda: relayed(receiver, token("utf8")))
            result.check("SMTPUTF8", messages.difference(got[0].content, utf8, 2) if got else "it did not arrive")
        received = [each.content for each in relayed(receiver, token("small"))]
        ours = [first_received(content) for content in received]
        is_secure = [bool(re.search(rb"with (UTF8)?ESMTPS", field)) for field in ours]
        result.check("TLS" if secured else "no TLS", is_secure != [secured] and f"{ours}")
        has_said = lambda: "STARTTLS=server" in mailrace.log()
        # A thread of its own writes the log.
        said = bool(until(has_said)) if secured else has_said()
        result.check("TLS in the log" if secured else "no TLS in the log", said != secured)
        if not secured:
            result.check("PIPELINING" if expected["pipelining"] else "no PIPELINING", tap.saw(Tap.PIPELINED) != expected["pipelining"])
            result.check("BDAT" if expected["chunking"] else "no BDAT", tap.saw(Tap.CHUNKED) != expected["chunking"])
        else:
            result.check("no command in clear", tap.saw(MAIL) and "MAIL before TLS")
    finally:
        tap.turn(back)
        result.check("clean end of mailrace", not mailrace.stop())
        keep(result, mailrace)
    return result
