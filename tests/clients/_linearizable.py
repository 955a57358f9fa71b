"""Decides whether a history of compare-and-set and reads of one register is linearizable.

The search is Wing and Gong's, with the memory of states that Lowe added ("Testing for linearizability", 2017): an operation may
come next if none that is still to come ended before it began.
"""

from collections import namedtuple

# `began` and `ended` are times of one clock; `ended` is `None` where the outcome is not known: such an operation took effect at
# some time after it began, or never. `expected` and `new` are those of a compare-and-set, `new` is `None` for a read. `applied` is
# what the client was told; `seen` is the value that a read returned, or that a refusal showed.
Operation = namedtuple("Operation", "began ended expected new applied seen")


def cas(began, ended, expected, new, applied=None, seen=None):
    return Operation(began, ended, expected, new, applied, seen)


def read(began, ended, seen):
    return Operation(began, ended, None, None, False, seen)


def after(operation, value):
    """The values that the register may have after an operation that finds `value`; none if its outcome speaks against it."""
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
    assert not is_linearizable([write, read(2, 3, None)]), "a read after a write that does not see it"
    assert is_linearizable([write, read(0.5, 3, None)]), "beside the write, before it"
    both = [cas(0, 5, None, 1, applied=True), cas(1, 4, None, 2, applied=True)]
    assert not is_linearizable(both), "one lock for two"
    assert is_linearizable([cas(0, None, None, 1), read(2, 3, 1)]), "its client is gone, and it took effect"
    assert is_linearizable([cas(0, None, None, 1), read(2, 3, None)]), "or did not"
    late = [cas(0, None, None, 1), read(2, 3, 1), read(4, 5, None)]
    assert not is_linearizable(late), "what was seen is not undone"
    refused = [cas(0, 1, None, 2, applied=False, seen=1), read(2, 3, None)]
    assert not is_linearizable([cas(0, None, None, 1), *refused]), "what a refusal showed is not undone"


self_test()
