"""The checker of t/chaos finds broken promises, and no false ones.

The records are made up here, line by line: each kind of violation is planted
once, beside the same record without the violation.  `make chaos` shows that
real violations are found in real runs.
"""

import itertools

import pytest

from chaos import checker
from chaos.audit import Look, outlived


class Story:
    """Lines of a record, as clients would write the lines."""

    def __init__(self):
        self.lines = []
        self.numbers = itertools.count()

    def write(self, what, t, **fields):
        self.lines.append(dict(fields, what=what, t=t))
        return self

    def call(self, kind, asked, told, status, who="a", lock="own1",
             gateway="g1", answer=(), **fields):
        number = next(self.numbers)
        if gateway is not None:
            fields["gateway"] = gateway
        self.write("ask", asked, id=number, who=who, kind=kind, lock=lock,
                   wait=fields.pop("wait", 1.0), **fields)
        if told is not None:
            self.write("told", told, id=number, status=status,
                       **dict(answer))
        return self

    def grant(self, asked, told, claim, fencing, expires=10.0, waited=0.0,
              status=201, **fields):
        return self.call("acquire", asked, told, status,
                         answer={"claim": claim, "fencing": fencing,
                                 "expires": expires, "waited": waited},
                         **dict({"mode": "exclusive"}, **fields))

    def foreign(self, asked, told, claim, fencing, **fields):
        return self.call("acquire", asked, told, 201, gateway=None,
                         answer={"claim": claim, "fencing": fencing},
                         **dict({"mode": "exclusive"}, **fields))

    def guarded(self, asked, arrived, claim, fencing, **fields):
        """A request that the witness behind a guard serves."""
        return self.call("acquire", asked, arrived, 201, gateway=None,
                         answer={"claim": claim, "fencing": fencing,
                                 "waited": fields.pop("waited", 0.0)},
                         **dict({"mode": "exclusive", "guarded": True},
                                **fields))

    def look(self, asked, claim, status=200, told=None, **fields):
        return self.call("look", asked, told or asked + 0.01, status,
                         claim=claim, **fields)

    def renew(self, asked, claim, expires, status=200, **fields):
        return self.call("renew", asked, asked + 0.01, status, claim=claim,
                         answer={"claim": claim, "fencing": 0,
                                 "expires": expires}, **fields)

    def release(self, asked, claim, status=204, told=None, **fields):
        return self.call("release", asked, told or asked + 0.01, status,
                         claim=claim, **fields)

    def over(self, t, gateway="g1", session=7):
        return (self.write("session", 0, session=session, gateways=[gateway])
                .write("expired", t, session=session))

    def found(self, end=True):
        if end:
            self.write("end", 1000)
        return [v.name for v in checker.check(
            sorted(self.lines, key=lambda line: line["t"]))]


@pytest.fixture
def story():
    return Story()


# two holders

def test_one_after_the_other(story):
    story.grant(1, 1.1, "A", 1).look(2, "A").release(3, "A")
    story.grant(2, 3.05, "B", 2, waited=1.0, who="b").release(5, "B")
    assert story.found() == []


def test_no_records_are_no_success(story):
    assert story.found() == ["incomplete"]


def test_without_an_end(story):
    story.grant(1, 1.1, "A", 1)
    assert story.found(end=False) == ["incomplete"]


def test_two_for_certain(story):
    story.grant(1, 1.1, "A", 1).look(4, "A").release(5, "A")
    story.grant(2, 2.1, "B", 2, who="b").look(3, "B").release(3.5, "B")
    assert story.found() == ["two holders"]


def test_no_session_excuses_what_is_certain(story):
    story.grant(1, 1.1, "A", 1).look(4, "A").over(1.5)
    story.grant(2, 2.1, "B", 2, who="b").look(3, "B").over(1.6, "g2", 8)
    assert story.found() == ["two holders"]


def test_granted_before_the_lease_is_over(story):
    story.grant(1, 1.1, "A", 1, expires=5)
    story.grant(2, 4, "B", 2, waited=2, who="b")
    assert story.found() == ["two holders"]


def test_granted_when_the_lease_is_over(story):
    story.grant(1, 1.1, "A", 1, expires=2)
    story.grant(2, 4, "B", 2, waited=2, who="b")
    assert story.found() == []


def test_a_renewal_promises_more(story):
    story.grant(1, 1.1, "A", 1, expires=2).renew(2, "A", 5)
    story.grant(2, 4, "B", 2, waited=2, who="b")
    assert story.found() == ["two holders"]


