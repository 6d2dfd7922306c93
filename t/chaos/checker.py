"""Whether the record of a run breaks a promise.  Pure functions of its lines.

What a holder may be sure of, and so what is held against the gateways:

    certain     from when the grant was told up to when the last call was
                *sent* that said "held" (200).  A claim that is held then was
                held all the time.  No fault excuses another holder then.
    promised    beyond that, to the end of the lease as last told: the told
                time, counted from when the call was sent.  If the acquire asked
                for a durable lease, no fault excuses another holder here,
                either.  Else the lock is lost with a session of the gateway
                that granted, and for no other reason: another holder is excused
                if ZooKeeper found a session of that gateway to be over, between
                the acquire and that moment.

Both end when the release is sent.  The clients' lines alone tell what happened,
except for the sessions that were over, which the servers' logs tell.  A foreign
holder (kazoo, Curator, and the witness behind a guard) has only what is
certain.

The record tells when a grant was told, but not when the grant was made, because
answers are late.  The grant was made no sooner than the request was sent plus
the time of the wait (`waited_ms`).

ZooKeeper's own servers may disagree about a lock (audit.py); a violation of
that lock around then is not the gateways', and is counted apart.

These are the violations, by their names:

    two holders     of a lock that admits one
    too many        holders of a semaphore
    lost            a claim is gone before the lease is, and the claim was
                    durable, or no session was over
    order           a later grant with a smaller fencing token, or the same one
    refused         the resource refused a holder that was certain
    unanswered      a call without any end
    answer          a status that this call never has
    unavailable     a lock that cannot be had after all faults
    unlocked        a request that was served without a lock
    left            claims that stay when all clients are gone
    apart           records and znodes that are not the same claims
    log             unexpected lines in an error log
    incomplete      the record itself: no grant, no end, no order
"""

import collections
import itertools

from lib.claims import differ

Violation = collections.namedtuple("Violation", "name text lock t",
                                   defaults=(None, None))

STATUSES = {"acquire": {200, 201, 423, 503},
            "look": {200, 410, 503},
            "renew": {200, 410, 503},
            "release": {204, 410, 503},
            "guarded": {200, 409, 423, 503}}
ENDS = {"cut", "unreached", "left", "error"}
PERMITS = 2                     # of the run's semaphores
SLACK = 0.5                     # of the servers' clocks and logs
SHADOW = 20.0                   # of a proof that the servers disagreed


class Call:
    """An `ask` line and the `told` line."""

    def __init__(self, ask):
        self.ask = ask
        self.asked = ask["t"]
        self.kind = ask["kind"]
        self.lock = ask["lock"]
        self.told = None
        self.status = None
        self.answer = {}

    def end(self, line):
        self.told = line["t"]
        self.status = line["status"]
        self.answer = line

    def __repr__(self):
        return "%s at %.3f: %s at %s" % (self.ask["id"], self.asked,
                                         self.status, self.told)


class Claim:
    """What is known of a claim that was granted."""

    def __init__(self, name, call):
        self.name = name
        self.lock = call.lock
        self.mode = call.ask.get("mode", "exclusive")
        self.who = call.ask["who"]
        self.fencing = call.answer["fencing"]
        self.granted = call.told
        self.asked = call.asked
        self.made = call.asked          # not granted before that
        self.foreign = "gateway" not in call.ask
        self.guarded = call.ask.get("guarded", False)
        self.durable = False
        self.gateways = set()
        self.confirmed = 0.0
        self.lease = 0.0
        self.released = None
        self.gone = None                # the first call that said so

    def grant(self, call):
        """A grant, or a repeated call that was told of the grant."""
        waited = call.answer.get("waited", 0.0)
        if call.status == 201:
            self.made = call.asked + waited
        else:
            waited = 0.0
        self.durable = self.durable or call.ask.get("durable", False)
        if not self.foreign:
            self.gateways.add(call.ask["gateway"])
            self.lease = max(self.lease,
                             call.asked + waited
                             + call.answer.get("expires", 0.0))

    def add(self, call):
        if call.kind == "release":
            if self.released is None:
                self.released = call.asked
                if call.status == 410:
                    self.gone = self.gone or call
            return
        if call.status == 200:
            self.confirmed = max(self.confirmed, call.asked)
            if not self.foreign and "expires" in call.answer:
                self.lease = max(self.lease,
                                 call.asked + call.answer["expires"])
        elif call.status == 410 and self.released is None:
            self.gone = self.gone or call

    @property
    def certain(self):
        """The end of what is certain."""
        end = max(self.granted, self.confirmed)
        return end if self.released is None else min(end, self.released)

    @property
    def promised(self):
        end = max(self.certain, self.lease)
        return end if self.released is None else min(end, self.released)

    def __repr__(self):
        return ("%s (%s, %sfencing token %d, told %.3f, certain to %.3f, "
                "promised to %.3f)"
                % (self.name, self.who, "durable, " if self.durable else "",
                   self.fencing, self.granted, self.certain, self.promised))


