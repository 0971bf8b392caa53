"""Every interleaving of two publishers and a reader, step by step: what the reader accepts is one version, all over.

The model is the protocol of Publication and Subscription: a rank makes its stamp odd, writes its two parts, and makes the
stamp even; the reader takes all stamps, all parts, all stamps. It can fail: with a rule left out, a mixture is found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

RANKS, PARTS, UPDATES = 2, 2, 2
READS = [("stamp", r, 0) for r in range(RANKS)]
READS += [("part", r, p) for r in range(RANKS) for p in range(PARTS)]
READS += [("stamp", r, 0) for r in range(RANKS)]


@dataclass(frozen=True)
class State:
    steps: tuple[int, ...] = (0,) * RANKS  # of each publisher: PARTS + 2 an update
    stamps: tuple[int, ...] = (2,) * RANKS  # version 1 is committed
    parts: tuple[int, ...] = (1,) * (RANKS * PARTS)
    seen: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rules:
    odd_while_writing: bool = True
    look_again: bool = True
    compare_ranks: bool = True


def put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def publisher_step(state: State, rank: int, rules: Rules) -> State | None:
    update, step = divmod(state.steps[rank], PARTS + 2)
    if update == UPDATES:
        return None
    after = replace(state, steps=put(state.steps, rank, state.steps[rank] + 1))
    version = update + 2
    if step == 0:
        return replace(after, stamps=put(after.stamps, rank, 2 * version - 1)) if rules.odd_while_writing else after
    if step <= PARTS:
        return replace(after, parts=put(after.parts, rank * PARTS + step - 1, version))
    return replace(after, stamps=put(after.stamps, rank, 2 * version))


def reader_step(state: State, rules: Rules) -> State | None:
    at = len(state.seen)
    if at == len(READS):
        return None
    kind, rank, part = READS[at]
    value = state.stamps[rank] if kind == "stamp" else state.parts[rank * PARTS + part]
    seen = (*state.seen, value)
    if at + 1 == RANKS and not whole(seen, rules):
        seen = ()  # it looks again before it reads
    return replace(state, seen=seen)


def whole(stamps: tuple[int, ...], rules: Rules) -> bool:
    return all(stamp % 2 == 0 for stamp in stamps) and (len(set(stamps)) == 1 or not rules.compare_ranks)


def accepted(state: State, rules: Rules) -> bool:
    if len(state.seen) < len(READS):
        return False
    before, after = state.seen[:RANKS], state.seen[-RANKS:]
    return not rules.look_again or (whole(after, rules) and before == after)


def mixtures(rules: Rules) -> tuple[int, int, int]:
    """States seen, versions accepted whole, mixtures accepted."""
    todo, known = [State()], {State()}
    good = bad = 0
    while todo:
        state = todo.pop()
        if accepted(state, rules):
            parts = state.seen[RANKS:-RANKS]
            if set(parts) == {state.seen[0] // 2}:
                good += 1
            else:
                bad += 1
        following = [publisher_step(state, rank, rules) for rank in range(RANKS)] + [reader_step(state, rules)]
        for after in following:
            if after is not None and after not in known:
                known.add(after)
                todo.append(after)
    return len(known), good, bad


def test_no_interleaving_gives_a_mixture():
    states, good, bad = mixtures(Rules())
    assert states > 1000
    assert good > 3
    assert bad == 0


@pytest.mark.parametrize("left_out", ["odd_while_writing", "look_again", "compare_ranks"])
def test_each_rule_is_needed(left_out):
    assert mixtures(replace(Rules(), **{left_out: False}))[2] > 0