def test_the_lease_begins_with_the_grant(story):
    story.grant(1, 4, "A", 1, expires=2, waited=3)
    story.grant(2, 5, "B", 2, waited=3, who="b")
    assert story.found() == ["two holders"]


def test_a_session_that_was_over_ends_a_promise(story):
    story.grant(1, 1.1, "A", 1, expires=5).over(3.9)
    story.grant(2, 4, "B", 2, waited=2, who="b")
    assert story.found() == []
    assert checker.excused(checker.History(story.lines)) == 1


def test_no_session_ends_a_durable_promise(story):
    story.grant(1, 1.1, "A", 1, expires=5, durable=True).over(3.9)
    story.grant(2, 4, "B", 2, waited=2, who="b", gateway="g3")
    assert story.found() == ["two holders"]


@pytest.mark.parametrize("t, gateway", [(3.9, "g2"), (4.9, "g1"),
                                        (0.5, "g1")])
def test_another_session_does_not(story, t, gateway):
    story.grant(1, 1.1, "A", 1, expires=5).over(t, gateway)
    story.grant(2, 4, "B", 2, waited=2, who="b", gateway="g3")
    assert story.found() == ["two holders"]


def test_a_grant_that_was_told_late(story):
    """The grant's session was over by then: the holder may not be sure."""
    story.grant(1, 6, "A", 1, expires=9, gateway="g2").over(4, "g2")
    story.grant(2, 5, "B", 2, who="b").look(5.5, "B").look(7, "B")
    assert story.found() == []


def test_a_release_that_is_under_way_ends_it(story):
    story.grant(1, 1.1, "A", 1).release(2, "A", 503, told=3)
    story.grant(1, 2.1, "B", 2, waited=1.0, who="b").look(4, "B")
    assert story.found() == []


def test_an_answer_may_be_late(story):
    """The lock was held when the call was sent, not when the answer came."""
    story.grant(1, 1.1, "A", 1, expires=1).look(2, "A", told=5)
    story.grant(1, 3.1, "B", 2, who="b", waited=2).look(4, "B")
    assert story.found() == []


def test_a_foreign_holder_beside_ours(story):
    story.foreign(1, 1.1, "K", 1, who="k").look(4, "K", gateway=None)
    story.grant(2, 3, "B", 2, who="b", waited=0.5)
    story.look(3.5, "B")
    assert story.found() == ["two holders"]


def test_a_foreign_holder_promises_nothing(story):
    story.foreign(1, 1.1, "K", 1, who="k").look(2, "K", gateway=None)
    story.grant(2, 3, "B", 2, who="b", waited=0.5)
    assert story.found() == []


def test_two_guarded_requests_for_certain(story):
    for i, name in enumerate("AB"):
        story.guarded(1 + i, 1.1 + i, name, i + 1, who=name)
        story.look(4, name, gateway=None).release(5, name, gateway=None)
    assert story.found() == ["two holders"]
    assert checker.figures(story.lines)["requests served behind a guard"] == 2


def test_a_guarded_request_beside_a_holder(story):
    story.grant(1, 1.1, "A", 1).look(4, "A").release(5, "A")
    story.guarded(2, 2.1, "B", 2, who="b").look(3, "B", gateway=None)
    assert story.found() == ["two holders"]


def test_a_guarded_request_that_lost_its_claim(story):
    """The gateway may not know yet, and the request is served on."""
    story.guarded(1, 1.1, "A", 1).look(2, "A", gateway=None)
    story.look(4, "A", 410, gateway=None).release(5, "A", gateway=None)
    story.grant(2, 3, "B", 2, who="b", waited=0.5).look(4, "B")
    assert story.found() == []


def test_a_guarded_request_out_of_order(story):
    """The wait that the gateway told is over before the grant."""
    story.grant(1, 3.1, "A", 5).release(4, "A")
    story.guarded(2, 5.1, "B", 4, who="b", waited=2.5)
    assert story.found() == ["order"]


def test_a_request_that_is_served_without_a_lock(story):
    story.guarded(1, 1.1, "A", 0).release(2, "A", gateway=None)
    assert story.found() == ["unlocked"]


@pytest.mark.parametrize("status, found", [
    (200, []), (409, []), (423, []), (503, []), ("cut", []), ("left", []),
    ("timeout", ["unanswered"]), (None, ["unanswered"]), (500, ["answer"]),
    (502, ["answer"])])
def test_how_a_guarded_request_ends(story, status, found):
    story.grant(1, 1.1, "A", 1)
    story.call("guarded", 2, status and 3, status, who="b", mode="exclusive")
    assert story.found() == found


