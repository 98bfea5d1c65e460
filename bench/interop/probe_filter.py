#!/usr/bin/python3
"""A milter on libmilter that makes the changes of the case which a message names in X-Case. Argument: its socket."""

import sys

import Milter

sys.dont_write_bytecode = True
from edit_cases import CASES


class Probe(Milter.Base):
    def envfrom(self, *_arguments):
        self.case = "nothing"
        return Milter.CONTINUE

    def header(self, name, value):
        if name == "X-Case":
            self.case = value.strip()
        return Milter.CONTINUE

    def eom(self):
        for method, *arguments in CASES[self.case]:
            getattr(self, method)(*arguments)
        return Milter.CONTINUE


Milter.factory = Probe
Milter.set_flags(
    Milter.ADDHDRS | Milter.CHGHDRS | Milter.CHGBODY | Milter.ADDRCPT | Milter.DELRCPT | Milter.CHGFROM | Milter.QUARANTINE
)
Milter.runmilter("probe", sys.argv[1], 30)
