"""Tests of the checker: a sound history passes, and each fault that is put into one is reported by the check it is for."""

import dataclasses
import io
import sys
import unittest

import history as histories
from checker import Cut, Limits, judge, longest_gap
from history import Adoption, Attempt, Delivery, History, Start

FAULT = 100.0


def sound():
    """Five messages: one delivered, one reported, one delivered by its adopter, one twice with its line, one without answer."""
    mail = lambda number: ("mail", f"r-{number}")
    attempts = [Attempt(f"r-{number}", "ok", 98.0 + number / 2, "n1", f"id{number}", "h") for number in range(4)]
    attempts += [Attempt("r-4", "unknown", 100.5, "n1", None, "h"), Attempt("r-5", "refused", 100.6, "n2", None, "h")]
    deliveries = [
        Delivery(mail(0), "n1", 98.1, 98.2, "h"),
        Delivery(("report", "r-1"), "n1", 98.6, 98.7),
        Delivery(mail(2), "n2", 130.0, 130.1, "h"),
        Delivery(mail(3), "n1", 99.6, 99.7, "h"),
        Delivery(mail(3), "n2", 130.0, 130.1, "h"),
    ]
    starts = [Start(one.unit, one.node, one.begun) for one in deliveries]
    adoptions = [Adoption(mail(2), "n2", 128.0, True), Adoption(mail(3), "n2", 128.1, True)]
    return History(attempts, deliveries, starts, adoptions, {"d2.rig.test": 15, "d1.rig.test": 6}, [], 101.0)


LIMITS = Limits(duplicates=3, fault_at=FAULT, connections_of={"d1.rig.test": 2}, adopted=30)


def found(history, **changes):
    """The checks that report something."""
    verdict = judge(history, dataclasses.replace(LIMITS, **changes), ("n1", FAULT))
    return {check for check, _ in verdict.problems}


