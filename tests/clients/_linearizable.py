"""Decides whether a history of compare-and-set and reads of one register is linearizable.

Algorithm of Wing and Gong, with the set of visited states of Lowe ("Testing for linearizability", 2017): an operation
may come next if no remaining operation ended before it began.
"""

from collections import namedtuple

# `began` and `ended` are times of one clock. `ended` is `None` if the outcome is unknown: the operation took effect at some
# time after it began, or never. `expected` and `new` are the values of a compare-and-set. `new` is `None` for a read.
# `applied` is the result that the client received. `seen` is the value that a read or a refused compare-and-set returned.
Operation = namedtuple("Operation", "began ended expected new applied seen")


def cas(began, ended, expected, new, applied=None, seen=None):
    return Operation(began, ended, expected, new, applied, seen)


def read(began, ended, seen):
    return Operation(began, ended, None, None, False, seen)


def after(operation, value):
    """Returns the possible values after an operation that finds `value`. None: its outcome contradicts `value`."""
    if operation.ended is None:
        return {operation.new} if value == operation.expected else set()
    if operation.applied:
        return {operation.new} if value == operation.expected else set()
    if operation.new is not None and value == operation.expected:
        return set()
    return {value} if value == operation.seen else set()


def is_linearizable(operations, initial=None):
    operations = sorted((o for o in operations if o.ended is not None or o.new is not None), key=lambda o: o.began)
    known = sum(1 << at for at, operation in enumerate(operations) if operation.ended is not None)
    seen, stack = {(0, initial)}, [(0, initial)]
    while stack:
        done, value = stack.pop()
        if done & known == known:
            return True
        left = [at for at in range(len(operations)) if not done >> at & 1]
        first_end = min((operations[at].ended for at in left if operations[at].ended is not None), default=None)
        for at in left:
            if first_end is not None and operations[at].began > first_end:
                break
            for value_after in after(operations[at], value):
                state = (done | 1 << at, value_after)
                if state not in seen:
                    seen.add(state)
                    stack.append(state)
    return False


def self_test():
    write = cas(0, 1, None, 1, applied=True)
    assert is_linearizable([write, read(2, 3, 1)])
    assert not is_linearizable([write, read(2, 3, None)]), "a read after a write misses it"
    assert is_linearizable([write, read(0.5, 3, None)]), "a read during the write may precede it"
    both = [cas(0, 5, None, 1, applied=True), cas(1, 4, None, 2, applied=True)]
    assert not is_linearizable(both), "two clients got one lock"
    assert is_linearizable([cas(0, None, None, 1), read(2, 3, 1)]), "an operation of unknown outcome took effect"
    assert is_linearizable([cas(0, None, None, 1), read(2, 3, None)]), "an operation of unknown outcome did not take effect"
    late = [cas(0, None, None, 1), read(2, 3, 1), read(4, 5, None)]
    assert not is_linearizable(late), "a value that was read is undone"
    refused = [cas(0, 1, None, 2, applied=False, seen=1), read(2, 3, None)]
    assert not is_linearizable([cas(0, None, None, 1), *refused]), "a value that a refusal returned is undone"


self_test()
