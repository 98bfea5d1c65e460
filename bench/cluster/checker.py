"""What must hold of a history. Each check returns texts of what does not."""

import collections
import dataclasses

# Completions go to the holder each tenth of a second; with one older than three seconds nothing starts.
UNSTORED_SECONDS = 4.0
# Clocks of processes on one machine, and the time of a write.
SLACK = 0.05


@dataclasses.dataclass
class Cut:
    """A node whose process or wires were cut in that time."""

    node: str
    since: float
    until: float = float("inf")


@dataclasses.dataclass
class Limits:
    """What a scenario allows."""

    # Messages that may come twice: completions that the holder does not know, and transactions under way.
    duplicates: int = 0
    # When the first fault came: what was delivered long before that may not come again. None without a fault.
    fault_at: float | None = None
    # Transactions at a time for a domain, at one node and for some domains by themselves; and the number of nodes.
    connections: int = 5
    connections_of: dict = dataclasses.field(default_factory=dict)
    nodes: int = 3
    # The transactions that a node ended while it was cut have no answer, and it repeats them, as without a cluster.
    uncertain: list = dataclasses.field(default_factory=list)
    # Nodes whose packets arrive late: what has left a node cannot be called back.
    late_packets: list = dataclasses.field(default_factory=list)
    # Seconds without a 250; None where more than one fault is at work, or no storm.
    gap: float | None = 5.0
    # Seconds from the end of a node to the last line of the adoption of its mail; None where none is expected.
    adopted: float | None = None


@dataclasses.dataclass
class Verdict:
    """The figures of a history, and what is wrong with it: pairs of a check and a text."""

    messages: int = 0
    lost: int = 0
    twice: int = 0
    logged: int = 0
    gap: float = 0.0
    adopted_in: float | None = None
    problems: list = dataclasses.field(default_factory=list)


def judge(history, limits, stopped=None):
    """All checks. `stopped`: the node that ended for good or for long, and when."""
    verdict = Verdict(messages=sum(attempt.result == "ok" for attempt in history.attempts))
    checks = {
        "lost": lost(history),
        "twice": duplicates(history, limits),
        "foreign": foreign(history),
        "body": bodies(history),
        "concurrency": concurrency(history, limits),
        "owners": owners(history) + late_dots(history, limits),
    }
    verdict.lost = len(checks["lost"])
    verdict.twice, verdict.logged = count_twice(history)
    if history.over:
        verdict.gap = longest_gap(history)
        if limits.gap is not None and verdict.gap > limits.gap:
            checks["gap"] = [f"{verdict.gap:.1f} s without a 250, {limits.gap:.0f} are allowed"]
    if stopped is not None:
        verdict.adopted_in = adoption_time(history, *stopped)
        if verdict.adopted_in is not None:
            verdict.adopted_in -= clock_step(history)
        if limits.adopted is not None:
            checks["adoption"] = adoption(verdict.adopted_in, limits.adopted, stopped[0])
    verdict.problems = [(check, text) for check, texts in checks.items() for text in texts]
    return verdict


def arrivals(history):
    """The deliveries of each unit, in the order of time."""
    found = collections.defaultdict(list)
    for delivery in sorted(history.deliveries, key=lambda one: one.dot):
        found[delivery.unit].append(delivery)
    return found


def adopted_as_possible(history, unit):
    """The adoptions that may have delivered a unit again. A message that is adopted may be reported again, too."""
    units = {unit, ("mail", unit[1])}
    return [one for one in history.adoptions if one.unit in units and one.may_be_duplicate]


def lost(history):
    """Every message with a 250 has arrived, or its sender has a report."""
    came = {delivery.unit for delivery in history.deliveries}
    return [
        f"{attempt.tag}, {attempt.id} of {attempt.node}, acknowledged at {attempt.at:.3f}"
        for attempt in history.attempts
        if attempt.result == "ok" and not came & {("mail", attempt.tag), ("report", attempt.tag)}
    ]


def count_twice(history):
    """Deliveries too many, and those of them that a line of an adoption told of."""
    twice = logged = 0
    for unit, came in arrivals(history).items():
        more = len(came) - 1
        twice += more
        logged += min(more, len(adopted_as_possible(history, unit)))
    return twice, logged


def duplicates(history, limits):
    """What came twice is bounded, was told by the log, and was delivered first when its completion could be lost."""
    found, more = [], 0
    for unit, came in arrivals(history).items():
        if len(came) == 1:
            continue
        more += len(came) - 1
        text = f"{unit[0]} {unit[1]}: " + ", ".join(f"{one.node} at {one.dot:.3f}" for one in came)
        if is_unanswered(came, limits):
            continue
        if len(adopted_as_possible(history, unit)) < len(came) - 1:
            found.append(f"{text}: no line adopted=..., duplicate=possible")
        elif limits.fault_at is None or came[0].dot < limits.fault_at - UNSTORED_SECONDS:
            found.append(f"{text}: its completion had time to reach the holder before the fault")
    if more > limits.duplicates:
        found.append(f"{more} came twice, {limits.duplicates} are allowed")
    return found