class History:
    """The lines of a record, put together."""

    def __init__(self, lines):
        self.lines = lines
        self.calls = {}
        self.claims = {}
        self.sessions = {}              # session -> gateways
        self.expired = {}               # gateway -> times
        for line in lines:
            if line["what"] == "ask":
                self.calls[line["id"]] = Call(line)
            elif line["what"] == "session":
                self.sessions[line["session"]] = line["gateways"]
        for line in lines:
            if line["what"] == "told":
                self.calls[line["id"]].end(line)
            elif line["what"] == "expired":
                for gateway in self.sessions.get(line["session"], ()):
                    self.expired.setdefault(gateway, []).append(line["t"])
        self._claims()

    def of(self, what):
        return [line for line in self.lines if line["what"] == what]

    def _claims(self):
        calls = sorted(self.calls.values(), key=lambda call: call.asked)
        grants = [call for call in calls if call.kind == "acquire"
                  and call.status in (200, 201)]
        for call in sorted(grants, key=lambda call: call.told):
            name = call.answer["claim"]
            if name not in self.claims:
                self.claims[name] = Claim(name, call)
            self.claims[name].grant(call)
        self._first_asks(calls)
        for call in calls:
            claim = self.claims.get(call.ask.get("claim"))
            if claim is not None:
                claim.add(call)

    def _first_asks(self, calls):
        """A claim with a key may be older than the call that was told."""
        first = {}
        for call in calls:
            if "key" in call.ask:
                first.setdefault((call.lock, call.ask["key"]), []).append(call)
        for same in first.values():
            for claim in {call.answer.get("claim") for call in same}:
                if claim in self.claims:
                    claim = self.claims[claim]
                    claim.asked = same[0].asked
                    claim.made = min(claim.made, same[0].asked)
                    claim.gateways |= {call.ask["gateway"] for call in same}

    def by_lock(self):
        locks = {}
        for claim in self.claims.values():
            locks.setdefault(claim.lock, []).append(claim)
        return locks

    def session_over(self, claim, until):
        """Whether a session that holds the claim may have been over by then; no
        session holds a durable claim.
        """
        return not claim.durable and any(
            claim.asked <= t <= until + SLACK
            for gateway in claim.gateways
            for t in self.expired.get(gateway, ()))


def exclude(a, b):
    """Whether two modes exclude each other."""
    return not (a == b and a in ("shared", "semaphore"))


def overlap(begin, end, other_begin, other_end):
    begin, end = max(begin, other_begin), min(end, other_end)
    return (begin, end) if end > begin else None


def pairs(claims, end):
    """The pairs in which a claim begins before the other claim ends."""
    active = []
    for claim in sorted(claims, key=lambda claim: claim.granted):
        active = [a for a in active if end(a) > claim.granted]
        for other in active:
            yield other, claim
        active.append(claim)


def judge_pair(history, a, b):
    """None, "excused", or what is wrong with two claims of a lock."""
    if overlap(a.granted, a.certain, b.granted, b.certain):
        return "for certain"
    both = overlap(a.granted, a.promised, b.granted, b.promised)
    if both is None:
        return None
    for claim in (a, b):
        if claim.certain <= both[0] and history.session_over(claim, both[0]):
            return "excused"
    return "as was promised"


def two_holders(history):
    for lock, claims in sorted(history.by_lock().items()):
        for a, b in pairs(claims, lambda claim: claim.promised):
            if not exclude(a.mode, b.mode):
                continue
            verdict = judge_pair(history, a, b)
            if verdict not in (None, "excused"):
                yield Violation("two holders", "%s, %s: %r and %r"
                                % (lock, verdict, a, b), lock, b.granted)


