#!/usr/bin/env python3
"""A client of one node beside the balancer, for the moments of a drain. It stands in for HAProxy, so it says who the client is.

    probe.py ADDRESS
    probe.py ADDRESS CLIENT VERSION TAG RECIPIENT

The first says nothing of a client, and prints what the node answers to that, or `closed`. The second opens a transaction up
to the middle of its content and prints `open`. Then for each line of standard input: `new` opens another session and prints
its first line; `end` ends the transaction and prints `HASH REPLY`."""

import hashlib
import ipaddress
import random
import socket
import sys

from storm import message


def header(version, client, server):
    """The PROXY header of a connection."""
    if version == "1":
        return f"PROXY TCP4 {client} {server} 40000 25\r\n".encode()
    addresses = ipaddress.ip_address(client).packed + ipaddress.ip_address(server).packed
    return b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + addresses + (40000).to_bytes(2, "big") + (25).to_bytes(2, "big")


class Conversation:
    def __init__(self, address, client, version):
        self.sock = socket.create_connection((address, 25), timeout=60)
        self.sock.sendall(header(version, client, address))
        self.lines = self.sock.makefile("rb")

    def reply(self):
        while True:
            line = self.lines.readline().decode(errors="replace")
            if line[3:4] != "-":
                return line.strip()

    def say(self, text):
        self.sock.sendall(text.encode() + b"\r\n")
        return self.reply()


def without_header(address):
    with socket.create_connection((address, 25), timeout=60) as sock:
        sock.sendall(b"EHLO probe.rig.test\r\n")
        try:
            return sock.makefile("rb").readline().decode(errors="replace").strip() or "closed"
        except OSError as error:
            return "closed" if isinstance(error, ConnectionError) else f"{error}"


def main():
    if len(sys.argv) == 2:
        print(without_header(sys.argv[1]))
        return
    address, client, version, tag, recipient = sys.argv[1:]
    talk = Conversation(address, client, version)
    talk.reply()
    for line in ("EHLO probe.rig.test", f"MAIL FROM:<{tag}@from.rig.test>", f"RCPT TO:<{recipient}>", "DATA"):
        reply = talk.say(line)
    if not reply.startswith("3"):
        sys.exit(f"no transaction: {reply}")
    content = message(tag, random.Random(1))
    wire = content.replace(b"\r\n.", b"\r\n..")
    talk.sock.sendall(wire[: len(wire) // 2])
    print("open", flush=True)
    for command in sys.stdin:
        try:
            if command.strip() == "new":
                print(Conversation(address, client, version).reply(), flush=True)
            else:
                talk.sock.sendall(wire[len(wire) // 2 :])
                print(hashlib.sha256(content).hexdigest(), talk.say("."), flush=True)
        except OSError as error:
            print(f"- {error}", flush=True)


if __name__ == "__main__":
    main()
