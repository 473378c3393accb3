"""The steps that are compiled where numba is installed: subset construction on flat arrays, and the walk over the vocabulary's byte tree.

Plain Python on numpy arrays, so that tests can run the same steps without a compiler; far too slow for anything else. What they mean is
said by `nfa`, `subsets` and `walk`. Compiled code does not check its indices: every write is behind a check of the room that is left, and
when there is none, a step ends with the code of what is short, having changed nothing that matters. The caller makes room and calls again.

All steps stand in one file, because what is kept on disk of compiled code is made anew when its file changes, and only then.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

Array: TypeAlias = Any
Bytes: TypeAlias = Any  # uint8 [n]
Ints: TypeAlias = Any  # int32 [n]
IntRows: TypeAlias = Any  # int32 [n, m]
Longs: TypeAlias = Any  # int64 [n]
Row: TypeAlias = Any  # bool [n]

# What a transition or a step may answer instead of a state.
DEAD: Final = -1
UNKNOWN: Final = -2
FULL_FRAMES: Final = -3
FULL_POSITIONS: Final = -4
FULL_STATES: Final = -5
FULL_POOL: Final = -6
OVER_LIMIT: Final = -7
PAUSE: Final = -8  # the budget of ticks is used up: look at the clock, then call again

# What `run` is asked for instead of a state and a class of bytes.
FIRST: Final = -1
REHASH: Final = -2
ALL: Final = -1

END_OF_CHAR: Final = -2  # in `arcs`: the byte ends the character
NO_LIMIT: Final = 1 << 30

# Rows of `nodes`: op, what it means, and the place at the beginning of the character that it begins with (-1: anything else).
CHARS: Final = 0  # -, 0 (nothing behind it), slice, place
SEQ: Final = 1  # first, rest, -, place
ALT: Final = 2  # begin and end in `options`, slice of an option, -1
REPEAT: Final = 3  # body, lowest and highest count (-1: no limit), -1
NOTHING: Final = 4
BEGINS: Final = 4  # the column of the place

# Columns of `frames`: a continuation is a node, for a repetition its body and counts, and the frame behind it. Then its closure.
NODE: Final = 0
LOW: Final = 1  # -1: no repetition
HIGH: Final = 2
BEHIND: Final = 3
CLOSURE: Final = 4  # where it begins in `pool`
CLOSURE_LEN: Final = 5  # -1: not worked out yet
IS_END: Final = 6
FRAME_SLICE: Final = 7
FRAME_REACH: Final = 8
FRAME_MARK: Final = 9  # the epoch in which it was met
STACK: Final = 10  # this column is a stack
COUNTED: Final = 11  # 1: it holds a repetition with two limits that differ, here or behind

# Columns of `positions`.
PLACE: Final = 0  # inside a character
THEN: Final = 1  # the frame behind the character
POSITION_MARK: Final = 2
NEXT: Final = 3  # position of a list, -1: the last

# Columns of `states`.
BEGIN: Final = 0  # where its positions begin in `pool`
LENGTH: Final = 1
ACCEPTING: Final = 2
FORCED: Final = 3  # the only byte that may follow, -1: a choice
STATE_SLICE: Final = 4  # characters of this slice ...
STATE_REACH: Final = 5  # ... may follow, up to so many; slice -1: nothing is known
EVEN: Final = 6  # 1: all characters of the slice lead to one state
INSIDE_CHAR: Final = 7  # 1: all positions are inside a character
HASH: Final = 8

# Columns of `records`, one for each node of the byte tree and one behind them.
BYTE_DEPTH: Final = 0  # byte + 256 * depth
SUBTREE_END: Final = 1
FIRST_SLOT: Final = 2
HEIGHT: Final = 3  # the most characters that begin below it on one path

# Places in `counts`.
NUM_FRAMES: Final = 0
NUM_POSITIONS: Final = 1
NUM_STATES: Final = 2
POOL_LEN: Final = 3
EPOCH: Final = 4
TICKS: Final = 5
NUM_COUNTED: Final = 6
MAX_COUNTED: Final = 7
ROOT_NODE: Final = 8

POSITIONS_PER_STATE: Final = 64  # a state of more positions counts as several towards the limit
_GOOD_REACH: Final = 16
_PRUNE_FROM: Final = 8  # positions
_MAX_COMPARED: Final = 16  # pairs a position
_MASK: Final = 0xFFFFFFFF


# Columns of `places` and `slices`.
SINGLE: Final = 0  # the only byte that leads on, else -1
PLACE_MARK: Final = 1  # the epoch in which it was met
CONTINUES: Final = 2  # 1: it is not at the beginning of a character
LIST_MARK: Final = 3  # the epoch of the list of positions that begins in the next column
LIST: Final = 4
OVERLAP: Final = 5  # + number of the slice: SAME place as its beginning, SOME common byte, or 0
SOME: Final = 1
SAME: Final = 2
COVERAGE: Final = 0
SAMPLE: Final = 1
NOT_INSIDE: Final = 65535  # in `char_counts`: the token has other characters as well


class Slices(NamedTuple):
    """What the vocabulary has of the characters of each slice."""

    inside: Array  # uint8 [nodes]: bit s where a character ends and everything below goes on with characters of slice s
    char_counts: Array  # uint16 [slices, tokens]: how many characters, all of them of the slice, a token has
    exits: Array  # [exits of all slices, 2]: a node that is the first behind nothing but characters of the slice, and how many these are
    exit_starts: Array  # [slices + 1]


class Tables(NamedTuple):
    """The arrays of one automaton; int32 where nothing else is said."""

    nodes: Array  # [nodes, 5]
    options: Array  # [all options of all alternations]
    arcs: Array  # [places inside characters, byte classes]: the next place, DEAD or END_OF_CHAR
    places: Array  # [places inside characters, 5 + slices], see SINGLE
    slices: (
        Array  # [slices, 2]: how many tokens consist of its characters, and a class of bytes that are such characters (-1: there is none)
    )
    frames: Array  # [capacity, 12]
    frame_ids: Array  # hash table, twice the capacity
    positions: Array  # [capacity, 4]
    position_ids: Array
    states: Array  # [capacity, 9]
    state_ids: Array
    table: Array  # [capacity of states, byte classes]
    pool: Array  # lists of positions: closures and states
    counts: Array  # int64 [16]


# What the arrays hold and how many dimensions they have, for the compiler.
ARRAY_TYPES: Final = {"Bytes": "uint8 1", "Ints": "int32 1", "IntRows": "int32 2", "Row": "boolean 1", "Longs": "int64 1"}
SLICE_TYPES: Final = {"inside": "uint8 1", "char_counts": "uint16 2", "exits": "int32 2", "exit_starts": "int32 1"}
TABLE_TYPES: Final = {
    "nodes": "int32 2",
    "options": "int32 1",
    "arcs": "int32 2",
    "places": "int32 2",
    "slices": "int32 2",
    "frames": "int32 2",
    "frame_ids": "int32 1",
    "positions": "int32 2",
    "position_ids": "int32 1",
    "states": "int32 2",
    "state_ids": "int32 1",
    "table": "int32 2",
    "pool": "int32 1",
    "counts": "int64 1",
}


# ---- continuations


def frame_hash(node: int, low: int, high: int, behind: int) -> int:
    mixed = (int(node) * 0x9E3779B1 + int(low) * 0x85EBCA6B + int(high) * 0xC2B2AE35 + int(behind) * 0x27D4EB2F) & _MASK
    return mixed ^ (mixed >> 15)


def make_frame(t: Tables, node: int, low: int, high: int, behind: int) -> int:
    """The number of a frame; there must be room for one more."""
    mask = len(t.frame_ids) - 1
    at = frame_hash(node, low, high, behind) & mask
    while t.frame_ids[at] >= 0:
        found = t.frame_ids[at]
        if (
            t.frames[found, NODE] == node
            and t.frames[found, LOW] == low
            and t.frames[found, HIGH] == high
            and t.frames[found, BEHIND] == behind
        ):
            return int(found)
        at = (at + 1) & mask
    frame = t.counts[NUM_FRAMES]
    t.counts[NUM_FRAMES] = frame + 1
    t.frame_ids[at] = frame
    t.frames[frame, NODE] = node
    t.frames[frame, LOW] = low
    t.frames[frame, HIGH] = high
    t.frames[frame, BEHIND] = behind
    t.frames[frame, CLOSURE_LEN] = -1
    t.frames[frame, FRAME_MARK] = 0
    t.frames[frame, COUNTED] = 1 if low < high else t.frames[behind, COUNTED]
    return int(frame)


def push_repeat(t: Tables, body: int, low: int, high: int, behind: int) -> int:
    if high == 0:
        return behind
    if low == 1 and high == 1:
        return make_frame(t, body, -1, -1, behind)  # a body is no repetition then: see `flat_nodes`
    if low == 0 and high == -1 and t.frames[behind, NODE] == body and t.frames[behind, LOW] == 0 and t.frames[behind, HIGH] == -1:
        return behind  # x*x* is x*
    return make_frame(t, body, low, high, behind)


def push_node(t: Tables, node: int, behind: int) -> int:
    """The frame that matches a node and then `behind`."""
    if node == 0:
        return behind
    if t.nodes[node, 0] == REPEAT:
        return push_repeat(t, t.nodes[node, 1], t.nodes[node, 2], t.nodes[node, 3], behind)
    return make_frame(t, node, -1, -1, behind)


def make_literal_closure(t: Tables, frame: int) -> int:
    """`make_closure` of a frame that begins with one set of characters, as all do within a literal."""
    node = t.frames[frame, NODE]
    if t.counts[NUM_FRAMES] + 2 > len(t.frames):
        return FULL_FRAMES
    if t.counts[NUM_POSITIONS] == len(t.positions):
        return FULL_POSITIONS
    if t.counts[POOL_LEN] == len(t.pool):
        return FULL_POOL
    top = t.counts[POOL_LEN]
    t.pool[top] = make_position(t, t.nodes[node, BEGINS], push_node(t, t.nodes[node, 2], t.frames[frame, BEHIND]))
    t.counts[POOL_LEN] = top + 1
    t.counts[TICKS] -= 1
    t.frames[frame, CLOSURE] = top
    t.frames[frame, CLOSURE_LEN] = 1
    t.frames[frame, IS_END] = 0
    t.frames[frame, FRAME_SLICE] = -1
    t.frames[frame, FRAME_REACH] = 0
    return 0


def make_closure(t: Tables, frame: int) -> int:
    """Work out the positions that a frame begins with. Returns 0, or what is short."""
    t.counts[EPOCH] += 1
    epoch = t.counts[EPOCH]
    top = t.counts[POOL_LEN]
    num = 0
    is_end = 0
    best = -1
    reach = 0
    best_score = 0
    t.frames[0, STACK] = frame
    t.frames[frame, FRAME_MARK] = epoch
    num_todo = 1
    while num_todo > 0:
        num_todo -= 1
        at = t.frames[num_todo, STACK]
        t.counts[TICKS] -= 1
        if at == 0:
            is_end = 1
            continue
        node = t.frames[at, NODE]
        low = t.frames[at, LOW]
        behind = t.frames[at, BEHIND]
        op = t.nodes[node, 0]
        first = -1  # a frame that is no alternation is as good as one of itself
        last = 0
        if low < 0 and op == ALT:
            first = t.nodes[node, 1]
            last = t.nodes[node, 2]
        if t.counts[NUM_FRAMES] + last - first + 3 > len(t.frames):
            return FULL_FRAMES
        if low < 0 and (op == ALT or t.nodes[node, BEGINS] >= 0):
            if t.counts[NUM_POSITIONS] + last - first > len(t.positions):
                return FULL_POSITIONS
            if top + num + last - first > len(t.pool):
                return FULL_POOL
            for at_option in range(first, last):
                option = node if first < 0 else t.options[at_option]
                if option > 0 and t.nodes[option, BEGINS] >= 0:
                    position = make_position(t, t.nodes[option, BEGINS], push_node(t, t.nodes[option, 2], behind))
                    if t.positions[position, POSITION_MARK] != epoch:
                        t.positions[position, POSITION_MARK] = epoch
                        t.pool[top + num] = position
                        num += 1
                    continue
                following = push_node(t, option, behind)
                if t.frames[following, FRAME_MARK] != epoch:
                    t.frames[following, FRAME_MARK] = epoch
                    t.frames[num_todo, STACK] = following
                    num_todo += 1
            t.counts[TICKS] -= last - first
            continue
        if low < 0:
            following = push_node(t, t.nodes[node, 1], push_node(t, t.nodes[node, 2], behind))
        else:
            high = t.frames[at, HIGH]
            slice_number = t.nodes[node, 3]
            if slice_number >= 0 and op <= ALT and op != SEQ:
                far = NO_LIMIT if high < 0 else high
                score = t.slices[slice_number, COVERAGE] * min(far, _GOOD_REACH)
                if score > best_score:
                    best_score = score
                    best = slice_number
                    reach = far
            again = push_repeat(t, node, max(low - 1, 0), high if high < 0 else high - 1, behind)
            following = push_node(t, node, again)
            if low == 0 and t.frames[behind, FRAME_MARK] != epoch:
                t.frames[behind, FRAME_MARK] = epoch
                t.frames[num_todo, STACK] = behind
                num_todo += 1
        if t.frames[following, FRAME_MARK] != epoch:
            t.frames[following, FRAME_MARK] = epoch
            t.frames[num_todo, STACK] = following
            num_todo += 1
    t.frames[frame, CLOSURE] = top
    t.frames[frame, CLOSURE_LEN] = num
    t.frames[frame, IS_END] = is_end
    t.frames[frame, FRAME_SLICE] = best
    t.frames[frame, FRAME_REACH] = reach
    t.counts[POOL_LEN] = top + num
    return 0


# ---- positions and states


def position_hash(inside: int, behind: int) -> int:
    mixed = (int(inside) * 0x9E3779B1 + int(behind) * 0x85EBCA6B) & _MASK
    return mixed ^ (mixed >> 15)


def make_position(t: Tables, inside: int, behind: int) -> int:
    """The number of a place inside a character with a frame behind it; there must be room for one more."""
    mask = len(t.position_ids) - 1
    at = position_hash(inside, behind) & mask
    while t.position_ids[at] >= 0:
        found = t.position_ids[at]
        if t.positions[found, PLACE] == inside and t.positions[found, THEN] == behind:
            return int(found)
        at = (at + 1) & mask
    position = t.counts[NUM_POSITIONS]
    t.counts[NUM_POSITIONS] = position + 1
    t.position_ids[at] = position
    t.positions[position, PLACE] = inside
    t.positions[position, THEN] = behind
    t.positions[position, POSITION_MARK] = 0
    return int(position)


def member_hash(position: int) -> int:
    mixed = (int(position) * 0x9E3779B1 + 0x7F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & _MASK
    return mixed ^ (mixed >> 13)


def is_even(t: Tables, begin: int, length: int, number: int) -> bool:
    """Whether the characters of a slice are one position, and all others begin with other bytes."""
    num_same = 0
    for member in range(begin, begin + length):
        overlap = t.places[t.positions[t.pool[member], PLACE], OVERLAP + number]
        if overlap == SOME:
            return False
        num_same += overlap == SAME
    return num_same == 1 and t.slices[number, SAMPLE] >= 0


def is_free(t: Tables, state: int, number: int) -> bool:
    """Whether no character of a slice may follow."""
    begin = t.states[state, BEGIN]
    for member in range(begin, begin + t.states[state, LENGTH]):
        if t.places[t.positions[t.pool[member], PLACE], OVERLAP + number] != 0:
            return False
    return True


def make_state(t: Tables, length: int, is_accepting: int, hashed: int, best: int, reach: int) -> int:
    """The state of the positions that lie behind the end of the pool, all marked with this epoch and no others."""
    mask = len(t.state_ids) - 1
    at = hashed & mask
    epoch = t.counts[EPOCH]
    while t.state_ids[at] >= 0:
        found = t.state_ids[at]
        if t.states[found, LENGTH] == length and t.states[found, ACCEPTING] == is_accepting:
            is_same = True
            for member in range(t.states[found, BEGIN], t.states[found, BEGIN] + length):
                if t.positions[t.pool[member], POSITION_MARK] != epoch:
                    is_same = False
                    break
            if is_same:
                return int(found)
        at = (at + 1) & mask
    state = t.counts[NUM_STATES]
    weight = 1 + length // POSITIONS_PER_STATE
    if t.counts[NUM_COUNTED] + weight > t.counts[MAX_COUNTED]:
        return OVER_LIMIT
    if state == len(t.states):
        return FULL_STATES
    begin = t.counts[POOL_LEN]
    forced = -1
    if is_accepting == 0:
        forced = t.places[t.positions[t.pool[begin], PLACE], SINGLE]
        for member in range(begin + 1, begin + length):
            if t.places[t.positions[t.pool[member], PLACE], SINGLE] != forced:
                forced = -1
                break
    t.counts[NUM_COUNTED] += weight
    t.counts[NUM_STATES] = state + 1
    t.counts[POOL_LEN] = begin + length
    t.state_ids[at] = state
    t.states[state, BEGIN] = begin
    t.states[state, LENGTH] = length
    t.states[state, ACCEPTING] = is_accepting
    t.states[state, FORCED] = forced
    t.states[state, STATE_SLICE] = best
    t.states[state, STATE_REACH] = reach
    t.states[state, EVEN] = 1 if best >= 0 and is_even(t, begin, length, best) else 0
    t.states[state, HASH] = hashed & 0x7FFFFFFF
    num_classes = t.table.shape[1]  # UNKNOWN where some position leads on and DEAD elsewhere, so that most of it is never worked out
    for byte_class in range(num_classes):
        t.table[state, byte_class] = DEAD
    num_open = 0
    for member in range(begin, begin + length):
        place = t.positions[t.pool[member], PLACE]
        num_open += 1 - t.places[place, CONTINUES]
        if t.places[place, PLACE_MARK] != epoch:
            t.places[place, PLACE_MARK] = epoch
            for byte_class in range(num_classes):
                if t.arcs[place, byte_class] != DEAD:
                    t.table[state, byte_class] = UNKNOWN
    t.states[state, INSIDE_CHAR] = length > 0 and num_open == 0 and is_accepting == 0
    return int(state)


def covers(t: Tables, large: int, small: int) -> bool:
    """Whether one frame matches at least the texts of another, by a look at their counts: x{0,9}y* has all of x{2,5}y*."""
    while large != small:
        if large == 0 or small == 0 or t.frames[large, NODE] != t.frames[small, NODE]:
            return False
        if t.frames[large, LOW] > t.frames[small, LOW] or (t.frames[large, LOW] < 0) != (t.frames[small, LOW] < 0):
            return False
        high = t.frames[large, HIGH]
        if high >= 0 and (t.frames[small, HIGH] < 0 or t.frames[small, HIGH] > high):
            return False
        large = t.frames[large, BEHIND]
        small = t.frames[small, BEHIND]
    return True


def prune(t: Tables, top: int, num: int) -> int:
    """Take out of the positions at the end of the pool those that another one covers; returns how many are left.

    Ambiguous counts, as in (a{0,9}b?){0,9}, would otherwise give states of thousands of positions. Not all are found where they are many.
    """
    epoch = t.counts[EPOCH]
    num_pairs = _MAX_COMPARED * num
    for at in range(top, top + num):
        position = t.pool[at]
        frame = t.positions[position, THEN]
        if t.frames[frame, COUNTED] == 0:
            continue
        place = t.positions[position, PLACE]
        if t.places[place, LIST_MARK] != epoch:
            t.places[place, LIST_MARK] = epoch
            t.places[place, LIST] = -1
        before = -1
        other = t.places[place, LIST]
        while other >= 0 and num_pairs > 0:
            num_pairs -= 1
            following = t.positions[other, NEXT]
            if covers(t, t.positions[other, THEN], frame):
                t.positions[position, POSITION_MARK] = 0
                break
            if covers(t, frame, t.positions[other, THEN]):
                t.positions[other, POSITION_MARK] = 0
                if before < 0:
                    t.places[place, LIST] = following
                else:
                    t.positions[before, NEXT] = following
            else:
                before = other
            other = following
        if t.positions[position, POSITION_MARK] == epoch:
            t.positions[position, NEXT] = t.places[place, LIST]
            t.places[place, LIST] = position
    num_left = 0
    for at in range(top, top + num):
        if t.positions[t.pool[at], POSITION_MARK] == epoch:
            t.pool[top + num_left] = t.pool[at]
            num_left += 1
    t.counts[TICKS] -= num + _MAX_COMPARED * num - num_pairs
    return num_left


def first_state(t: Tables) -> int:
    """Make state 0: the beginning of the text."""
    if t.counts[NUM_FRAMES] + 2 > len(t.frames):
        return FULL_FRAMES
    frame = push_node(t, t.counts[ROOT_NODE], 0)
    if t.frames[frame, CLOSURE_LEN] < 0:
        code = make_closure(t, frame)
        if code < 0:
            return code
    t.counts[EPOCH] += 1
    top = t.counts[POOL_LEN]
    length = t.frames[frame, CLOSURE_LEN]
    if top + length > len(t.pool):
        return FULL_POOL
    hashed = 0
    for member in range(length):
        position = t.pool[t.frames[frame, CLOSURE] + member]
        t.positions[position, POSITION_MARK] = t.counts[EPOCH]
        t.pool[top + member] = position
        hashed = (hashed + member_hash(position)) & 0x7FFFFFFF
    return make_state(t, length, t.frames[frame, IS_END], hashed, t.frames[frame, FRAME_SLICE], t.frames[frame, FRAME_REACH])


def resolve(t: Tables, state: int, byte_class: int) -> int:
    """Work out one entry of the table and return it."""
    begin = t.states[state, BEGIN]
    end = begin + t.states[state, LENGTH]
    t.counts[TICKS] -= end - begin
    for at in range(begin, end):  # first the closures: they use the same end of the pool
        position = t.pool[at]
        if t.arcs[t.positions[position, PLACE], byte_class] == END_OF_CHAR:
            frame = t.positions[position, THEN]
            if t.frames[frame, CLOSURE_LEN] < 0:
                if t.counts[TICKS] <= 0:
                    return PAUSE
                if t.frames[frame, LOW] < 0 and t.nodes[t.frames[frame, NODE], BEGINS] >= 0:
                    code = make_literal_closure(t, frame)
                else:
                    code = make_closure(t, frame)
                if code < 0:
                    return code
    if t.counts[NUM_POSITIONS] + end - begin > len(t.positions):
        return FULL_POSITIONS
    t.counts[EPOCH] += 1
    epoch = t.counts[EPOCH]
    top = t.counts[POOL_LEN]
    num = 0
    is_accepting = 0
    is_found = False
    best = -1
    reach = 0
    best_score = 0
    for at in range(begin, end):
        position = t.pool[at]
        inside = t.arcs[t.positions[position, PLACE], byte_class]
        if inside == DEAD:
            continue
        is_found = True
        if inside >= 0:
            if top + num == len(t.pool):
                return FULL_POOL
            target = make_position(t, inside, t.positions[position, THEN])
            if t.positions[target, POSITION_MARK] != epoch:
                t.positions[target, POSITION_MARK] = epoch
                t.pool[top + num] = target
                num += 1
            continue
        frame = t.positions[position, THEN]
        is_accepting |= t.frames[frame, IS_END]
        if t.frames[frame, FRAME_SLICE] >= 0:
            score = t.slices[t.frames[frame, FRAME_SLICE], COVERAGE] * min(t.frames[frame, FRAME_REACH], _GOOD_REACH)
            if score > best_score:
                best_score = score
                best = t.frames[frame, FRAME_SLICE]
                reach = t.frames[frame, FRAME_REACH]
        if top + num + t.frames[frame, CLOSURE_LEN] > len(t.pool):
            return FULL_POOL
        t.counts[TICKS] -= t.frames[frame, CLOSURE_LEN]
        for member in range(t.frames[frame, CLOSURE], t.frames[frame, CLOSURE] + t.frames[frame, CLOSURE_LEN]):
            target = t.pool[member]
            if t.positions[target, POSITION_MARK] != epoch:
                t.positions[target, POSITION_MARK] = epoch
                t.pool[top + num] = target
                num += 1
    found = DEAD
    if is_found:
        if num >= _PRUNE_FROM:
            num = prune(t, top, num)
        hashed = 0
        for at in range(top, top + num):
            hashed += member_hash(t.pool[at])
        found = make_state(t, num, is_accepting, hashed & 0x7FFFFFFF, best, reach)
        if found < 0:
            return found
    t.table[state, byte_class] = found
    return found


def rehash(t: Tables) -> None:
    """Fill the hash tables, which come in empty (-1)."""
    mask = len(t.frame_ids) - 1
    for frame in range(1, t.counts[NUM_FRAMES]):
        at = frame_hash(t.frames[frame, NODE], t.frames[frame, LOW], t.frames[frame, HIGH], t.frames[frame, BEHIND]) & mask
        while t.frame_ids[at] >= 0:
            at = (at + 1) & mask
        t.frame_ids[at] = frame
    mask = len(t.position_ids) - 1
    for position in range(t.counts[NUM_POSITIONS]):
        at = position_hash(t.positions[position, PLACE], t.positions[position, THEN]) & mask
        while t.position_ids[at] >= 0:
            at = (at + 1) & mask
        t.position_ids[at] = position
    mask = len(t.state_ids) - 1
    for state in range(t.counts[NUM_STATES]):
        at = t.states[state, HASH] & mask
        while t.state_ids[at] >= 0:
            at = (at + 1) & mask
        t.state_ids[at] = state


def run(t: Tables, state: int, byte_class: int) -> int:
    """Resolve an entry of the table, or with ALL its whole row; make the FIRST state; or fill the hash tables anew with REHASH.

    Returns the state behind the entry or 0, or what is short.
    """
    if state == FIRST:
        return first_state(t)
    if state == REHASH:
        rehash(t)
        return 0
    if byte_class != ALL:
        return resolve(t, state, byte_class)
    for each in range(t.table.shape[1]):
        if t.table[state, each] == UNKNOWN:
            code = resolve(t, state, each)
            if code < DEAD:
                return code
    return 0


# ---- the vocabulary's tree


def follow_run(t: Tables, state: int, number: int, run: Ints) -> int:
    """Note in `run[i]` the state behind i characters of a slice, as far as they all lead to one. Returns how many may follow, -1 when
    that depends on the characters, or what is short.
    """
    run[0] = state
    for length in range(len(run) - 1):
        at = run[length]
        if t.states[at, STATE_SLICE] != number or t.states[at, EVEN] == 0:
            return length if is_free(t, at, number) else -1
        target = t.table[at, t.slices[number, SAMPLE]]
        if target == UNKNOWN:
            target = resolve(t, at, t.slices[number, SAMPLE])
            if target < DEAD:
                return target
        run[length + 1] = target
    return len(run) - 1


def walk_tree(
    t: Tables,
    byte_class: Bytes,
    records: IntRows,
    token_ids: Ints,
    slices: Slices,
    state: int,
    run: Ints,
    path: Ints,
    row: Row,
    cursor: Longs,
) -> int:
    """Set `row[id]` for the tokens that are allowed in a state. Returns 0, or what is short.

    Where the state goes on with characters of a slice that all lead to one state, the tokens of such characters are looked up, and only
    what leaves the slice is walked. Elsewhere everything is, but a subtree whose texts consist of characters that may all follow, and are
    not too many, is taken at once. `cursor` says where to go on: which of the subtrees, and at which node; 0 and -1 at first.
    """
    number = -1
    reach = 0
    if t.states[state, EVEN] != 0:
        number = t.states[state, STATE_SLICE]
        reach = follow_run(t, state, number, run)
        if reach < DEAD:
            return reach
        if reach < 0:
            number = -1
    num_items = 1
    first_item = 0
    if number >= 0:
        first_item = slices.exit_starts[number]
        num_items = slices.exit_starts[number + 1] - first_item
        most = min(reach, NOT_INSIDE - 1)
        for token_id in range(slices.char_counts.shape[1]):
            row[token_id] |= slices.char_counts[number, token_id] <= most
    for item in range(cursor[0], num_items):
        end = len(records) - 1
        at = 0
        before = state
        if number >= 0:
            at = slices.exits[first_item + item, 0]
            if slices.exits[first_item + item, 1] > reach:
                continue
            before = run[slices.exits[first_item + item, 1]]
            end = records[at, SUBTREE_END]
        if cursor[1] >= 0:
            at = cursor[1]
            cursor[1] = -1
        else:
            path[records[at, BYTE_DEPTH] >> 8] = before
        while at < end:
            packed = records[at, BYTE_DEPTH]
            depth = packed >> 8
            source = path[depth]
            target = t.table[source, byte_class[packed & 255]]
            if target == UNKNOWN:
                target = PAUSE
                if t.counts[TICKS] > 0:
                    target = resolve(t, source, byte_class[packed & 255])
                if target < DEAD:
                    cursor[0] = item
                    cursor[1] = at
                    return target
            if target == DEAD:
                at = records[at, SUBTREE_END]
                continue
            first = records[at, FIRST_SLOT]
            inner = t.states[target, STATE_SLICE]
            if inner >= 0 and (slices.inside[at] >> inner) & 1 and records[at, HEIGHT] <= t.states[target, STATE_REACH]:
                at = records[at, SUBTREE_END]
            else:
                path[depth + 1] = target
                at += 1
            for slot in range(first, records[at, FIRST_SLOT]):
                row[token_ids[slot]] = True
    return 0


def mark_slice(records: IntRows, token_ids: Ints, arcs: IntRows, bit: int, path: IntRows, num_failed: Ints, slices: Slices) -> int:
    """Fill in what a vocabulary has of one slice; its exits go to the beginning of `slices.exits`. Returns how many these are.

    `arcs` [places inside a character, 256] is the automaton of the class, place 0 its beginning. `char_counts` comes in full of NOT_INSIDE.
    """
    num_nodes = len(records) - 1
    num_exits = 0
    left_until = 0  # nodes before this one have left the slice
    path[0, 0] = 0
    path[0, 1] = 0
    num_failed[0] = 0
    for at in range(num_nodes):
        packed = records[at, BYTE_DEPTH]
        depth = packed >> 8
        place = path[depth, 0]
        num_chars = path[depth, 1]
        target = arcs[place, packed & 255]
        num_failed[at + 1] = num_failed[at] + (target == DEAD)
        if target < 0:
            slices.inside[at] |= 1 << bit
        if at >= left_until:
            if target == DEAD:
                left_until = records[at, SUBTREE_END]
                if place == 0:
                    slices.exits[num_exits, 0] = at
                    slices.exits[num_exits, 1] = num_chars
                    num_exits += 1
            else:
                num_chars += place == 0
                for slot in range(records[at, FIRST_SLOT], records[at + 1, FIRST_SLOT]):
                    slices.char_counts[bit, token_ids[slot]] = min(num_chars, NOT_INSIDE - 1)
        path[depth + 1, 0] = max(target, 0)  # behind a failure the class begins anew
        path[depth + 1, 1] = num_chars
    for at in range(num_nodes):
        if num_failed[records[at, SUBTREE_END]] != num_failed[at + 1]:
            slices.inside[at] &= 255 ^ (1 << bit)
    return num_exits