def excused(history):
    """How many grants came before a promised end, with an excuse."""
    return sum(judge_pair(history, a, b) == "excused"
               for claims in history.by_lock().values()
               for a, b in pairs(claims, lambda claim: claim.promised)
               if exclude(a.mode, b.mode))


def too_many(history, permits=PERMITS):
    for lock, claims in sorted(history.by_lock().items()):
        active = []
        claims = [claim for claim in claims if claim.mode == "semaphore"]
        for claim in sorted(claims, key=lambda claim: claim.granted):
            active = [a for a in active if a.certain > claim.granted]
            active.append(claim)
            sure = [a for a in active if a.certain > claim.granted]
            if len(sure) > permits:
                yield Violation("too many", "%s: %r" % (lock, sure), lock,
                                claim.granted)


def lost(history):
    for claim in history.claims.values():
        call = claim.gone
        if (call is None or claim.foreign or call.told >= claim.lease
                or history.session_over(claim, call.told)):
            continue
        yield Violation("lost", "%s: %r, by %r; its lease was to last to %.3f"
                        % (claim.lock, claim, call, claim.lease), claim.lock,
                        call.told)


def order(history):
    """Fencing tokens grow in the order of grants, as far as that is sure."""
    for lock, claims in sorted(history.by_lock().items()):
        largest = {}        # mode -> the claim with the largest token so far
        told = sorted(claims, key=lambda claim: claim.granted)
        seen = 0
        for claim in sorted(claims, key=lambda claim: claim.made):
            # the wait that a grant tells may be rounded up
            while seen < len(told) and told[seen].granted < claim.made:
                other = told[seen]
                seen += 1
                if (other.mode not in largest
                        or other.fencing > largest[other.mode].fencing):
                    largest[other.mode] = other
            for mode, other in largest.items():
                if (exclude(mode, claim.mode)
                        and other.fencing > claim.fencing):
                    yield Violation("order", "%s: %r was granted after %r"
                                    % (lock, claim, other), lock,
                                    claim.granted)
        yield from _same(lock, claims)


def _same(lock, claims):
    tokens = sorted(claims, key=lambda claim: claim.fencing)
    for fencing, group in itertools.groupby(tokens, lambda c: c.fencing):
        group = list(group)
        if len(group) > 1:
            yield Violation("order", "%s: one fencing token for %r"
                            % (lock, group), lock, group[-1].granted)


def refused(history):
    for op in history.of("op"):
        claim = history.claims.get(op["claim"])
        if (not op["ok"] and claim is not None
                and claim.granted <= op["asked"]
                and op["t"] < claim.certain):
            yield Violation("refused", "%s: %r at %.3f"
                            % (op["lock"], claim, op["t"]), op["lock"],
                            op["t"])


def resource(history):
    """The witness itself never takes an older token."""
    largest = {}
    for line in history.of("guard"):
        if line["ok"] and line["fencing"] < largest.get(line["lock"], 0):
            yield Violation("incomplete", "the resource took %r" % line)
        if line["ok"]:
            largest[line["lock"]] = line["fencing"]


def answers(history):
    for call in history.calls.values():
        if "gateway" not in call.ask or call.status in ENDS:
            continue
        if call.status in (None, "timeout"):
            yield Violation("unanswered", repr(call), call.lock, call.asked)
        elif call.status not in STATUSES[call.kind]:
            yield Violation("answer", repr(call), call.lock, call.asked)


def ends(history):
    for line in history.of("final"):
        if not line["ok"]:
            yield Violation("unavailable", "%(lock)s at %(gateway)s after "
                            "%(tries)d tries" % line, line["lock"], line["t"])
    for line in history.of("znodes"):
        for path in line["paths"]:
            yield Violation("left", path, path.rsplit("/", 2)[1], line["t"])
    for line in history.of("bad"):
        yield Violation("log", "%(gateway)s: %(line)s" % line)
    yield from apart(history)
    if not history.of("end"):
        yield Violation("incomplete", "nobody waited for the end")
    if not history.claims:
        yield Violation("incomplete", "nobody was granted anything")


