#!/usr/bin/env python3
"""Has mailrace relay to Postfix, Exim, sendmail and OpenSMTPD, and take mail from them, and looks at every octet.

    against-peers.py PROGRAM [NAME...]

PROGRAM is a mailrace. Each peer runs twice: with everything it can do, and bare, without a certificate and with what it can
hide hidden. Peers that are not installed are named as skipped; bench/peers/peer install gets them. Only loopback, free
ports. Exit status: 0 if all that could be tried works, 1 otherwise."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import checks
import messages
from servers import NotHere, Peer, run
from wire import Client, Receiver, Tap

NAMES = ("postfix", "exim", "sendmail", "opensmtpd")
# What each offers when it can, so that one that is set up wrongly is no weaker test without a word; and what it uses when it
# sends.
OFFERS = {
    "postfix": {"STARTTLS", "PIPELINING", "8BITMIME", "DSN", "CHUNKING", "SMTPUTF8"},
    "exim": {"STARTTLS", "PIPELINING", "8BITMIME", "DSN", "CHUNKING", "SMTPUTF8"},
    "sendmail": {"STARTTLS", "PIPELINING", "8BITMIME", "DSN"},
    "opensmtpd": {"STARTTLS", "8BITMIME", "DSN"},
}
BARE = {"postfix": {"PIPELINING"}, "exim": {"PIPELINING"}, "sendmail": {"PIPELINING", "8BITMIME"}, "opensmtpd": {"8BITMIME"}}
EXPECTED = {
    "postfix": {"pipelining": True, "chunking": False},
    "exim": {"pipelining": True, "chunking": True},
    "sendmail": {"pipelining": True, "chunking": False},
    "opensmtpd": {"pipelining": False, "chunking": False, "not in reports": ("ENVID", "ORCPT")},
}


def offers_fault(peer, wanted):
    client = Client(peer.port)
    client.close()
    known = set().union(*OFFERS.values())
    return client.offers & known != wanted and f"it offers {sorted(client.offers)}"


def try_full(name, program, work, done):
    receiver = Receiver()
    tap = Tap(receiver.port)
    peer = Peer(name, work, tap.port)
    try:
        result = checks.Result(name, "set-up")
        result.check("offers", offers_fault(peer, OFFERS[name]))
        done(result)
        one_by_one = {"delivery__pipelining": False, "delivery__chunking": False}
        to = lambda *arguments, **settings: done(
            checks.to_peer(program, work, peer, receiver, *arguments, EXPECTED[name], **settings)
        )
        to("in clear", False, route__tls="none")
        if peer.can_do_tls():
            to("with TLS", True, route__tls="required")
            to("by default", True)
        else:
            result = checks.Result(name, "with TLS")
            result.note("skipped: no client can do a handshake with it, openssl s_client neither; so a failing one is tried")
            done(result)
            to("in clear after TLS failed", False, route__tls="opportunistic")
        to("one by one", False, route__tls="none", **one_by_one)
        if "CHUNKING" in OFFERS[name]:
            to("by DATA", False, route__tls="none", delivery__chunking=False)
            to("by BDAT one by one", False, route__tls="none", delivery__pipelining=False)
        # More messages than OpenSMTPD takes in a session, and more without a taker than Exim bears.
        to("over one connection", False, route__tls="none", delivery__connections_per_destination=1)
        for secured in (False, True):
            done(checks.from_peer(program, work, peer, tap, receiver, secured, EXPECTED[name]))
    finally:
        peer.stop()
        tap.close()
        receiver.close()


def try_bare(name, program, work, done):
    receiver = Receiver()
    peer = Peer(name, work, receiver.port, bare=True)
    try:
        result = checks.Result(name, "bare set-up")
        result.check("offers", offers_fault(peer, BARE[name]))
        done(result)
        done(checks.refuses_without_tls(program, work, peer, receiver))
        done(checks.sees_damage(program, work, peer))
        done(checks.to_peer(program, work, peer, receiver, "bare", False, EXPECTED[name], bare=True))
    finally:
        peer.stop()
        receiver.close()


def try_peer(name, program, work):
    results = []
    began = time.monotonic()

    def done(result):
        results.append(result)
        words = f"{len(result.passed)} checks" if not result.failed else "FAILED"
        print(f"interop: {name}: {result.trial}: {words}", flush=True)
        for text in (*result.failed, *result.notes):
            print(f"    {text}", flush=True)

    try:
        try_full(name, program, work, done)
        try_bare(name, program, work, done)
    except NotHere as why:
        print(f"interop: skipped: {name}, {why}", flush=True)
        return None
    except Exception as error:  # The other peers go on.
        result = checks.Result(name, "the run")
        result.check("no error", f"{type(error).__name__}: {error}")
        done(result)
    print(f"interop: {name}: {time.monotonic() - began:.0f} s", flush=True)
    return results


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, names = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:] or NAMES
    if os.getuid() != 0:
        print("interop: skipped: every peer, because only root can start them")
        return
    if missed := messages.controls():
        sys.exit(f"interop: the comparison of messages does not see {', '.join(missed)}")
    if not shutil.which("openssl"):
        print("interop: skipped: every peer, because openssl is missing; install openssl")
        return

    def every_peer(work):
        tls = work / "tls"
        tls.mkdir()
        certificate = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        files = ["-subj", "/CN=peer.example", "-keyout", str(tls / "key"), "-out", str(tls / "certificate")]
        subprocess.run(["openssl", *certificate, *files], check=True, capture_output=True)
        with concurrent.futures.ThreadPoolExecutor(len(NAMES)) as pool:
            tried = list(pool.map(lambda name: try_peer(name, program, work), names))
        results = [result for each in tried if each for result in each]
        failed = any(result.failed for result in results)
        count = sum(len(result.passed) for result in results)
        served = len([each for each in tried if each])
        print(f"interop: {count} checks passed with {served} servers" + (", some FAILED" if failed else ""))
        return not failed

    run("interop", every_peer)


if __name__ == "__main__":
    main()