def test_readers_go_together(story):
    for i, name in enumerate("ABC"):
        story.grant(1 + i, 1.1 + i, name, i + 1, mode="shared", lock="rw1")
        story.look(8, name)
    assert story.found() == []


def test_a_writer_beside_readers(story):
    story.grant(1, 1.1, "A", 1, mode="shared", lock="rw1").look(8, "A")
    story.grant(2, 2.1, "B", 2, mode="write", lock="rw1").look(8, "B")
    assert story.found() == ["two holders"]


@pytest.mark.parametrize("number, found", [(2, []), (3, ["too many"])])
def test_permits(story, number, found):
    for i in range(number):
        story.grant(1 + i, 1.1 + i, "C%d" % i, i + 1, mode="semaphore",
                    lock="sem1").look(8, "C%d" % i)
    assert story.found() == found


# what else may be broken

def test_lost_without_a_reason(story):
    story.grant(1, 1.1, "A", 1, expires=9).look(3, "A", 410)
    assert story.found() == ["lost"]


def test_lost_with_its_session(story):
    story.grant(1, 1.1, "A", 1, expires=9).look(3, "A", 410).over(2)
    assert story.found() == []


def test_a_durable_lease_is_not_lost_with_its_session(story):
    story.grant(1, 1.1, "A", 1, expires=9, durable=True)
    story.look(3, "A", 410).over(2)
    assert story.found() == ["lost"]


def test_lost_with_its_lease(story):
    story.grant(1, 1.1, "A", 1, expires=1).look(3, "A", 410)
    assert story.found() == []


def test_the_first_release_finds_it_gone(story):
    story.grant(1, 1.1, "A", 1, expires=9).release(3, "A", 410)
    assert story.found() == ["lost"]


def test_a_second_release_finds_it_gone(story):
    story.grant(1, 1.1, "A", 1, expires=9).release(3, "A", "cut")
    story.release(4, "A", 410).look(5, "A", 410)
    assert story.found() == []


def test_fencing_tokens_fall(story):
    story.grant(1, 1.1, "A", 5).release(2, "A")
    story.grant(3, 3.1, "B", 4, who="b").release(4, "B")
    assert story.found() == ["order"]


def test_who_asked_before_may_have_the_smaller_one(story):
    story.grant(1, 3.1, "A", 5).release(4, "A")
    story.grant(2, 5.1, "B", 4, who="b", waited=0.5).release(6, "B")
    assert story.found() == []


def test_who_waited_longer_was_granted_later(story):
    """B called before A was told, but had waited long enough by then."""
    story.grant(1, 3.1, "A", 5).release(4, "A")
    story.grant(2, 5.1, "B", 4, who="b", waited=2.5).release(6, "B")
    assert story.found() == ["order"]


def test_one_fencing_token_for_two(story):
    story.grant(1, 1.1, "A", 5).release(2, "A")
    story.grant(3, 3.1, "B", 5, who="b").release(4, "B")
    assert story.found() == ["order"]


def test_a_repeat_is_the_same_grant(story):
    story.call("acquire", 1, 2, "cut", key="k", mode="exclusive")
    story.grant(3, 3.1, "A", 1, status=200, key="k").look(3.5, "A")
    story.grant(3.2, 3.3, "A", 1, status=200, key="k").release(4, "A")
    story.grant(2, 4.5, "B", 2, who="b", waited=2.1)
    assert story.found() == []


def test_refused_though_held(story):
    story.grant(1, 1.1, "A", 1).look(4, "A")
    story.write("op", 2.1, who="a", lock="own1", claim="A", fencing=1,
                asked=2, ok=False)
    assert story.found() == ["refused"]


def test_refused_when_nothing_was_certain_any_more(story):
    story.grant(1, 1.1, "A", 1).look(1.5, "A")
    story.write("op", 2.1, who="a", lock="own1", claim="A", fencing=1,
                asked=2, ok=False)
    assert story.found() == []
    assert len(checker.stopped(checker.History(story.lines))) == 1


def test_a_clients_own_fault(story):
    story.grant(1, 1.1, "A", 1, expires=1)
    story.write("op", 9, who="a", lock="own1", claim="A", fencing=1,
                asked=9, ok=True, over=True)
    assert story.found() == []
    assert len(checker.clients_faults(checker.History(story.lines))) == 1


def test_a_resource_that_takes_what_is_old(story):
    story.grant(1, 1.1, "A", 1)
    story.write("guard", 2, lock="own1", fencing=5, ok=True)
    story.write("guard", 3, lock="own1", fencing=4, ok=True)
    assert story.found() == ["incomplete"]