def apart(history):
    """No server is believed about a claim that servers disagree about."""
    theirs = {line["path"] for line in history.of("zookeeper")}
    for line in history.of("claims"):
        if "every" not in line:
            yield Violation("apart", "a gateway did not tell its claims")
            continue
        wrong = differ(line["every"], line["sure"],
                       set(line["ephemerals"]) - theirs, line["durables"])
        if wrong is not None:
            yield Violation("apart", wrong)


def guards(history):
    """A request that was served has gone through the witness, with a token."""
    for claim in history.claims.values():
        if claim.guarded and claim.fencing <= 0:
            yield Violation("unlocked", "%s: %r" % (claim.lock, claim),
                            claim.lock, claim.granted)


RULES = [two_holders, too_many, lost, order, refused, resource, answers, ends,
         guards]


def check(lines):
    """All violations of a record, except those that are ZooKeeper's."""
    return judge(lines)[0]


def judge(lines):
    """(violations, violations of a lock that servers disagreed about)."""
    history = History(lines)
    found = [violation for rule in RULES for violation in rule(history)]
    theirs = [violation for violation in found
              if disagreed(history, violation)]
    return [v for v in found if v not in theirs], theirs


def disagreed(history, violation):
    """Whether the servers had different claims of that lock, around then.

    The proof comes with a delay, and the disagreement may last: a disagreement
    at the end of the run has lasted since the proof.
    """
    return any(line["lock"] == violation.lock
               and (abs(line["t"] - violation.t) < SHADOW
                    or violation.name in ("left", "unavailable"))
               for line in history.of("zookeeper"))


# --- what is no violation, but worth knowing ---------------------------------

def clients_faults(history):
    """Operations of clients whose lease was over by the client's clock."""
    return [op for op in history.of("op") if op.get("over")]


def stopped(history):
    """Operations of holders that had lost the lock unawares."""
    return [op for op in history.of("op")
            if not op["ok"] and not op.get("over")]


def longest_gap(history):
    """The longest time in which no gateway granted a lock."""
    times = sorted(claim.granted for claim in history.claims.values()
                   if not claim.foreign)
    return max((b - a for a, b in zip(times, times[1:])), default=0.0)


def latest_answer(history):
    """By how much an answer to an acquire came after the wait, at most."""
    return max((call.told - call.asked - call.ask["wait"]
                for call in history.calls.values()
                if call.kind == "acquire" and "gateway" in call.ask
                and isinstance(call.status, int)), default=0.0)


def figures(lines):
    """What to print of a run."""
    history = History(lines)
    acquires = [call for call in history.calls.values()
                if call.kind == "acquire" and "gateway" in call.ask]
    faults = collections.Counter(
        line["kind"] for line in history.of("fault") if "healed" not in line)
    return {
        "faults": dict(faults),
        "grants": sum(not c.foreign for c in history.claims.values()),
        "of these durable from the start": sum(
            c.durable for c in history.claims.values()),
        "grants of kazoo and Curator":
            sum(c.foreign and not c.guarded
                for c in history.claims.values()),
        "requests served behind a guard":
            sum(c.guarded for c in history.claims.values()),
        "guarded requests by their end": dict(collections.Counter(
            str(call.status) for call in history.calls.values()
            if call.kind == "guarded")),
        "acquires": len(acquires),
        "acquires by their end": dict(collections.Counter(
            str(call.status) for call in acquires)),
        "renewals and looks that said held": sum(
            call.status == 200 for call in history.calls.values()
            if call.kind in ("look", "renew")),
        "guarded operations": len(history.of("op")),
        "of these behind a guard": sum(
            op.get("guarded", False) for op in history.of("op")),
        "of these refused, the lock was lost unawares": len(stopped(history)),
        "of these after the lease, by the client's fault":
            len(clients_faults(history)),
        "sessions of gateways that were over": sum(
            line["session"] in history.sessions
            for line in history.of("expired")),
        "promised ends cut short by these": excused(history),
        "claims about which ZooKeeper's servers disagreed":
            len(history.of("zookeeper")),
        "longest time without a grant, s": round(longest_gap(history), 3),
        "latest answer after the end of its wait, s":
            round(latest_answer(history), 3),
    }
