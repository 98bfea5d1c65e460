#!/usr/bin/env python3
"""The generator of the rig: an open storm of SMTP sessions, and a history of each attempt and its answer.

    storm.py HISTORY RUN SEED HOST RATE SECONDS DOMAINS

RATE is messages a second; a session carries four of them, and no session waits for another one. Each attempt has an id of its
own and is never sent again under it, so what becomes of each can be told:

| `result` | |
|---|---|
| `ok` | 250 to the dot |
| `refused` | 4xx or 5xx |
| `unsent` | the connection ended before the dot was sent |
| `unknown` | the dot was sent, no answer came |

After `refused` and `unsent` the same content is sent again under another id, up to three times."""

import asyncio
import hashlib
import json
import random
import re
import sys
import time

PER_SESSION = 4
AT_ONCE = 400
# Longest wait for an answer; a real client waits for minutes.
PATIENCE = 25


class Gone(Exception):
    """The connection ended, or no answer came."""


class Unanswered(Exception):
    """The same, behind the dot."""


class Refused(Exception):
    """A reply that is not the hoped one."""


def size_of(choose):
    """Sizes of real mail: mostly small ones."""
    kind = choose.random()
    if kind < 0.80:
        return choose.randrange(500, 4_000)
    return choose.randrange(15_000, 60_000) if kind < 0.98 else choose.randrange(200_000, 400_000)


def message(tag, choose):
    """A message with this id. Lines begin with dots here and there."""
    head = f"X-Rig-Id: {tag}\r\nFrom: <{tag}@from.rig.test>\r\nTo: <{tag}@x>\r\nSubject: {tag}\r\n"
    head += f"Date: Sat, 28 Nov 2026 10:00:00 +0000\r\nMessage-ID: <{tag}@rig.test>\r\n\r\n"
    lines, left = [head.encode()], size_of(choose)
    while left > 0:
        line = (b".", b"")[choose.randrange(8) > 0] + b"%032x" % choose.getrandbits(128) * choose.randrange(1, 3) + b"\r\n"
        lines.append(line)
        left -= len(line)
    return b"".join(lines)


class Storm:
    def __init__(self, history, run, seed, host, rate, seconds, domains):
        self.history = open(history, "a", buffering=1)
        self.run, self.host, self.rate, self.seconds, self.domains = run, host, rate, seconds, domains
        self.choose = random.Random(seed)
        self.number = 0
        self.open = set()

    def write(self, **event):
        self.history.write(json.dumps({"at": time.time(), "elapsed": time.monotonic(), **event}) + "\n")

    async def go(self):
        end = time.monotonic() + self.seconds
        step = PER_SESSION / self.rate
        due = time.monotonic()
        while time.monotonic() < end:
            if len(self.open) < AT_ONCE:
                self.start([(self.domain(), 0) for _ in range(PER_SESSION)])
            due += step
            await asyncio.sleep(max(0, due - time.monotonic()))
        self.write(event="over")
        while self.open:
            await asyncio.wait(self.open)

    def domain(self):
        """One in fifty goes to a domain that refuses."""
        return "refused.rig.test" if self.choose.random() < 0.02 else f"d{self.choose.randrange(1, self.domains + 1)}.rig.test"

    def start(self, jobs):
        task = asyncio.create_task(self.session(jobs))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def session(self, jobs):
        """Sends messages over one connection; what was not taken is sent again a second later."""
        again = list(jobs)
        writer, node = None, None
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, 25, limit=1 << 16), 5)
            banner = await self.reply(reader)
            if not banner.startswith("220"):
                raise Refused(banner)
            node = banner.split(" ")[1].split(".")[0]
            await self.say(reader, writer, "EHLO gen.rig.test", "2")
            for job in jobs:
                at = job
                if await self.send(reader, writer, node, *job):
                    again.remove(job)
                else:
                    await self.say(reader, writer, "RSET", "2")
            writer.write(b"QUIT\r\n")
            await self.reply(reader)
        except Unanswered:
            again.remove(at)
        except (OSError, EOFError, asyncio.TimeoutError, Gone, Refused) as error:
            self.write(event="session", node=node, text=f"{type(error).__name__} {error}"[:200])
        finally:
            if writer is not None:
                writer.close()
        again = [(domain, tries + 1) for domain, tries in again if tries < 3]
        if again:
            await asyncio.sleep(1)
            self.start(again)

    async def send(self, reader, writer, node, domain, tries):
        """Sends a message. Returns whether it needs not be sent again; raises what ends the session."""
        self.number += 1
        tag = f"{self.run}-{self.number}"
        content = message(tag, self.choose)
        recipient = f"{tag}@{domain}"
        event = {"tag": tag, "node": node, "to": recipient, "tries": tries, "hash": hashlib.sha256(content).hexdigest()}
        began, dot = time.time(), False
        try:
            await self.say(reader, writer, f"MAIL FROM:<{tag}@from.rig.test>", "2")
            await self.say(reader, writer, f"RCPT TO:<{recipient}>", "2")
            await self.say(reader, writer, "DATA", "3")
            content = re.sub(rb"(?m)^\.", b"..", content)
            # In parts, so that a fault hits the middle of some.
            for at in range(0, len(content), 65_536):
                writer.write(content[at : at + 65_536])
                await asyncio.wait_for(writer.drain(), PATIENCE)
            dot = True
            reply = await self.say(reader, writer, ".", "2")
            self.write(event="sent", result="ok", id=reply_id(reply), began=began, **event)
            return True
        except Refused as error:
            self.write(event="sent", result="refused", text=str(error)[:200], began=began, **event)
            return False
        except (OSError, EOFError, asyncio.TimeoutError, Gone) as error:
            text = f"{type(error).__name__} {error}"[:200]
            self.write(event="sent", result="unknown" if dot else "unsent", text=text, began=began, **event)
            raise (Unanswered if dot else Gone)() from error

    async def say(self, reader, writer, text, wanted):
        writer.write(text.encode() + b"\r\n")
        await writer.drain()
        reply = await self.reply(reader)
        if not reply.startswith(wanted):
            raise Refused(reply)
        return reply

    async def reply(self, reader):
        while True:
            line = await asyncio.wait_for(reader.readline(), PATIENCE)
            if not line.endswith(b"\n"):
                raise Gone("connection closed")
            if line[3:4] != b"-":
                return line.decode(errors="replace").strip()


def reply_id(reply):
    """The queue id in a 250."""
    found = re.search(r"\b[0-9A-Za-z]{14,17}\b", reply)
    return found[0] if found else None


if __name__ == "__main__":
    history, run, seed, host, rate, seconds, domains = sys.argv[1:]
    asyncio.run(Storm(history, run, seed, host, float(rate), float(seconds), int(domains)).go())
