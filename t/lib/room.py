"""What the holders of a lock know together: who is in, and in what order.

Each holder enters the room when told of the grant, and leaves before the
release.  So a client in the room holds the lock, and an exclusive holder is in
the room together with another only if both were granted the lock at once.  Each
holder has a place in the queue, the number of the claim: no claim passes a
writer, and no writer passes another claim.
"""

import bisect


class Room:
    def __init__(self):
        self.inside = {}        # client -> whether the mode is exclusive
        self.entered = []       # (number, alone, fencing token or None)
        self.last = -1          # the greatest number that was in
        self.last_alone = -1    # the greatest exclusive number that was in
        self.most = 0           # how many were in at once

    def enter(self, who, alone, number, fencing=None):
        others = [other for other, is_alone in self.inside.items()
                  if alone or is_alone]
        assert not others, "%s is granted while %s hold it" % (who, others)
        passed = self.last if alone else self.last_alone
        assert number > passed, "%s passed by %d: %d" % (who, number, passed)
        assert who not in self.inside

        self.inside[who] = alone
        self.last = max(self.last, number)
        if alone:
            self.last_alone = number
        self.most = max(self.most, len(self.inside))
        self.entered.append((number, alone, fencing))

    def leave(self, who):
        del self.inside[who]

    def judge(self):
        """At the end: the room is empty, fencing tokens grew with the queue."""
        assert not self.inside, self.inside
        fencing = [token for _, _, token in sorted(self.entered)
                   if token is not None]
        for one, next_one in zip(fencing, fencing[1:]):
            assert one < next_one, "fencing tokens %d, %d" % (one, next_one)

    def counts(self):
        """(how many were in alone, how many not)"""
        alone = sum(1 for _, is_alone, _ in self.entered if is_alone)
        return alone, len(self.entered) - alone


class Seats:
    """The same for a lock with a number of seats, first come first.

    When a claim comes in, fewer claims than seats are ahead in the queue: no
    other claim may have passed a claim that still waits.  A waiter tells the
    place only on entry, so the passing claims are judged then.
    """

    def __init__(self, seats):
        self.seats = seats
        self.inside = {}        # client -> number
        self.entered = []       # (number, fencing token), in queue order
        self.ahead = {}         # number -> how many were ahead and not gone
        self.most = 0           # how many were in at once

    def enter(self, who, number, fencing):
        assert len(self.inside) < self.seats, "%s is granted while %s hold" % (
            who, sorted(self.inside))
        assert who not in self.inside

        place = bisect.bisect(self.entered, (number,))
        self.ahead[number] = sum(1 for other in self.inside.values()
                                 if other < number)
        for passed_by, _ in self.entered[place:]:
            self.ahead[passed_by] += 1
            assert self.ahead[passed_by] < self.seats, (
                "%s, %d, is passed by %d" % (who, number, passed_by))

        self.entered.insert(place, (number, fencing))
        self.inside[who] = number
        self.most = max(self.most, len(self.inside))

    def leave(self, who):
        del self.inside[who]

    def judge(self):
        """At the end: the room is empty, fencing tokens grew with the queue."""
        assert not self.inside, self.inside
        for (_, one), (_, next_one) in zip(self.entered, self.entered[1:]):
            assert one < next_one, "fencing tokens %d, %d" % (one, next_one)
