#!/usr/bin/env python3
"""The receiver of the rig: an SMTP server for many domains that writes down what comes, and when.

    sink.py HISTORY SCRIPT ADDRESS...

HISTORY gets a line of JSON for each event. SCRIPT is a file that is read again when it changes: `{"DOMAIN": RULE}`, `"*"` for
all other domains. A rule has any of these:

| | |
|---|---|
| `"act": "away"` | connections are closed at once |
| `"act": "later"`, `"refuse"` | 451, 550 to RCPT |
| `"act": "drop", "part": P` | of this part the connection is closed behind the dot; such a message counts as not taken |
| `"hold": N`, `"slow": N` | seconds before the answer to DATA, to the dot |"""

import asyncio
import hashlib
import json
import os
import random
import re
import sys
import time

TAG = re.compile(rb"^X-Rig-Id: (\S+)\r\n", re.M)
DOT = b"\r\n.\r\n"


def digest(content):
    """Hash of what the generator sent: the tag and all behind it, because each server adds fields in front."""
    found = TAG.search(content)
    return (found[1].decode(), hashlib.sha256(content[found.start() :]).hexdigest()) if found else (None, None)


class Sink:
    def __init__(self, history, script):
        self.history = open(history, "a", buffering=1)
        self.script_path = script
        self.script_time = None
        self.script = {}
        self.active = {}

    def write(self, **event):
        self.history.write(json.dumps({"at": time.time(), **event}) + "\n")

    def rule(self, domain):
        try:
            changed = os.stat(self.script_path).st_mtime_ns
            if changed != self.script_time:
                with open(self.script_path) as file:
                    self.script = json.load(file)
                self.script_time = changed
        except (OSError, ValueError):
            pass
        return self.script.get(domain, self.script.get("*", {}))

    async def serve(self, reader, writer):
        session = Session(self, reader, writer)
        try:
            await session.run()
        except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass
        finally:
            session.leave()
            writer.close()


class Session:
    """A connection of a node."""

    def __init__(self, sink, reader, writer):
        self.sink, self.reader, self.writer = sink, reader, writer
        self.peer = writer.get_extra_info("peername")[0]
        self.domain = None
        self.reset()

    def reset(self):
        self.sender, self.recipients, self.begun = None, [], None

    def enter(self, domain):
        """The transaction counts for its domain until its end."""
        if self.domain is None:
            self.domain = domain
            active = self.sink.active
            active[domain] = active.get(domain, 0) + 1
            self.sink.write(event="active", domain=domain, count=active[domain])

    def leave(self):
        if self.domain is not None:
            self.sink.active[self.domain] -= 1
            self.domain = None

    async def line(self):
        return await asyncio.wait_for(self.reader.readuntil(b"\n"), 120)

    def say(self, text):
        self.writer.write(text.encode() + b"\r\n")

    async def run(self):
        # Each domain of a storm has an address of its own.
        number = self.writer.get_extra_info("sockname")[0].rpartition(".")[2]
        if self.sink.rule(f"d{number}.rig.test").get("act") == "away":
            return
        self.say("220 sink.rig.test ESMTP")
        while True:
            line = (await self.line()).rstrip(b"\r\n").decode(errors="replace")
            verb = line.split(" ")[0].split(":")[0].upper()
            if verb == "EHLO":
                self.say("250-sink.rig.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SIZE\r\n250 ENHANCEDSTATUSCODES")
            elif verb == "MAIL":
                self.leave()
                self.reset()
                self.sender, self.begun = line.partition("<")[2].partition(">")[0], time.time()
                self.say("250 2.1.0 ok")
            elif verb == "RCPT":
                self.recipient(line)
            elif verb == "DATA":
                if not self.recipients:
                    self.say("503 5.5.1 no recipient")
                elif not await self.content():
                    return
            elif verb in ("RSET", "NOOP", "HELO"):
                self.leave()
                self.reset()
                self.say("250 2.0.0 ok")
            elif verb == "QUIT":
                self.say("221 2.0.0 bye")
                await self.writer.drain()
                return
            else:
                self.say("502 5.5.1 what?")
            await self.writer.drain()

    def recipient(self, line):
        address = line.partition("<")[2].partition(">")[0]
        domain = address.rpartition("@")[2]
        act = self.sink.rule(domain)
        self.enter(domain)
        if act.get("act") == "later":
            self.say("451 4.2.0 not now")
        elif act.get("act") == "refuse":
            self.say("550 5.1.1 nobody here")
        else:
            self.recipients.append(address)
            self.sink.write(event="start", peer=self.peer, to=address, begun=self.begun)
            self.say("250 2.1.5 ok")

    async def content(self):
        """Takes a message. Returns whether the connection goes on."""
        if pause := self.sink.rule(self.domain).get("hold", 0):
            await asyncio.sleep(pause)
        self.say("354 go on")
        await self.writer.drain()
        # What follows is the next command: a client may send it with the dot.
        data = await asyncio.wait_for(self.reader.readuntil(DOT), 120)
        dot_at = time.time()
        content = data[:-3].replace(b"\r\n..", b"\r\n.")
        tag, hashed = digest(content)
        act = self.sink.rule(self.recipients[0].rpartition("@")[2])
        dropped = act.get("act") == "drop" and random.random() < act.get("part", 1)
        if pause := act.get("slow", 0):
            await asyncio.sleep(pause)
        event = {"peer": self.peer, "from": self.sender, "to": self.recipients, "begun": self.begun, "dot": dot_at}
        event |= {"tag": tag, "hash": hashed, "size": len(content)}
        if dropped:
            self.sink.write(event="dropped", **event)
            return False
        self.sink.write(event="delivered", **event)
        self.leave()
        self.reset()
        self.say("250 2.0.0 taken")
        return True


async def main():
    history, script, *addresses = sys.argv[1:]
    sink = Sink(history, script)
    servers = [await asyncio.start_server(sink.serve, address, 25, limit=4 << 20, backlog=500) for address in addresses]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
