"""The servers: mailrace, and the peers that bench/peers/peer runs."""

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEER = HERE.parent / "peers" / "peer"


def until(condition, seconds=180):
    """Waits for a condition; returns its last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


class Mailrace:
    """A `mailrace serve` that passes everything on to one next hop; `user`: as whom it runs, if not as we do."""

    number = 0

    def __init__(self, program, work, next_hop, certificate=False, user=None, **settings):
        Mailrace.number += 1
        self.work = work / f"mailrace-{Mailrace.number}"
        self.work.mkdir()
        who = {}
        if user is not None:
            who = {"user": user, "group": user, "extra_groups": []}
            os.chown(self.work, user, user)
        tls = "starttls" if certificate else "none"
        values = {
            "hostname": "mailrace.example",
            "spool.path": self.work / "spool",
            "spool.free_min": "64MiB",
            "spool.ready_bytes": 0,
            "spool.segment_bytes": "4MiB",
            "log.path": self.work / "log",
            "log.level": 14,
            "control.path": self.work / "control",
            "server.shutdown_grace": "2s",
            # A peer that is slow on a busy machine defers no mail.
            "delivery.fast_connect_time": "30s",
            "delivery.fast_greeting_time": "1m",
            "delivery.fast_command_time": "1m",
            "route.smart_host": f'["[127.0.0.1]:{next_hop}"]',
            "listen": f'[{{address="127.0.0.1:0", tls="{tls}"}}]',
        }
        if certificate:
            values |= {"tls.certificate": work / "tls" / "certificate", "tls.key": work / "tls" / "key"}
        values |= {
            key.replace("__", "."): str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()
        }
        command = [program, "serve"]
        for key, value in values.items():
            command += ["--set", f"{key}={value}"]
        self.output = open(self.work / "output", "w+b")
        RUNNING.append(self)
        self.process = subprocess.Popen(
            command, stdout=self.output, stderr=subprocess.STDOUT, env={**os.environ, "MAILRACE_CONFIG": "/dev/null"}, **who
        )
        ready = until(lambda: self.process.poll() is not None or re.search(rb"ready on 127.0.0.1:(\d+)", self.says()))
        if not isinstance(ready, re.Match):
            self.stop()
            raise RuntimeError(f"mailrace did not start: {self.says().decode(errors='replace')}")
        self.port = int(ready[1])

    def says(self):
        return (self.work / "output").read_bytes()

    def log(self):
        return (self.work / "log").read_text(errors="replace")

    def stop(self):
        if self in RUNNING:
            RUNNING.remove(self)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()
        return "panicked" not in self.says().decode(errors="replace")


# What has to be stopped, however this ends.
RUNNING = []


def stop_all():
    for server in list(RUNNING):
        server.stop()


def run(name, rig):
    """Calls `rig` with a directory of its own, and ends the program: with status 0 if `rig` says that all went well, else with 1, and
    the directory stays. No server outlives this, whatever ends it."""

    def interrupted(_signal, _frame):
        stop_all()
        os._exit(1)

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"mailrace-{name}-"))
    # The servers deliver as users of their own, who go through it.
    work.chmod(0o755)
    went_well = False
    try:
        went_well = rig(work)
    finally:
        stop_all()
        if went_well:
            shutil.rmtree(work, ignore_errors=True)
        else:
            print(f"{name}: what happened lies in {work}")
    sys.exit(int(not went_well))


class NotHere(Exception):
    """A peer that cannot run on this machine, and why."""


class Peer:
    """Another server, in the mode `deliver` of bench/peers/peer; `milter`: the port of a filter that it asks."""

    def __init__(self, name, work, relay_to, bare=False, milter=None):
        self.name = name
        self.box = work / f"box-{name}-{'bare' if bare else 'full'}"
        self.box.mkdir()
        self.files = {}
        self.environment = {
            **os.environ,
            # Short: sockets of Postfix have it twice in their names.
            "INSTANCE": f"io{os.getpid()}{'b' if bare else ''}",
            "PORT": str(free_port()),
            "MAILBOX": str(self.box),
            "RELAY_TO": str(relay_to),
            "TLS": "" if bare else str(work / "tls"),
            "BARE": "yes" if bare else "",
            "MILTER": "" if milter is None else str(milter),
            "SIZE_MAX": "500000" if bare else "10240000",
        }
        self.port = int(self.environment["PORT"])
        RUNNING.append(self)
        started = self.command("start", "deliver")
        if started.returncode != 0:
            said = (started.stderr + started.stdout).strip()
            RUNNING.remove(self)
            if "is not installed" in said or "is there already" in said:
                raise NotHere(said.splitlines()[0].removeprefix("peer: "))
            raise RuntimeError(f"{name} did not start: {said}")

    def command(self, command, *arguments):
        arguments = [str(PEER), command, self.name, *arguments]
        # Into files: its daemons inherit the descriptors.
        with open(self.box.parent / f"{self.name}.out", "w+", errors="replace") as out:
            done = subprocess.run(arguments, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=300)
            out.seek(0)
            return subprocess.CompletedProcess(arguments, done.returncode, out.read(), "")

    def log(self):
        return self.command("log").stdout

    def can_do_tls(self):
        """Whether a handshake works with a client that is not mailrace."""
        command = ["openssl", "s_client", "-starttls", "smtp", "-connect", f"127.0.0.1:{self.port}", "-quiet"]
        done = subprocess.run(command, input=b"QUIT\r\n", capture_output=True, timeout=180)
        return b"alert" not in done.stderr and b"\n221 " in b"\n" + done.stdout

    def stored(self):
        """What lies in the mailboxes: (mailbox, octets)."""
        for path in self.box.glob("*/new/*"):
            if path not in self.files:
                self.files[path] = (path.parent.parent.name, path.read_bytes())
        return list(self.files.values())

    def stop(self):
        if self in RUNNING:
            RUNNING.remove(self)
            (self.box.parent / f"{self.box.name}.log").write_text(self.log())
            self.command("stop")


# What free_port() has given away.
GIVEN_PORTS = set()


def free_port():
    """Not one of those that the system gives to connections: until the peer binds it, one of them could take it.
    None is given twice: peers start side by side."""
    while True:
        port = random.randrange(20_000, 32_000)
        if port in GIVEN_PORTS:
            continue
        GIVEN_PORTS.add(port)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            pass
