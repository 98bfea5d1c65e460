"""A cluster whose nodes have two listeners more, for a client beside the balancer, and that client."""

import json
import sys

from members import HERE, World
from network import NODES, inside, run

# One for each answer where there is no copy.
TEMPFAIL, ACCEPT_LOCAL = 2526, 2527
LISTENERS = """
[[listen]]
address = "{address}:2526"

[[listen]]
address = "{address}:2527"
on_no_replica = "accept_local"
"""


class OpenWorld(World):
    """`more`: what is added to each configuration."""

    def __init__(self, network, work, program, engine, more=""):
        super().__init__(network, work, program, engine)
        self.more = more

    def make_files(self):
        super().make_files()
        for number, address in NODES.items():
            config = self.work / f"n{number}" / "mailrace.toml"
            config.write_text(config.read_text() + LISTENERS.format(address=address) + self.more)

    def send(self, run_name, first, count, number, port, to):
        """Sends messages to a node (messages.py). Returns for each its tag, the answer and the seconds that it took."""
        history = self.work / f"{run_name}.messages"
        words = [history, run_name, first, count, NODES[number], port, to]
        done = run(*inside(self.network.names["gen"]), sys.executable, HERE / "messages.py", *words)
        return json.loads(done.stdout)
