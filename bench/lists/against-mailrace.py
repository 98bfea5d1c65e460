#!/usr/bin/env python3
"""Runs real list managers beside a mailrace: posts, commands by mail, bounces, circles.

    against-mailrace.py PROGRAM [NAME...]

PROGRAM is a mailrace; NAME is mlmmj or mailman. A manager that is not installed is named as skipped. As a control each has a
subscriber whose mail mailrace drops on purpose, and who must be found to have none. Loopback and free ports only; everything
runs as nobody when root calls. Exit status: 0 if all that could be tried works, 1 otherwise."""

import concurrent.futures
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
import mailman
import mlmmj
from rooms import Skipped
from servers import run


def trials(names):
    every = [("mlmmj", mlmmj.try_it), ("mailman", mailman.try_it)]
    if os.getuid() == 0:
        every.append(("mlmmj", mlmmj.try_it_by_helper))
    return [(name, try_it) for name, try_it in every if not names or name in names]


def tried(trial, program, work):
    """Whether it went well; said in words on the way."""
    name, try_it = trial
    began = time.monotonic()
    try:
        room = try_it(program, work)
    except Skipped as why:
        print(f"lists: skipped: {name}, {why}", flush=True)
        return True
    words = "FAILED" if room.faults else f"{len(room.passed)} checks"
    faults = "".join(f"    {fault}\n" for fault in room.faults)
    print(f"lists: {room.name}: {words}, {time.monotonic() - began:.0f} s\n{faults}", end="", flush=True)
    return not room.faults


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]

    def every_trial(work):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return all(list(pool.map(lambda trial: tried(trial, program, work), trials(names))))

    run("lists", every_trial)


if __name__ == "__main__":
    main()
