#!/usr/bin/env python3
"""A client that sends messages one after another to a node, and writes each answer into a history like that of a storm.

    messages.py HISTORY RUN FIRST COUNT ADDRESS PORT TO

Message number FIRST has the tag RUN-FIRST. TO is the address of all, or a domain, where each goes to the name of its tag.
Prints for each, as JSON: its tag, the first line of the answer, and the seconds until that came."""

import hashlib
import json
import random
import smtplib
import sys
import time

from storm import message, reply_id


class Client(smtplib.SMTP):
    """The library sends the content as it is, so that its hash is that of the receiver."""

    def ehlo_of(self):
        self.ehlo("gen.rig.test")


def send(address, port, tag, recipient, content):
    """The answer to a message, or why there is none; and the node's name."""
    node = None
    try:
        client = Client(timeout=60)
        _, banner = client.connect(address, port)
        node = banner.decode(errors="replace").split(" ")[0].split(".")[0]
        client.ehlo_of()
        for code, text in (client.mail(f"{tag}@from.rig.test"), client.rcpt(recipient)):
            if code // 100 != 2:
                return node, f"{code} {text.decode(errors='replace')}"
        code, text = client.data(content)
        client.close()
        return node, f"{code} {text.decode(errors='replace')}"
    except (OSError, smtplib.SMTPException) as error:
        return node, f"- {type(error).__name__} {error}"


def main():
    history, run, first, count, address, port, to = sys.argv[1:]
    choose = random.Random(f"{run} {first}")
    answers = []
    with open(history, "a", buffering=1) as file:
        for number in range(int(first), int(first) + int(count)):
            tag = f"{run}-{number}"
            content, recipient = message(tag, choose), to if "@" in to else f"{tag}@{to}"
            began = time.monotonic()
            node, answer = send(address, int(port), tag, recipient, content)
            result = {"2": "ok", "4": "refused", "5": "refused"}.get(answer[:1], "unknown")
            event = {"event": "sent", "at": time.time(), "tag": tag, "node": node, "to": recipient, "result": result}
            event |= {"text": answer, "id": reply_id(answer), "hash": hashlib.sha256(content).hexdigest()}
            file.write(json.dumps(event) + "\n")
            answers.append([tag, answer.splitlines()[0], time.monotonic() - began])
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