class Checks(unittest.TestCase):
    def test_a_sound_history(self):
        verdict = judge(sound(), LIMITS, ("n1", FAULT))
        self.assertEqual(verdict.problems, [])
        self.assertEqual((verdict.messages, verdict.lost, verdict.twice, verdict.logged), (4, 0, 1, 1))
        self.assertAlmostEqual(verdict.adopted_in, 28.1)
        self.assertAlmostEqual(verdict.gap, 1.5)

    def test_a_lost_message(self):
        history = sound()
        del history.deliveries[0]
        self.assertEqual(found(history), {"lost"})

    def test_a_lost_report(self):
        history = sound()
        del history.deliveries[1]
        self.assertEqual(found(history), {"lost"})

    def test_a_duplicate_without_a_line(self):
        history = sound()
        history.deliveries.append(dataclasses.replace(history.deliveries[0], dot=99.9))
        self.assertEqual(found(history), {"twice"})

    def test_a_duplicate_that_the_line_excludes(self):
        history = sound()
        history.adoptions[1] = dataclasses.replace(history.adoptions[1], may_be_duplicate=False)
        self.assertEqual(found(history), {"twice"})

    def test_a_duplicate_of_what_was_delivered_long_before(self):
        history = sound()
        history.deliveries[3] = dataclasses.replace(history.deliveries[3], dot=FAULT - 5)
        self.assertEqual(found(history), {"twice"})

    def test_a_transaction_without_answer_is_repeated_by_the_same_node_alone(self):
        history = sound()
        history.deliveries.append(dataclasses.replace(history.deliveries[0], dot=105.0))
        self.assertEqual(found(history, uncertain=[Cut("n1", 98.0, 99.0)]), set())
        self.assertEqual(found(history, uncertain=[Cut("n1", 98.5, 99.0)]), {"twice"})
        self.assertEqual(found(history, uncertain=[Cut("n2", 98.0, 99.0)]), {"twice"})

    def test_too_many_duplicates(self):
        self.assertEqual(found(sound(), duplicates=0), {"twice"})

    def test_a_duplicate_of_a_message_without_answer(self):
        history = sound()
        one = Delivery(("mail", "r-4"), "n1", 99.0, 99.1, "h")
        history.deliveries.append(one)
        self.assertEqual(found(history), set())
        history.deliveries.append(one)
        self.assertEqual(found(history), {"twice"})

    def test_a_foreign_message(self):
        history = sound()
        history.deliveries.append(Delivery(("mail", "r-77"), "n1", 99.0, 99.1, "h"))
        self.assertEqual(found(history), {"foreign"})
        history = sound()
        history.foreign.append("x@d1.rig.test")
        self.assertEqual(found(history), {"foreign"})

    def test_a_message_that_was_refused(self):
        history = sound()
        history.deliveries.append(Delivery(("mail", "r-5"), "n3", 101.0, 101.1, "h"))
        self.assertEqual(found(history), {"foreign"})
        history.adoptions.append(Adoption(("mail", "r-5"), "n3", 100.9, True))
        self.assertEqual(found(history), set())

    def test_a_message_whose_dot_was_never_sent(self):
        history = sound()
        history.attempts[4] = dataclasses.replace(history.attempts[4], result="unsent")
        history.deliveries.append(Delivery(("mail", "r-4"), "n1", 99.0, 99.1, "h"))
        self.assertEqual(found(history), {"foreign"})

    def test_a_changed_body(self):
        history = sound()
        history.deliveries[0] = dataclasses.replace(history.deliveries[0], hash="other")
        self.assertEqual(found(history), {"body"})

    def test_too_many_transactions(self):
        history = sound()
        history.most_active["d2.rig.test"] = 16
        self.assertEqual(found(history), {"concurrency"})
        history = sound()
        history.most_active["d1.rig.test"] = 7
        self.assertEqual(found(history), {"concurrency"})

    def test_two_owners(self):
        history = sound()
        history.starts.append(Start(("mail", "r-0"), "n3", 98.5))
        self.assertEqual(found(history), {"owners"})

    def test_an_owner_that_goes_on_behind_the_adoption(self):
        history = sound()
        history.starts.append(Start(("mail", "r-2"), "n1", 129.0))
        self.assertEqual(found(history), {"owners"})

    def test_an_owner_that_sends_the_dot_behind_the_adoption(self):
        history = sound()
        history.deliveries[3] = dataclasses.replace(history.deliveries[3], dot=129.0)
        self.assertEqual(found(history), {"owners"})
        self.assertEqual(found(history, late_packets=["n1"]), set())

    def test_two_owners_of_a_report(self):
        history = sound()
        history.starts.append(Start(("report", "r-1"), "n3", 98.9))
        self.assertEqual(found(history), {"owners"})
        history.reported_again = {"r-1"}
        self.assertEqual(found(history), set())

    def test_a_clock_that_steps_is_no_gap(self):
        history = sound()
        for number, attempt in enumerate(history.attempts):
            history.attempts[number] = dataclasses.replace(attempt, elapsed=number / 2)
        history.attempts[1] = dataclasses.replace(history.attempts[1], at=60.0)
        history.over_elapsed = 2.0
        self.assertEqual(longest_gap(history), 0.5)
        history.over_elapsed = 9.0
        self.assertGreater(longest_gap(history), 5)

    def test_a_long_gap(self):
        history = sound()
        history.over = 110.0
        self.assertEqual(found(history), {"gap"})
        self.assertEqual(found(history, gap=None), set())

    def test_no_250_at_all(self):
        history = sound()
        history.attempts = [dataclasses.replace(one, result="refused") for one in history.attempts]
        history.deliveries, history.over = [], 110.0
        self.assertEqual(found(history), {"gap"})

    def test_a_late_adoption_and_none(self):
        self.assertEqual(found(sound(), adopted=20), {"adoption"})
        history = sound()
        history.adoptions, history.starts = [], []
        self.assertIn("adoption", found(history))


