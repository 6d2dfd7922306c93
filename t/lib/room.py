"""What the holders of one lock know together: who is in, and in what order.

Each tells when it was granted the lock, and when it begins to give it back.
So whoever is in the room held the lock in truth, and two of whom one wants to
be alone are in it at once only if both were granted the lock at once.  Who
comes in has a place in line, the number of its claim: nobody passes a writer,
and no writer passes anybody.
"""

import bisect


class Room:
    def __init__(self):
        self.inside = {}        # who -> whether it wants to be alone
        self.entered = []       # (number, alone, fencing token or None)
        self.last = -1          # the greatest number that was in
        self.last_alone = -1    # and that wanted to be alone
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
        """At the end: nobody is in, and fencing tokens grew in the line."""
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
    """The same of a lock that so many may hold at once, first come first.

    When one comes in, fewer than that are ahead of it in line: nobody else is
    to have passed who waits still.  Who waits tells its place only when it
    comes in itself, so whom it finds to have passed it is judged then.
    """

    def __init__(self, seats):
        self.seats = seats
        self.inside = {}        # who -> number
        self.entered = []       # (number, fencing token), in their order
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
        """At the end: nobody is in, and fencing tokens grew in the line."""
        assert not self.inside, self.inside
        for (_, one), (_, next_one) in zip(self.entered, self.entered[1:]):
            assert one < next_one, "fencing tokens %d, %d" % (one, next_one)
