"""Control groups (version 1) for measurements: a share of one core for each node, and the processor time of each program."""

import os
import pathlib
import re
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
PREFIX = "mailrace-scaling"
# Short, so that a node that has used its share waits for some milliseconds and not for a tenth of a second.
PERIOD_US = 20_000
NODE_CORE, LOAD_CORE = 0, 1


def missing():
    """Why there can be no measurement here; None if there can."""
    if os.getuid() != 0:
        return "root", "only root can make control groups"
    if (os.cpu_count() or 1) < 2:
        return "cores", "one core for the nodes and one for their clients are needed"
    for kind, file in (("cpu", "cpu.cfs_quota_us"), ("cpuacct", "cpuacct.usage"), ("cpuset", "cpuset.cpus")):
        if not (ROOT / kind).is_dir():
            return "cgroups", f"{ROOT / kind} is missing: control groups of version 1 are needed"
        probe = ROOT / kind / f"{PREFIX}-{os.getpid()}-probe"
        try:
            probe.mkdir()
            there = (probe / file).exists()
            probe.rmdir()
        except OSError as error:
            return "cgroups", f"{probe}: {error.strerror}"
        if not there:
            return "cgroups", f"groups of {ROOT / kind} have no {file}"
    return None


def remove_left():
    """Removes the groups of measurements that were killed."""
    for kind in ("cpu", "cpuacct", "cpuset"):
        for place in (ROOT / kind).glob(f"{PREFIX}-*"):
            pid = re.match(rf"{PREFIX}-(\d+)-", place.name)
            if pid and not pathlib.Path(f"/proc/{pid[1]}").exists():
                place.rmdir()


class Groups:
    """The groups of one cluster: `nodes` and `load` of cores, one of a share for each node, one of time for each program."""

    def __init__(self):
        self.made = []
        self.shares = {}
        self.counters = {}
        for name, core in (("nodes", NODE_CORE), ("load", LOAD_CORE)):
            place = self.make("cpuset", name)
            (place / "cpuset.mems").write_text("0")
            (place / "cpuset.cpus").write_text(str(core))

    def make(self, kind, name):
        place = ROOT / kind / f"{PREFIX}-{os.getpid()}-{name}"
        if place not in self.made:
            place.mkdir()
            self.made.append(place)
        return place

    def words(self, cores, counter, share=None):
        """The words that run a command in its groups. `share`: the node whose share it takes part in."""
        places = [self.make("cpuset", cores), self.make("cpuacct", counter)]
        self.counters[counter] = places[1]
        if share is not None:
            self.shares[share] = self.make("cpu", f"node-{share}")
            places.append(self.shares[share])
        enter = "".join(f"echo $$ > {place}/cgroup.procs && " for place in places)
        return ["sh", "-c", f'{enter}exec "$@"', "sh"]

    def limit(self, percent):
        """Gives each node this part of a core; None: no limit."""
        for place in self.shares.values():
            (place / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            quota = -1 if percent is None else int(PERIOD_US * percent / 100)
            (place / "cpu.cfs_quota_us").write_text(str(quota))

    def seconds(self):
        """Processor seconds of each counter."""
        return {name: int((place / "cpuacct.usage").read_text()) / 1e9 for name, place in self.counters.items()}

    def waited(self):
        """Seconds that each node was kept from running because its share was used."""
        found = {}
        for name, place in self.shares.items():
            lines = dict(line.split() for line in (place / "cpu.stat").read_text().splitlines())
            found[name] = int(lines["throttled_time"]) / 1e9
        return found

    def end(self):
        """Removes the groups; their processes have ended."""
        for place in reversed(self.made):
            for _ in range(50):
                try:
                    place.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
        self.made = []


def machine_seconds():
    """Busy seconds of all cores."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
