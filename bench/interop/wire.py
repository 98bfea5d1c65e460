"""What speaks SMTP here besides the servers: a client that sends any octets, a receiver that records everything, and a tap
between two servers that sees how they speak. Loopback only; each has its own threads, which end with `close()`."""

import re
import socket
import threading
import time


class Lines:
    """Reads lines and counted octets from a socket."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def more(self):
        piece = self.sock.recv(65536)
        if not piece:
            raise EOFError
        self.buffer += piece

    def line(self):
        while b"\n" not in self.buffer:
            self.more()
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def octets(self, count):
        while len(self.buffer) < count:
            self.more()
        octets, self.buffer = self.buffer[:count], self.buffer[count:]
        return octets

    def content(self):
        """Up to the lone dot, dots undone."""
        self.buffer = b"\r\n" + self.buffer
        looked = 0
        while (end := self.buffer.find(b"\r\n.\r\n", looked)) < 0:
            looked = max(0, len(self.buffer) - 4)
            self.more()
        content, self.buffer = self.buffer[2 : end + 2], self.buffer[end + 5 :]
        return re.sub(rb"(?m)^\.", b"", content) if content else b""


class Refused(Exception):
    """A reply that is not what was hoped for."""


class Client:
    """A conversation with a server, one command at a time."""

    def __init__(self, port, source="127.0.0.1"):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=180, source_address=(source, 0))
        self.lines = Lines(self.sock)
        self.reply()
        said = self.say(b"EHLO driver.example")
        self.offers = {line[4:].split(b" ")[0].upper().decode() for line in said[1:]}

    def reply(self):
        lines = [self.lines.line()]
        while lines[-1][3:4] == b"-":
            lines.append(self.lines.line())
        return lines

    def say(self, command, wanted=b"2"):
        self.sock.sendall(command + b"\r\n")
        reply = self.reply()
        if not reply[-1].startswith(wanted):
            raise Refused(f"{command[:100]!r} was answered {reply[-1]!r}")
        return reply

    def send(self, sender, recipients, content, params="", bdat=False):
        """Sends a message; recipients are addresses or pairs of address and parameters."""
        self.say(f"MAIL FROM:<{sender}> {params}".strip().encode())
        for recipient in recipients:
            address, its = recipient if isinstance(recipient, tuple) else (recipient, "")
            self.say(f"RCPT TO:<{address}> {its}".strip().encode())
        if bdat:
            self.sock.sendall(b"BDAT %d LAST\r\n" % len(content) + content)
            reply = self.reply()
            if not reply[-1].startswith(b"2"):
                raise Refused(f"BDAT was answered {reply[-1]!r}")
            return
        self.say(b"DATA", b"3")
        if not content.endswith(b"\r\n"):
            raise ValueError("content without a final line ending goes by BDAT only")
        self.say(re.sub(rb"(?m)^\.", b"..", content) + b".")

    def close(self):
        try:
            self.say(b"QUIT")
        finally:
            self.sock.close()


class Listener:
    """A port of 127.0.0.1 with a thread for each connection."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        self.open = set()
        self.is_over = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.open.add(sock)
            threading.Thread(target=self.attend, args=(sock,), daemon=True).start()

    def attend(self, sock):
        try:
            self.serve(sock)
        except (OSError, EOFError):
            pass
        finally:
            self.open.discard(sock)
            sock.close()

    def serve(self, sock):
        raise NotImplementedError

    def hang_up(self):
        """Ends all connections."""
        for sock in list(self.open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.is_over = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.hang_up()


class Received:
    """A message that a Receiver took."""

    def __init__(self, sender, params, recipients, content, command):
        self.sender = sender
        self.params = params
        self.recipients = recipients
        self.content = content
        self.command = command


def path(argument):
    """`FROM:<a@b> X=y` as address and its parameters, keywords in upper case."""
    address, _, params = argument.partition(b"<")[2].partition(b">")
    pairs = (word.partition("=") for word in params.decode("utf-8", "replace").split())
    return address.decode("utf-8", "replace"), {name.upper(): value for name, _, value in pairs}


class Receiver(Listener):
    """Takes every message and remembers it; recipients that begin with "refused" are refused."""

    OFFERS = ("PIPELINING", "SIZE 20000000", "8BITMIME", "DSN", "CHUNKING", "SMTPUTF8", "ENHANCEDSTATUSCODES")

    def __init__(self, offers=OFFERS):
        self.messages = []
        self.offers = offers
        super().__init__()

    def refuses(self, recipient):
        """The reply for a recipient who is not taken."""
        return "550 5.1.1 there is no such person" if recipient.startswith("refused") else None

    def serve(self, sock):
        lines = Lines(sock)
        say = lambda text: sock.sendall(text.encode() + b"\r\n")
        say("220 receiver.example ESMTP")
        sender, params, recipients, chunks = None, {}, [], b""
        while True:
            line = lines.line()
            verb, _, argument = line.partition(b" ")
            verb = verb.upper()
            if verb in (b"EHLO", b"HELO"):
                says = ["receiver.example", *(self.offers if verb == b"EHLO" else ())]
                say("\r\n".join(f"250{'-' if at + 1 < len(says) else ' '}{text}" for at, text in enumerate(says)))
            elif verb == b"MAIL":
                sender, params = path(argument)
                recipients, chunks = [], b""
                say("250 2.1.0 ok")
            elif verb == b"RCPT":
                recipient = path(argument)
                if refusal := self.refuses(recipient[0]):
                    say(refusal)
                    continue
                recipients.append(recipient)
                say("250 2.1.5 ok")
            elif verb == b"DATA" and recipients:
                say("354 go on")
                self.messages.append(Received(sender, params, recipients, lines.content(), "DATA"))
                say("250 2.0.0 taken")
            elif verb == b"BDAT":
                size, *last = argument.split()
                chunks += lines.octets(int(size))
                if last and recipients:
                    self.messages.append(Received(sender, params, recipients, chunks, "BDAT"))
                say("250 2.0.0 taken" if recipients else "503 5.5.1 no recipients")
            elif verb == b"QUIT":
                return say("221 2.0.0 bye")
            elif verb in (b"RSET", b"NOOP"):
                say("250 2.0.0 ok")
            else:
                say("503 5.5.1 not now")


class Tap(Listener):
    """Passes connections on to `target` and remembers what the clients said, read by read."""

    PIPELINED = re.compile(rb"(?mi)^(MAIL FROM|RCPT TO):[^\r\n]*\r\n(RCPT TO:|DATA\r\n|BDAT )")
    CHUNKED = re.compile(rb"(?mi)^BDAT \d+")
    COMMAND_DATA = re.compile(rb"(?mi)^DATA\r\n")
    SECURED = re.compile(rb"(?mi)^STARTTLS\r\n")

    def __init__(self, target):
        self.target = target
        self.said = []
        self.taken = 0
        super().__init__()

    def serve(self, sock):
        self.taken += 1
        with socket.create_connection(("127.0.0.1", self.target), timeout=60) as other:
            other.settimeout(None)
            back = threading.Thread(target=self.carry, args=(other, sock), daemon=True)
            back.start()
            self.carry(sock, other, self.said)
            back.join(20)

    @staticmethod
    def carry(source, sink, record=None):
        try:
            while piece := source.recv(65536):
                if record is not None:
                    record.append(piece)
                sink.sendall(piece)
        except OSError:
            pass
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def turn(self, target):
        """Connections go elsewhere from now on, and what was said is forgotten. Those that a server keeps for more mail are left
        to it for a while: OpenSMTPD finds out that one was closed only when it uses it, and then its mail waits."""
        self.target = target
        end = time.monotonic() + 15
        while self.open and time.monotonic() < end:
            time.sleep(0.02)
        self.hang_up()
        self.said = []

    def count(self, what):
        return sum(len(what.findall(piece)) for piece in list(self.said))

    def saw(self, what):
        """Whether one read had it: two commands in one read were sent without waiting for a reply."""
        return any(what.search(piece) for piece in list(self.said))
