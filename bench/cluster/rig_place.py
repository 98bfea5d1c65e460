"""The network and the directory of a rig, and the end of all that it began."""

import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import types

from network import WORK, Network, remove_left


@contextlib.contextmanager
def rig_place(kept):
    """Gives a network, a directory (`work`), a list `ends` of what is called at the end, and `good`, to be set: without it,
    or if `kept` says so, the directory stays and its path is printed behind the text of `kept`, (bool, text)."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    remove_left()
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{WORK}-{os.getpid()}-"))
    place = types.SimpleNamespace(network=Network(), work=work, ends=[], good=False)
    try:
        place.network.make()
        yield place
    finally:
        # A second signal must not end this.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for end in place.ends:
            end()
        place.network.end()
        stays, text = kept
        if place.good and not stays:
            shutil.rmtree(work, ignore_errors=True)
        else:
            print(f"{text} {work}", flush=True)