class Reading(unittest.TestCase):
    def test_what_the_histories_say(self):
        storm = [
            {"event": "sent", "at": 1.0, "tag": "r-1", "result": "ok", "node": "n1", "id": "A", "hash": "h"},
            {"event": "sent", "at": 1.1, "tag": "r-2", "result": "unknown", "node": "n1", "id": None, "hash": "h"},
            {"event": "session", "at": 1.2, "node": None, "text": "x"},
            {"event": "over", "at": 2.0},
        ]
        came = {"event": "delivered", "at": 1.5, "peer": "10.77.0.2", "from": "s", "begun": 1.4, "dot": 1.45, "hash": "h"}
        sink = [
            {"event": "active", "at": 1.4, "domain": "d1.rig.test", "count": 2},
            {"event": "active", "at": 1.4, "domain": "d1.rig.test", "count": 1},
            {"event": "start", "at": 1.4, "peer": "10.77.0.2", "to": "r-1@d1.rig.test", "begun": 1.4},
            {**came, "to": ["r-1@d1.rig.test"], "tag": "r-1"},
            {**came, "to": ["r-2@from.rig.test"], "tag": None, "from": ""},
            {**came, "to": ["r-1@d1.rig.test"], "tag": "r-2"},
            {**came, "to": ["q-1@d1.rig.test"], "tag": "q-1"},
            {**came, "to": ["old-1@d1.rig.test"], "tag": "old-1"},
            {**came, "event": "dropped", "to": ["r-1@d1.rig.test"], "tag": "r-1"},
        ]
        ts = "1970-01-01T00:00:03.500000Z"
        logs = {
            "n1": [
                {"event": "accepted", "ts": ts, "id": "B", "msgid": "<r-2@rig.test>"},
                {"event": "reported", "ts": ts, "id": "B", "report": "C", "kind": "dsn"},
            ],
            "n2": [
                {"event": "adopted", "ts": ts, "id": "X", "adopted": "A", "duplicate": "possible"},
                {"event": "adopted", "ts": ts, "id": "Y", "adopted": "B", "duplicate": "no"},
                {"event": "adopted", "ts": ts, "id": "Z", "adopted": "C", "duplicate": "possible"},
                {"event": "adopted", "ts": ts, "id": "V", "adopted": "W", "duplicate": "possible"},
                {"event": "sent", "ts": ts, "id": "V", "to": ["<r-3@d1.rig.test>"]},
            ],
        }
        read = histories.read("r", {"r", "old"}, storm, sink, logs, {"10.77.0.2": "n2"})
        self.assertEqual([(one.tag, one.result) for one in read.attempts], [("r-1", "ok"), ("r-2", "unknown")])
        self.assertEqual([one.unit for one in read.deliveries], [("mail", "r-1"), ("report", "r-2")])
        self.assertEqual(len(read.foreign), 2)
        self.assertEqual(read.most_active, {"d1.rig.test": 2})
        self.assertEqual(read.starts, [Start(("mail", "r-1"), "n2", 1.4)])
        self.assertEqual(
            read.adoptions,
            [
                Adoption(("mail", "r-1"), "n2", 3.5, True),
                Adoption(("mail", "r-2"), "n2", 3.5, False),
                Adoption(("report", "r-2"), "n2", 3.5, True),
                Adoption(("mail", "r-3"), "n2", 3.5, True),
            ],
        )
        self.assertEqual((read.over, read.reported_again), (2.0, set()))
        logs["n2"].append({"event": "reported", "ts": ts, "id": "Y", "report": "U", "kind": "dsn"})
        read = histories.read("r", {"r", "old"}, storm, sink, logs, {})
        self.assertEqual(read.reported_again, {"r-2"})


def passes():
    """Runs the tests and says so; whether all passed."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    text = io.StringIO()
    result = unittest.TextTestRunner(text).run(suite)
    well = result.wasSuccessful() and result.testsRun > 0
    print(f"cluster: the checker passes {result.testsRun} tests" if well else text.getvalue(), flush=True)
    return well
