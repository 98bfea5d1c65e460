"""The messages that are sent, and how to see that one arrived unchanged."""

import hashlib
import re


def head(token, extra=""):
    """Header fields that no server has a reason to add to or to change."""
    return (
        f"From: Sender <sender@back.example>\r\nTo: Ann <ann@box.example>\r\nSubject: {token}\r\n"
        f"Message-ID: <{token}@driver.example>\r\nDate: Fri, 20 Nov 2026 12:00:00 +0000\r\nMIME-Version: 1.0\r\n{extra}\r\n"
    ).encode()


def filler(octets):
    """Lines that look random and are the same each time."""
    lines, number = [], 0
    while octets > 0:
        lines.append(hashlib.sha256(b"%d" % number).hexdigest().encode() + b"\r\n")
        octets -= len(lines[-1])
        number += 1
    return b"".join(lines)


DOTS = b".\r\n..\r\n...\r\n.a\r\n. \r\n\r\n.\r\n.\r\n\r\na.\r\nb\r\n.."
EIGHT_BIT = "Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n"
# RFC 5321 §4.5.3.1.6 allows 998 octets in a line; some senders write more.
LONG = b"\r\n".join(b"%d:" % length + b"x" * (length - 1 - len(str(length))) for length in (998, 1000, 1900))


def contents(token, line_max=10_000):
    """Name, parameters of MAIL, content."""
    eight_bit = bytes(range(0xA0, 0x100)) + b"\r\n" + "Grüße".encode("latin-1") + b"\r\n"
    long_lines = [line for line in LONG.split(b"\r\n") if len(line) <= line_max]
    return {
        "small": ("", head(token("small")) + b"Hello.\r\n"),
        "large": ("", head(token("large")) + filler(1_000_000)),
        "dots": ("", head(token("dots")) + DOTS + b"\r\n"),
        "eight-bit": ("BODY=8BITMIME", head(token("eight-bit"), EIGHT_BIT) + eight_bit),
        "long-lines": ("", head(token("long-lines")) + b"\r\n".join(long_lines) + b"\r\n"),
        "empty-body": ("", head(token("empty-body"))),
    }


# What a server may write in front of a message.
TRACE = re.compile(
    rb"(From |>From )[^\n]*\n|(Return-Path|Received|Delivered-To|X-Original-To|Envelope-To|Delivery-Date)"
    rb":[^\n]*\n([ \t][^\n]*\n)*",
    re.IGNORECASE,
)


def difference(got, sent, hops):
    """What is wrong with a message as it was stored, compared octet for octet; None if nothing is. In front of it there may
    be trace fields alone, with as many Received as there were hops."""
    if not got.endswith(sent):
        at = next((at for at in range(min(len(got), len(sent))) if got[-1 - at] != sent[-1 - at]), len(got))
        return f"differs {at} octets before its end: {got[-at - 40:][:80]!r} for {sent[-at - 40:][:80]!r}"
    front = got[: len(got) - len(sent)]
    rest = TRACE.sub(b"", front)
    if rest:
        return f"has {rest[:200]!r} in front of it"
    count = len(re.findall(rb"(?mi)^Received:", front))
    return None if count == hops else f"has {count} fields Received in front of it, not {hops}"


def controls():
    """The comparison must see what servers are known to do to mail; returns what it missed."""
    sent = head("control", EIGHT_BIT) + DOTS + b"\r\n\xe4\r\n"
    hop = b"Received: from a\r\n\tby b\r\n"
    altered = {
        "a lost dot": sent.replace(b"\r\n..", b"\r\n.", 1),
        "a doubled dot": sent.replace(b"\r\n..", b"\r\n...", 1),
        "a lost octet at the end": sent[:-1],
        "an octet more": sent + b"\n",
        "a cleared eighth bit": sent.replace(b"\xe4", b"\x64"),
        "a broken line": sent.replace(b"Message-ID: ", b"Message-ID:\r\n "),
        "a field in front": b"X-Added: 1\r\n" + sent,
    }
    missed = [name for name, got in altered.items() if difference(hop + got, sent, 1) is None]
    if difference(hop + sent, sent, 2) is None:
        missed.append("a hop too few")
    if difference(hop + sent, sent, 1) is not None:
        missed.append("nothing altered")
    return missed
