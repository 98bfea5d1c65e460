"""Power cuts: the spools and the stores of engines on disks whose power can be cut, and the faults made of them.

The disks are those of the crash rig, kept by `mailrace-bench power-disk`: an ext4 in memory for each directory. A cut leaves
what was flushed, and of the other sectors a choice by the seed. The programs on a disk are killed in the same moment."""

import contextlib
import pathlib
import select
import signal
import subprocess

from network import NODES

# Longest wait for an answer: six file systems are made, or their journals replayed, on a busy machine.
PATIENCE = 120


class Missing(Exception):
    """The machine lacks something: its name, and why it is needed."""


class PowerDisks:
    """The process that keeps a disk for each of these directories. With `ignore_flushes` a sync makes nothing durable."""

    def __init__(self, program, directories, complaints, ignore_flushes=False):
        if not pathlib.Path(program).is_file():
            how = "cargo build -p mailrace-bench --features rigs makes it, --bench names it"
            raise Missing("mailrace-bench", f"{program} is missing; {how}")
        # No sector survives ignored flushes: what is left is as old as the disk can make it.
        more = ["--ignore-flushes", "--survivors", "none"] if ignore_flushes else []
        words = [program, "power-disk", *more, *map(str, directories)]
        # A group of its own: a SIGINT of the terminal is for the rig alone. It ends when the rig does, with its input.
        with open(complaints, "ab") as file:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, process_group=0
            )
        self.off = []
        try:
            self.answer()
        except RuntimeError as error:
            self.end()
            if (why := str(error)).startswith("skipped: "):
                raise Missing("fuse", why.removeprefix("skipped: ")) from None
            raise

    def answer(self):
        """The next answer; raises what an error says."""
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else "error there is no answer"
        kind, _, text = line.strip().partition(" ")
        if kind != "ok":
            raise RuntimeError(text or "mailrace-bench power-disk has ended")
        return text

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def cut(self, seed, directories):
        """Cuts the power of these disks. Returns for each what survives of the sectors that were not flushed."""
        said = self.ask("cut", seed, *directories)
        self.off += directories
        return said

    def mount(self):
        """What survived is mounted where the power was cut. Nothing may run there."""
        off, self.off = self.off, []
        if off:
            self.ask("mount", *off)

    def end(self):
        """Unmounts all disks and forgets them."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def cut(rig, processes, directories):
    """Kills programs and cuts the power of their disks."""
    seed = rig.choose.getrandbits(63)
    # Not one by one with a wait for each end: then syncs that are under way would still come true.
    for process in processes:
        process.signal(signal.SIGKILL)
    said = rig.world.disks.cut(seed, directories)
    for process in processes:
        process.kill()
    rig.tell(f"power is cut; unflushed sectors that survive: {said.replace(f'{rig.world.work}/', '')}")


def cut_nodes(rig, numbers):
    nodes, engines = rig.world.nodes, rig.world.engines
    places = [nodes[number].place / name for number in numbers for name in ("spool", "store")]
    cut(rig, [process for number in numbers for process in (nodes[number], engines[number])], places)
    return numbers


def cut_node(rig, number):
    return cut_nodes(rig, [number])


def cut_all(rig, _number):
    return cut_nodes(rig, list(NODES))


def cut_engines(rig, _number):
    engines = rig.world.engines.values()
    cut(rig, list(engines), [engine.place / "store" for engine in engines])


def return_power(rig, _number):
    """What survived is mounted, and what was killed is started on it."""
    rig.world.disks.mount()
    for processes in (rig.world.engines, rig.world.nodes):
        for process in processes.values():
            if not process.runs():
                process.start()
