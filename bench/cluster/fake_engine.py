#!/usr/bin/env python3
"""A nats-server of this version as far as a client sees it before it asks for anything.

    fake_engine.py ADDRESS:PORT VERSION"""

import json
import socketserver
import sys


class Client(socketserver.StreamRequestHandler):
    def handle(self):
        info = {"server_id": "FAKE", "server_name": "fake", "version": self.server.version, "proto": 1, "go": "go1"}
        info |= {"host": self.server.server_address[0], "port": self.server.server_address[1], "headers": True}
        info |= {"max_payload": 1 << 20, "jetstream": True, "client_id": 1, "auth_required": True}
        try:
            self.wfile.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
            for line in self.rfile:
                if line.startswith(b"PING"):
                    self.wfile.write(b"PONG\r\n")
        except OSError:
            pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    place, version = sys.argv[1:]
    address, _, port = place.rpartition(":")
    with Server((address, int(port)), Client) as server:
        server.version = version
        print("ready", flush=True)
        server.serve_forever()