def is_unanswered(came, limits):
    """Whether a node could not see the answer to the final dot, and delivered again for that reason."""
    first, node = came[0], came[-1].node
    return len(came) == 2 and first.node == node and any(
        node == cut.node and cut.since <= first.dot <= cut.until for cut in limits.uncertain
    )


def foreign(history):
    """Nothing arrives that was not offered; what was refused arrives only if an adopter could not know of that."""
    attempts = {attempt.tag: attempt for attempt in history.attempts}
    found = [f"arrived, and no storm sent it: {text}" for text in history.foreign]
    for unit, came in arrivals(history).items():
        attempt = attempts.get(unit[1])
        text = f"{unit[0]} {unit[1]} from {came[0].node} at {came[0].dot:.3f}"
        if attempt is None:
            found.append(f"arrived, and was never offered: {text}")
        elif attempt.result == "unsent":
            found.append(f"arrived, but its dot was never sent: {text}")
        elif attempt.result == "refused" and not adopted_as_possible(history, unit):
            found.append(f"arrived, but was refused at {attempt.at:.3f}: {text}")
    return found


def bodies(history):
    """What arrives is what was sent."""
    sent = {attempt.tag: attempt.hash for attempt in history.attempts}
    return [
        f"{one.unit[1]} from {one.node} at {one.dot:.3f} has another content"
        for one in history.deliveries
        if one.unit[0] == "mail" and sent.get(one.unit[1], one.hash) != one.hash
    ]


def concurrency(history, limits):
    """No domain has more transactions at a time than all nodes may have."""
    found = []
    for domain, most in sorted(history.most_active.items()):
        allowed = limits.nodes * limits.connections_of.get(domain, limits.connections)
        if most > allowed:
            found.append(f"{domain}: {most} transactions at a time, {allowed} are allowed")
    return found


def owners(history):
    """A node that starts a recipient behind another node has adopted it in between."""
    lines = collections.defaultdict(list)
    for one in history.adoptions:
        lines[(one.unit, one.node)].append(one.at)
    by_unit = collections.defaultdict(list)
    for start in sorted(history.starts, key=lambda one: one.at):
        by_unit[start.unit].append(start)
    found = []
    for unit, starts in by_unit.items():
        if is_of_several(history, unit):
            continue
        for before, start in zip(starts, starts[1:]):
            if before.node == start.node:
                continue
            own = lines[(unit, start.node)] + lines[(("mail", unit[1]), start.node)]
            if not any(before.at - SLACK <= at <= start.at + SLACK for at in own):
                text = f"{unit[0]} {unit[1]}: {before.node} starts at {before.at:.3f}, {start.node} at {start.at:.3f}"
                found.append(f"{text}, no adoption by {start.node} in between")
    return found


def is_of_several(history, unit):
    """Whether a report is one of several about a message, which nothing here tells apart."""
    return unit[0] == "report" and unit[1] in history.reported_again


def late_dots(history, limits):
    """A node ends no transaction of a message that another one has adopted: it asks for its ownership before the dot, too."""
    lines = collections.defaultdict(list)
    for one in history.adoptions:
        lines[one.unit].append(one)
    found = []
    for one in history.deliveries:
        before = [line for line in lines[one.unit] if line.at < one.dot - SLACK]
        if not before or one.node in limits.late_packets or is_of_several(history, one.unit):
            continue
        owner = max(before, key=lambda line: line.at)
        if owner.node != one.node:
            text = f"{one.unit[0]} {one.unit[1]}: {one.node} sends the dot at {one.dot:.3f}"
            found.append(f"{text}, {owner.node} had adopted it at {owner.at:.3f}")
    return found


def longest_gap(history):
    """The longest time of the storm without a 250. The clock of the machine may step meanwhile."""
    is_timed = history.over_elapsed is not None
    over = history.over_elapsed if is_timed else history.over
    # What was tried beside the storm has no such time.
    attempts = [one for one in history.attempts if not is_timed or one.elapsed is not None]
    time_of = (lambda one: one.elapsed) if is_timed else (lambda one: one.at)
    times = sorted(time_of(one) for one in attempts if one.result == "ok" and time_of(one) <= over)
    if not times:
        return over - min((time_of(one) for one in attempts), default=over)
    ends = [*times, over]
    return max(after - before for before, after in zip(ends, ends[1:]))


def clock_step(history):
    """Seconds by which the clock of the machine stepped while the storm went on; the logs have its times."""
    offsets = [one.at - one.elapsed for one in history.attempts if one.elapsed is not None]
    step = offsets[-1] - offsets[0] if offsets else 0.0
    return step if abs(step) > 0.5 else 0.0


def adoption_time(history, node, at):
    """Seconds from the end of a node to the last adoption of mail that it had accepted."""
    accepted = {attempt.tag for attempt in history.attempts if attempt.node == node}
    times = [one.at for one in history.adoptions if one.unit[1] in accepted and one.at > at and one.node != node]
    return max(times) - at if times else None


def adoption(took, allowed, node):
    if took is None:
        return [f"no mail of {node} was adopted; it had some"]
    return [f"the mail of {node} was adopted after {took:.1f} s, {allowed:.0f} are allowed"] if took > allowed else []