@pytest.mark.parametrize("told, status, found", [
    (None, None, ["unanswered"]), (50, "timeout", ["unanswered"]),
    (3, "cut", []), (3, "unreached", []), (3, "left", []), (3, 423, []),
    (3, 503, []), (3, 500, ["answer"]), (3, 410, ["answer"])])
def test_how_a_wait_ends(story, told, status, found):
    story.grant(1, 1.1, "A", 1)
    story.call("acquire", 2, told, status, who="b", mode="exclusive")
    assert story.found() == found


def test_what_is_left_at_the_end(story):
    story.grant(1, 1.1, "A", 1).write("znodes", 9, paths=["/chaos/x"])
    story.write("final", 8, lock="own1", gateway="g1", tries=30, ok=False)
    story.write("bad", 9, gateway="g1", line="exited on signal 11")
    assert sorted(story.found()) == ["left", "log", "unavailable"]


@pytest.mark.parametrize("every, sure, ephemerals, durables, found", [
    (2, 2, 2, 0, []), (3, 1, 2, 0, []), (1, 2, 1, 1, []), (0, 0, 0, 1, []),
    (1, 1, 2, 0, ["apart"]), (2, 2, 1, 0, ["apart"])])
def test_claims_that_are_compared(story, every, sure, ephemerals, durables,
                                  found):
    story.grant(1, 1.1, "A", 1)
    story.write("claims", 9, every=every, sure=sure,
                ephemerals=["/chaos/x/%d" % i for i in range(ephemerals)],
                durables=["/chaos/y/%d" % i for i in range(durables)])
    assert story.found() == found


def test_claims_that_servers_disagree_about(story):
    story.grant(1, 1.1, "A", 1)
    story.write("claims", 9, every=0, sure=0, ephemerals=["/chaos/x/1"],
                durables=[])
    assert story.found(end=False) == ["apart", "incomplete"]
    story.write("zookeeper", 9, path="/chaos/x/1", lock="x")
    assert story.found() == []


def test_claims_that_no_gateway_told(story):
    story.grant(1, 1.1, "A", 1).write("claims", 9)
    assert story.found() == ["apart"]


def test_figures(story):
    story.grant(1, 1.1, "A", 1).look(2, "A").release(3, "A")
    story.grant(2, 4.5, "B", 2, who="b", waited=2.1, wait=2.0)
    story.write("fault", 2, id=1, kind="reload", target="g1")
    story.write("fault", 3, id=1, kind="reload", target="g1", healed=True)
    figures = checker.figures(story.lines)
    assert figures["faults"] == {"reload": 1}
    assert figures["grants"] == 2
    assert figures["longest time without a grant, s"] == 3.4
    assert figures["latest answer after the end of its wait, s"] == 0.5


# ZooKeeper's own faults

def test_servers_that_disagree(story):
    story.grant(1, 1.1, "A", 1).look(4, "A").release(5, "A")
    story.grant(2, 2.1, "B", 2, who="b").look(3, "B").release(3.5, "B")
    story.write("zookeeper", 6, lock="own1", path="/chaos/locks/own1/A")
    violations, theirs = checker.judge(story.lines + [
        {"what": "end", "t": 9}])
    assert not violations
    assert [violation.name for violation in theirs] == ["two holders"]


@pytest.mark.parametrize("lock, t", [("own2", 6), ("own1", 600)])
def test_servers_that_disagree_about_something_else(story, lock, t):
    story.grant(1, 1.1, "A", 1).look(4, "A").release(5, "A")
    story.grant(2, 2.1, "B", 2, who="b").look(3, "B").release(3.5, "B")
    story.write("zookeeper", t, lock=lock, path="/chaos/locks/x/A")
    assert story.found() == ["two holders"]


@pytest.mark.parametrize("last, middle, again, found", [
    # the proof
    ((7, {"x"}, 7), (5, set(), 5), (6, set(), 6), {"x"}),
    # A and B agree
    ((7, {"x"}, 7), (5, {"x"}, 6), (6, {"x"}, 6), set()),
    # both have seen the end
    ((7, set(), 7), (5, set(), 6), (6, set(), 6), set()),
    # A may have been behind B
    ((5, {"x"}, 7), (5, set(), 5), (6, set(), 6), set()),
    # B may have been behind A
    ((7, {"x"}, 7), (2, set(), 5), (6, set(), 6), set()),
    # B was about to see the end
    ((5, {"x"}, 5), (5, set(), 5), (6, set(), 6), set())])
def test_a_claim_that_outlives_itself(last, middle, again, found):
    former = [Look(2, {"x"}, 3)]
    assert outlived(Look(*last), former, [Look(*middle),
                                          Look(*again)]) == found
