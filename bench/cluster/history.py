"""What happened in a scenario, read from the histories of storm and sink and from the logs of the nodes."""

import collections
import dataclasses
import datetime
import json


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A message that the storm offered, under an id that no other attempt has; `at`: when the answer came, and `elapsed` the
    same by a clock that never steps."""

    tag: str
    result: str  # ok, refused, unsent, unknown
    at: float
    node: str = "n1"
    id: str | None = None
    hash: str = ""
    elapsed: float | None = None


@dataclasses.dataclass(frozen=True)
class Delivery:
    """A message at the sink. `unit` is what may arrive once: ("mail", tag), or ("report", tag) for the report to its sender."""

    unit: tuple
    node: str
    begun: float
    dot: float
    hash: str = ""


@dataclasses.dataclass(frozen=True)
class Start:
    """A recipient that the sink was asked to take."""

    unit: tuple
    node: str
    at: float


@dataclasses.dataclass(frozen=True)
class Adoption:
    """A line `adopted=` of a node."""

    unit: tuple
    node: str
    at: float
    may_be_duplicate: bool


@dataclasses.dataclass
class History:
    attempts: list = dataclasses.field(default_factory=list)
    deliveries: list = dataclasses.field(default_factory=list)
    starts: list = dataclasses.field(default_factory=list)
    adoptions: list = dataclasses.field(default_factory=list)
    # Most transactions at a time, for each domain.
    most_active: dict = dataclasses.field(default_factory=dict)
    # Arrivals without a tag of any storm.
    foreign: list = dataclasses.field(default_factory=list)
    # The end of the storm.
    over: float = 0.0
    over_elapsed: float | None = None
    # What the storm's sessions said that ended early.
    session_ends: list = dataclasses.field(default_factory=list)
    # Messages that were reported more than once: their reports are different messages under one address.
    reported_again: set = dataclasses.field(default_factory=set)


def unit_of(address):
    """tag@from.rig.test is where the report about a message goes."""
    tag, _, domain = address.rpartition("@")
    return ("report" if domain == "from.rig.test" else "mail", tag)


def run_of(tag):
    return tag.rpartition("-")[0]


def lines_of(path):
    """The objects of a file of JSON lines; one that is being written is left out."""
    found = []
    with open(path) as file:
        for line in file:
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def time_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def read(run, runs, storm, sink, logs, peers):
    """The history of the storm `run`; `runs`: all storms so far. `storm` and `sink` are lists of events, `logs` has the events
    of each node, `peers` the name of the node at an address."""
    history = History()
    for event in storm:
        if event["event"] == "sent":
            fields = {key: event.get(key) for key in ("tag", "result", "at", "node", "id", "hash", "elapsed")}
            history.attempts.append(Attempt(**fields))
        elif event["event"] == "over":
            history.over, history.over_elapsed = event["at"], event.get("elapsed")
        elif event["event"] == "session":
            history.session_ends.append(event)
    for event in sink:
        read_arrival(history, event, run, runs, peers)
    units, first = units_by_id(history, logs)
    reported = collections.Counter()
    for node, events in logs.items():
        for event in events:
            if event["event"] == "reported" and (about := units.get(first.get(event["id"], event["id"]))):
                reported[about[1]] += 1
            if event["event"] != "adopted":
                continue
            unit = units.get(event["adopted"]) or units.get(event["id"])
            if unit and run_of(unit[1]) == run:
                possible = event.get("duplicate") == "possible"
                history.adoptions.append(Adoption(unit, node, time_of(event["ts"]), possible))
    history.reported_again = {tag for tag, count in reported.items() if count > 1}
    return history


def read_arrival(history, event, run, runs, peers):
    kind = event["event"]
    if kind == "active":
        # Of all storms: a domain serves them all.
        domain = event["domain"]
        history.most_active[domain] = max(history.most_active.get(domain, 0), event["count"])
        return
    if kind == "start":
        unit = unit_of(event["to"])
        if run_of(unit[1]) == run:
            history.starts.append(Start(unit, peers.get(event["peer"], event["peer"]), event["at"]))
        return
    if kind != "delivered":
        return
    for address in event["to"]:
        unit = unit_of(address)
        # The id inside counts for mail: a content that came to another recipient is foreign there.
        unit = (unit[0], event["tag"] if unit[0] == "mail" else unit[1])
        if unit[1] is None or unit != unit_of(address) or run_of(unit[1]) not in runs:
            history.foreign.append(f"{address}: {event['tag']} of {event['peer']}")
        elif run_of(unit[1]) == run:
            node = peers.get(event["peer"], event["peer"])
            hashed = event["hash"] if unit[0] == "mail" else ""
            history.deliveries.append(Delivery(unit, node, event["begun"], event["dot"], hashed))


def units_by_id(history, logs):
    """What each queue id stands for, and the first id of those that an adopter gave. An adopted message has another id at its adopter, and the first one in `adopted=`."""
    units = {attempt.id: ("mail", attempt.tag) for attempt in history.attempts if attempt.id}
    first = {}
    for events in logs.values():
        for event in events:
            if event["event"] == "accepted" and event.get("msgid", "").endswith("@rig.test>"):
                units[event["id"]] = ("mail", event["msgid"][1 : -len("@rig.test>")])
            elif event["event"] in ("sent", "deferred", "failed"):
                # A message that was refused behind an append has no line but those of its adopter.
                for address in event["to"]:
                    units.setdefault(event["id"], unit_of(address.strip("<>")))
            elif event["event"] == "adopted":
                first[event["id"]] = event["adopted"]
    for events in logs.values():
        for event in events:
            if event["event"] == "reported" and event.get("report"):
                about = units.get(first.get(event["id"], event["id"]))
                if about:
                    units[event["report"]] = ("report", about[1])
    return units, first
