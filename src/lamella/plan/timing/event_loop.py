"""The list scheduler of `schedule` once more, as a loop over words of memory that runs as machine code.

It does exactly what `Schedule` and `Queues` do, without looking for periods: every instance is stepped through. The
functions are of the subset of `base.compiled`: `m` is the memory, records lie in it and are named by their address; a
field is `m[record + FIELD]`, 0 is no record. `stepping` lays a program out and reads the results.

A ready or running task is an entry; heaps are pairing heaps of nodes ordered by (time, position in the program).
"""

from __future__ import annotations

from inspect import isfunction

from lamella.base.compiled import Words
from lamella.plan.timing.pairing_heap import (
    NODE_CHILD,
    NODE_ENTRY,
    NODE_NEXT,
    NODE_POSITION,
    NODE_TIME,
    NODE_WIDTH,
    merge,
    without_first,
)

# --- the machine: single words ---
BEGUN, NOW, CAUSE, EVENTS, WAITING, STARTED, PAUSE, LIMITED, TOKENS, FORCED = range(1, 11)
ARENA, COMPLETE, COMPLETE_BASE, ENTERED, ENTERED_BASE, LANES, LANE_COUNT = range(11, 18)
CANDIDATES, CANDIDATE_COUNT, TABLE, TABLE_SIZE, TABLE_USED, ROOT_FRAME, STACK = range(18, 25)
FREE_ENTRIES, FREE_NODES, FREE_LISTENERS, INSTANCES, BLOCKERS, ARENA_END, GLOBALS = range(25, 32)
# --- a step ---
STEP_KIND, STEP_INDEX, STEP_CYCLES, STEP_TASK, STEP_LANE, STEP_PINS, STEP_CODE, STEP_COUNT = range(8)
STEP_WAITERS, STEP_LIVE, STEP_FEEDS, STEP_TOKENS, STEP_BODY, STEP_TRIPS, STEP_WINDOW = range(8, 15)
STEP_FIRST, STEP_OFFSET, STEP_BEGIN, STEP_END, STEP_WIDTH = range(15, 20)
TASK, LOOP, GATE = range(3)
# --- a statement list ---
(
    LIST_STEPS,
    LIST_COUNT,
    LIST_NEEDS,
    LIST_STARTS,
    LIST_LISTENS,
    LIST_SIZE,
    LIST_FREE,
    LIST_WIDTH,
    LIST_WORDS,
) = range(9)
# --- a frame: one run of a list, and for each of its steps a slot ---
FRAME_LIST, FRAME_PARENT, FRAME_TRIP, FRAME_POSITION, FRAME_LEFT, FRAME_BASE, FRAME_HELD = range(7)
FRAME_CAUSE, FRAME_ACTIVE, FRAME_NEXT, FRAME_FLOOR, FRAME_OPENED, FRAME_HEAD, FRAME_TAIL = range(7, 14)
FRAME_SIBLING, FRAME_CLOSED, FRAME_SLOTS = range(14, 17)
SLOT_STATE, SLOT_LISTENERS, SLOT_REMAINING, SLOT_QUEUED, SLOT_SUM, SLOT_WIDTH = range(6)
DONE = -2
# --- a lane, units, a link ---
LANE_UNITS, LANE_PIN, LANE_TAKER, LANE_LINKS, LANE_ROOT, LANE_SUMS = range(6)
LANE_REASON, LANE_SINCE, LANE_PROMOTED, LANE_FLAG, LANE_WIDTH = range(8, 13)
UNITS_COUNT, UNITS_LOWEST, UNITS_BUSY, UNITS_LANES, UNITS_FLAGS = range(5)
LINK_USED, LINK_MOST, LINK_WIDTH = range(3)
# --- a ready or running task, a node of a heap, a step that waits for a task of a list outside ---
ENTRY_FRAME, ENTRY_STEP, ENTRY_READY, ENTRY_CAUSE, ENTRY_LANE, ENTRY_BEFORE = range(6)
ENTRY_NODE, ENTRY_INSTANCE, ENTRY_WIDTH = range(8, 11)
LISTENER_FRAME, LISTENER_INDEX, LISTENER_NEXT, LISTENER_WIDTH = range(4)
# --- what is counted of a task on an instance: starts, and cycles by reason and by task waited for ---
COUNTED, DEPENDENCY, WINDOW, UNIT, TOKEN, BANDWIDTH, KINDS = range(7)
# --- the code of a unit index ---
HALT, NUMBER, VARIABLE, ADD, MULTIPLY, DIVIDE, MODULO = range(7)
# --- why `run` returned ---
FINISHED, FULL, CROWDED, PAUSED = range(4)


# --- records, and what is counted ----------------------------------------------------------------------------------


def take(m: Words, free: int, width: int) -> int:
    """A record: one that was given back, or a new one."""
    found = m[free]
    if found != 0:
        m[free] = m[found]
        return found
    found = m[ARENA]
    m[ARENA] = found + width
    return found


def give(m: Words, free: int, record: int) -> int:
    """Give a record back."""
    m[record] = m[free]
    m[free] = record
    return 0


def count(m: Words, entry: int, kind: int, blocker: int, amount: int) -> int:
    """Add to what is counted of a task on an instance, in a hash table."""
    task = m[m[entry + ENTRY_STEP] + STEP_TASK]
    key = ((task * m[INSTANCES] + m[entry + ENTRY_INSTANCE]) * KINDS + kind) * m[BLOCKERS] + blocker + 2
    size = m[TABLE_SIZE]
    place = key % size
    while m[m[TABLE] + 2 * place] != 0 and m[m[TABLE] + 2 * place] != key:
        place += 1
        if place == size:
            place = 0
    if m[m[TABLE] + 2 * place] == 0:
        m[m[TABLE] + 2 * place] = key
        m[TABLE_USED] += 1
    m[m[TABLE] + 2 * place + 1] += amount
    return 0


# --- frames, steps and slots --------------------------------------------------------------------------------


def outward(m: Words, frame: int, lists: int) -> int:
    """The frame so many lists further out."""
    left = lists
    found = frame
    while left != 0 and m[found + FRAME_PARENT] != 0:
        found = m[found + FRAME_PARENT]
        left -= 1
    return found


def step_of(m: Words, frame: int, index: int) -> int:
    """A step of the list of a frame."""
    return m[m[frame + FRAME_LIST] + LIST_STEPS] + STEP_WIDTH * index


def push_complete(m: Words, frame: int, index: int) -> int:
    """Note that a step is complete."""
    m[m[COMPLETE]] = frame
    m[m[COMPLETE] + 1] = index
    m[COMPLETE] += 2
    return 0


def push_entered(m: Words, frame: int) -> int:
    """Note that iterations of the active loop of a frame may open."""
    m[m[ENTERED]] = frame
    m[ENTERED] += 1
    return 0


# --- units and lanes ----------------------------------------------------------------------------------------


def sync(m: Words, lane: int) -> int:
    """Bring the sums of a lane up to now."""
    m[lane + LANE_SUMS + m[lane + LANE_REASON]] += m[NOW] - m[lane + LANE_SINCE]
    m[lane + LANE_SINCE] = m[NOW]
    return 0


def flag(m: Words, lane: int) -> int:
    """Make a lane a candidate: it may be able to move."""
    if m[lane + LANE_FLAG] == 0:
        m[lane + LANE_FLAG] = 1
        m[m[CANDIDATES] + m[CANDIDATE_COUNT]] = lane
        m[CANDIDATE_COUNT] += 1
    return 0


def line_up(m: Words, lane: int, entry: int) -> int:
    """Put an entry into a lane."""
    node = take(m, FREE_NODES, NODE_WIDTH)
    m[node + NODE_TIME] = m[entry + ENTRY_READY]
    frame = m[entry + ENTRY_FRAME]
    m[node + NODE_POSITION] = m[frame + FRAME_POSITION] + m[m[entry + ENTRY_STEP] + STEP_OFFSET]
    m[node + NODE_CHILD] = 0
    m[node + NODE_NEXT] = 0
    m[node + NODE_ENTRY] = entry
    m[entry + ENTRY_NODE] = node
    m[entry + ENTRY_LANE] = lane
    m[lane + LANE_ROOT] = merge(m, m[lane + LANE_ROOT], node)
    flag(m, lane)
    return 0


def head_of(m: Words, lane: int) -> int:
    """The first node of a lane; those of entries that moved to another lane are dropped."""
    node = m[lane + LANE_ROOT]
    while node != 0 and m[node + NODE_ENTRY] == 0:
        m[lane + LANE_ROOT] = without_first(m, node)
        give(m, FREE_NODES, node)
        node = m[lane + LANE_ROOT]
    return node


def pick(m: Words, lane: int) -> int:
    """The instance that the first of a lane gets: the pinned one, else the free one of least index, or -1."""
    units = m[lane + LANE_UNITS]
    pin = m[lane + LANE_PIN]
    if pin >= 0:
        if m[units + UNITS_FLAGS + pin] != 0:
            return -1
        return pin
    if m[units + UNITS_BUSY] >= m[units + UNITS_COUNT]:
        return -1
    while m[units + UNITS_FLAGS + m[units + UNITS_LOWEST]] != 0:
        m[units + UNITS_LOWEST] += 1
    return m[units + UNITS_LOWEST]


def starved(m: Words, lane: int) -> int:
    """Whether a lane lacks a token."""
    if m[TOKENS] >= 0 and m[lane + LANE_TAKER] != 0 and m[m[lane + LANE_TAKER]] >= m[TOKENS]:
        return 1
    return 0


def admit(m: Words, lane: int) -> int:
    """The instance that the first of a lane may start on, or -1."""
    instance = pick(m, lane)
    if instance < 0 or m[LIMITED] == 0:
        return instance
    if starved(m, lane):
        return -1
    links = m[lane + LANE_LINKS]
    i = 0
    while i < m[links]:
        link = m[links + 1 + 2 * i]
        if m[link + LINK_USED] + m[links + 2 + 2 * i] > m[link + LINK_MOST]:
            return -1
        i += 1
    return instance


def unit_index(m: Words, frame: int, step: int) -> int:
    """The unit index of a task here, by the code of its expression; -1 where it divides by zero."""
    code = m[step + STEP_CODE]
    top = m[STACK]
    while m[code] != HALT:
        what = m[code]
        if what == NUMBER:
            m[top] = m[code + 1]
            top += 1
        elif what == VARIABLE:
            place = outward(m, frame, m[code + 1])
            loop = m[m[place + FRAME_PARENT] + FRAME_ACTIVE]
            m[top] = m[loop + STEP_FIRST] + m[place + FRAME_TRIP]
            top += 1
        else:
            top -= 1
            left = m[top - 1]
            right = m[top]
            if what == ADD:
                m[top - 1] = left + right
            elif what == MULTIPLY:
                m[top - 1] = left * right
            else:
                if right == 0:
                    return -1
                quotient = left // right
                if quotient < 0 and quotient * right != left:
                    quotient += 1
                if what == DIVIDE:
                    m[top - 1] = quotient
                else:
                    m[top - 1] = left - quotient * right
        code += 2
    return m[m[STACK]] % m[step + STEP_COUNT]


def enqueue(m: Words, frame: int, step: int) -> int:
    """Put a task that has just become ready into its lane."""
    lane = m[step + STEP_LANE]
    if lane == 0:
        lane = m[m[step + STEP_PINS] + unit_index(m, frame, step) + 1]
    sync(m, lane)
    entry = take(m, FREE_ENTRIES, ENTRY_WIDTH)
    m[entry + ENTRY_FRAME] = frame
    m[entry + ENTRY_STEP] = step
    m[entry + ENTRY_READY] = m[NOW]
    m[entry + ENTRY_CAUSE] = m[CAUSE]
    m[entry + ENTRY_BEFORE] = m[lane + LANE_SUMS]
    m[entry + ENTRY_BEFORE + 1] = m[lane + LANE_SUMS + 1]
    m[entry + ENTRY_BEFORE + 2] = m[lane + LANE_SUMS + 2]
    line_up(m, lane, entry)
    m[WAITING] += 1
    if m[lane + LANE_TAKER] == 0:
        return 0
    tokens = m[step + STEP_TOKENS]
    i = 0
    while i < m[tokens]:
        place = outward(m, frame, m[tokens + 1 + 2 * i])
        slot = place + FRAME_SLOTS + SLOT_WIDTH * m[tokens + 2 + 2 * i]
        if m[slot + SLOT_REMAINING] != 0:
            m[slot + SLOT_QUEUED] += 1
            m[slot + SLOT_SUM] += entry
            promote(m, place, m[tokens + 2 + 2 * i])
        i += 1
    return 0


# --- tokens -------------------------------------------------------------------------------------------------


def promote(m: Words, frame: int, index: int) -> int:
    """The last waiter of a token needs no free token to start, because it frees one: it changes lanes.

    Of a single entry that is queued, the sum of the entries is its address.
    """
    slot = frame + FRAME_SLOTS + SLOT_WIDTH * index
    if m[slot + SLOT_REMAINING] != 1 or m[slot + SLOT_QUEUED] == 0:
        return 0
    entry = m[slot + SLOT_SUM]
    old = m[entry + ENTRY_LANE]
    if m[old + LANE_TAKER] != m[step_of(m, frame, index) + STEP_LIVE]:
        return 0
    lane = m[old + LANE_PROMOTED]
    sync(m, old)
    sync(m, lane)
    i = 0
    while i < 3:
        waited = m[old + LANE_SUMS + i] - m[entry + ENTRY_BEFORE + i]
        m[entry + ENTRY_BEFORE + i] = m[lane + LANE_SUMS + i] - waited
        i += 1
    m[m[entry + ENTRY_NODE] + NODE_ENTRY] = 0
    line_up(m, lane, entry)
    return 0


def release_tokens(m: Words, frame: int, step: int, entry: int) -> int:
    """A waiter starts: tokens that it was the last to wait for die."""
    if m[TOKENS] < 0:
        return 0
    tokens = m[step + STEP_TOKENS]
    i = 0
    while i < m[tokens]:
        place = outward(m, frame, m[tokens + 1 + 2 * i])
        index = m[tokens + 2 + 2 * i]
        slot = place + FRAME_SLOTS + SLOT_WIDTH * index
        i += 1
        if m[slot + SLOT_REMAINING] != 0:
            m[slot + SLOT_REMAINING] -= 1
            if entry != 0 and m[step + STEP_WAITERS] != 0:
                m[slot + SLOT_QUEUED] -= 1
                m[slot + SLOT_SUM] -= entry
            if m[slot + SLOT_REMAINING] == 0:
                m[m[step_of(m, place, index) + STEP_LIVE]] -= 1
                flag_takers(m)
            else:
                promote(m, place, index)
    return 0


def flag_takers(m: Words) -> int:
    """A token is free again: lanes whose tasks make one may be able to move."""
    i = 0
    while i < m[LANE_COUNT]:
        lane = m[m[LANES] + i]
        if m[lane + LANE_TAKER] != 0 and m[lane + LANE_ROOT] != 0:
            flag(m, lane)
        i += 1
    return 0


# --- starting -----------------------------------------------------------------------------------------------


def run_task(m: Words, entry: int, node: int) -> int:
    """Let a task run from now on."""
    step = m[entry + ENTRY_STEP]
    end = m[NOW] + m[step + STEP_CYCLES]
    if m[step + STEP_BEGIN] < 0:
        m[step + STEP_BEGIN] = m[NOW]
    if m[step + STEP_END] < end:
        m[step + STEP_END] = end
    m[node + NODE_TIME] = end
    m[node + NODE_CHILD] = 0
    m[node + NODE_NEXT] = 0
    m[EVENTS] = merge(m, m[EVENTS], node)
    m[STARTED] += 1
    return 0


def start(m: Words, entry: int, instance: int) -> int:
    """Take a task out of its lane and give it its unit, token and bandwidth."""
    lane = m[entry + ENTRY_LANE]
    step = m[entry + ENTRY_STEP]
    frame = m[entry + ENTRY_FRAME]
    units = m[lane + LANE_UNITS]
    node = m[entry + ENTRY_NODE]
    sync(m, lane)
    m[lane + LANE_ROOT] = without_first(m, node)
    m[WAITING] -= 1
    m[entry + ENTRY_INSTANCE] = instance
    m[units + UNITS_FLAGS + instance] = 1
    m[units + UNITS_BUSY] += 1
    links = m[lane + LANE_LINKS]
    i = 0
    while i < m[links]:
        m[m[links + 1 + 2 * i] + LINK_USED] += m[links + 2 + 2 * i]
        i += 1
    if m[TOKENS] >= 0:
        release_tokens(m, frame, step, entry)
        if m[step + STEP_WAITERS] != 0:
            slot = frame + FRAME_SLOTS + SLOT_WIDTH * m[step + STEP_INDEX]
            m[slot + SLOT_REMAINING] = m[step + STEP_WAITERS]
            m[slot + SLOT_QUEUED] = 0
            m[slot + SLOT_SUM] = 0
            m[m[step + STEP_LIVE]] += 1
    count_waits(m, entry, m[units + UNITS_FLAGS + m[units + UNITS_COUNT] + instance])
    run_task(m, entry, node)
    return 0


def count_waits(m: Words, entry: int, holder: int) -> int:
    """Count a start and the stretches of waiting before it."""
    frame = m[entry + ENTRY_FRAME]
    sums = m[entry + ENTRY_LANE] + LANE_SUMS
    before = entry + ENTRY_BEFORE
    count(m, entry, COUNTED, -1, 1)
    held = m[entry + ENTRY_READY] - m[frame + FRAME_BASE]
    if held != 0:
        count(m, entry, DEPENDENCY, m[entry + ENTRY_CAUSE], held)
    elif m[frame + FRAME_HELD] != 0:
        count(m, entry, WINDOW, m[frame + FRAME_CAUSE], m[frame + FRAME_HELD])
    if m[sums] != m[before]:
        count(m, entry, UNIT, holder, m[sums] - m[before])
    if m[sums + 1] != m[before + 1]:
        count(m, entry, TOKEN, -1, m[sums + 1] - m[before + 1])
    if m[sums + 2] != m[before + 2]:
        count(m, entry, BANDWIDTH, -1, m[sums + 2] - m[before + 2])
    return 0


def launch_candidates(m: Words) -> int:
    """Start the first of the tasks that may start, again and again; a lane that cannot move is left aside."""
    while m[TABLE_USED] * 2 <= m[TABLE_SIZE]:
        best = 0
        instance = 0
        i = 0
        while i < m[CANDIDATE_COUNT]:
            lane = m[m[CANDIDATES] + i]
            head = head_of(m, lane)
            found = -1
            first = 0
            if head != 0:
                first = 1
                if best != 0 and (
                    m[best + NODE_TIME] < m[head + NODE_TIME]
                    or (
                        m[best + NODE_TIME] == m[head + NODE_TIME]
                        and m[best + NODE_POSITION] < m[head + NODE_POSITION]
                    )
                ):
                    first = 0
                    found = 0
            if first:
                found = admit(m, lane)
                if found >= 0:
                    best = head
                    instance = found
            if found < 0:
                m[lane + LANE_FLAG] = 0
                m[CANDIDATE_COUNT] -= 1
                m[m[CANDIDATES] + i] = m[m[CANDIDATES] + m[CANDIDATE_COUNT]]
            else:
                i += 1
        if best == 0:
            return FINISHED
        start(m, m[best + NODE_ENTRY], instance)
    return FULL


def flag_waiting(m: Words) -> int:
    """Every lane in which a task waits becomes a candidate, where limits make them depend on each other."""
    i = 0
    while i < m[LANE_COUNT] and m[LIMITED]:
        lane = m[m[LANES] + i]
        if m[lane + LANE_ROOT] != 0:
            flag(m, lane)
        i += 1
    return 0


def start_forced(m: Words) -> int:
    """Start the first waiting task although no token is left, because nothing runs."""
    best = 0
    i = 0
    while i < m[LANE_COUNT]:
        head = head_of(m, m[m[LANES] + i])
        if head != 0 and (
            best == 0
            or m[head + NODE_TIME] < m[best + NODE_TIME]
            or (
                m[head + NODE_TIME] == m[best + NODE_TIME]
                and m[head + NODE_POSITION] < m[best + NODE_POSITION]
            )
        ):
            best = head
        i += 1
    if best != 0:
        entry = m[best + NODE_ENTRY]
        m[FORCED] += 1
        start(m, entry, pick(m, m[entry + ENTRY_LANE]))
    return best


def record_reasons(m: Words) -> int:
    """Note why each lane does not move."""
    i = 0
    while i < m[LANE_COUNT] and m[LIMITED]:
        lane = m[m[LANES] + i]
        reason = 0
        if m[lane + LANE_ROOT] != 0 and pick(m, lane) >= 0:
            reason = 2
            if starved(m, lane):
                reason = 1
        if reason != m[lane + LANE_REASON]:
            sync(m, lane)
            m[lane + LANE_REASON] = reason
        i += 1
    return 0


def launch(m: Words) -> int:
    """Start every task that may start now; FULL when what was counted must be taken away first."""
    if m[WAITING] == 0:
        return FINISHED
    flag_waiting(m)
    if launch_candidates(m) == FULL:
        return FULL
    while m[WAITING] != 0 and m[EVENTS] == 0:
        if start_forced(m) == 0:
            break
        flag_waiting(m)
        if launch_candidates(m) == FULL:
            return FULL
    record_reasons(m)
    return FINISHED


# --- ending -------------------------------------------------------------------------------------------------


def finish(m: Words, entry: int) -> int:
    """Free the unit and the bandwidth of a task that has ended."""
    lane = m[entry + ENTRY_LANE]
    units = m[lane + LANE_UNITS]
    instance = m[entry + ENTRY_INSTANCE]
    m[units + UNITS_FLAGS + instance] = 0
    m[units + UNITS_BUSY] -= 1
    if instance < m[units + UNITS_LOWEST]:
        m[units + UNITS_LOWEST] = instance
    m[units + UNITS_FLAGS + m[units + UNITS_COUNT] + instance] = m[m[entry + ENTRY_STEP] + STEP_TASK]
    links = m[lane + LANE_LINKS]
    i = 0
    while i < m[links]:
        m[m[links + 1 + 2 * i] + LINK_USED] -= m[links + 2 + 2 * i]
        i += 1
    lanes = m[units + UNITS_LANES]
    i = 1
    while i <= m[lanes]:
        other = m[lanes + i]
        if m[other + LANE_PIN] < 0 or m[other + LANE_PIN] == instance:
            flag(m, other)
        i += 1
    return 0


def end_task(m: Words, node: int) -> int:
    """A task has ended: its step is complete, with all that follows at once."""
    entry = m[node + NODE_ENTRY]
    frame = m[entry + ENTRY_FRAME]
    step = m[entry + ENTRY_STEP]
    if m[LANE_COUNT] != 0:
        finish(m, entry)
    m[CAUSE] = m[step + STEP_TASK]
    give(m, FREE_NODES, node)
    give(m, FREE_ENTRIES, entry)
    push_complete(m, frame, m[step + STEP_INDEX])
    settle(m)
    return 0


def settle(m: Words) -> int:
    """Complete steps, and all that becomes complete or ready through them."""
    while m[ENTERED] != m[ENTERED_BASE] or m[COMPLETE] != m[COMPLETE_BASE]:
        if m[ENTERED] != m[ENTERED_BASE]:
            m[ENTERED] -= 1
            open_iterations(m, m[m[ENTERED]])
        else:
            m[COMPLETE] -= 2
            complete_step(m, m[m[COMPLETE]], m[m[COMPLETE] + 1])
    return 0


def complete_step(m: Words, frame: int, index: int) -> int:
    """A step is complete: what waits for it may go on."""
    slot = frame + FRAME_SLOTS + SLOT_WIDTH * index
    m[slot + SLOT_STATE] = DONE
    m[frame + FRAME_LEFT] -= 1
    feeds = m[step_of(m, frame, index) + STEP_FEEDS]
    i = 1
    while i <= m[feeds]:
        satisfy(m, frame, m[feeds + i])
        i += 1
    listener = m[slot + SLOT_LISTENERS]
    m[slot + SLOT_LISTENERS] = 0
    while listener != 0:
        after = m[listener + LISTENER_NEXT]
        satisfy(m, m[listener + LISTENER_FRAME], m[listener + LISTENER_INDEX])
        give(m, FREE_LISTENERS, listener)
        listener = after
    if m[frame + FRAME_LEFT] == 0 and m[frame + FRAME_PARENT] != 0:
        close_iteration(m, frame)
    return 0


def satisfy(m: Words, frame: int, index: int) -> int:
    """A step waits for one thing less."""
    slot = frame + FRAME_SLOTS + SLOT_WIDTH * index
    m[slot + SLOT_STATE] -= 1
    if m[slot + SLOT_STATE] == 0:
        make_ready(m, frame, step_of(m, frame, index))
    return 0


def make_ready(m: Words, frame: int, step: int) -> int:
    """A step waits for nothing more."""
    if m[step + STEP_KIND] == LOOP:
        m[frame + FRAME_ACTIVE] = step
        m[frame + FRAME_NEXT] = 0
        m[frame + FRAME_FLOOR] = 0
        m[frame + FRAME_OPENED] = m[NOW]
        m[frame + FRAME_HEAD] = 0
        push_entered(m, frame)
    elif m[step + STEP_KIND] == GATE:
        release_tokens(m, frame, step, 0)
        push_complete(m, frame, m[step + STEP_INDEX])
    elif m[LANE_COUNT] != 0:
        enqueue(m, frame, step)
    else:
        entry = take(m, FREE_ENTRIES, ENTRY_WIDTH)
        node = take(m, FREE_NODES, NODE_WIDTH)
        m[entry + ENTRY_FRAME] = frame
        m[entry + ENTRY_STEP] = step
        m[node + NODE_ENTRY] = entry
        m[node + NODE_POSITION] = m[frame + FRAME_POSITION] + m[step + STEP_OFFSET]
        run_task(m, entry, node)
    return 0


# --- iterations ---------------------------------------------------------------------------------------------


def close_iteration(m: Words, frame: int) -> int:
    """An iteration is complete: the window moves past all that are, the next may open, or the loop ends."""
    around = m[frame + FRAME_PARENT]
    step = m[around + FRAME_ACTIVE]
    m[frame + FRAME_CLOSED] = 1
    oldest = m[around + FRAME_HEAD]
    while oldest != 0 and m[oldest + FRAME_CLOSED] == 1:
        after = m[oldest + FRAME_SIBLING]
        give(m, m[oldest + FRAME_LIST] + LIST_FREE, oldest)
        m[around + FRAME_FLOOR] += 1
        oldest = after
    m[around + FRAME_HEAD] = oldest
    if m[around + FRAME_FLOOR] == m[step + STEP_TRIPS]:
        m[around + FRAME_ACTIVE] = 0
        push_complete(m, around, m[step + STEP_INDEX])
    else:
        push_entered(m, around)
    return 0


def open_iterations(m: Words, around: int) -> int:
    """Open the iterations that the window lets start."""
    step = m[around + FRAME_ACTIVE]
    while (
        m[around + FRAME_NEXT] < m[step + STEP_TRIPS]
        and m[around + FRAME_NEXT] < m[around + FRAME_FLOOR] + m[step + STEP_WINDOW]
    ):
        frame = make_frame(m, around, step)
        if m[around + FRAME_HEAD] == 0:
            m[around + FRAME_HEAD] = frame
        else:
            m[m[around + FRAME_TAIL] + FRAME_SIBLING] = frame
        m[around + FRAME_TAIL] = frame
        m[around + FRAME_OPENED] = m[NOW]
        m[around + FRAME_NEXT] += 1
        begin(m, frame)
    return 0


def make_frame(m: Words, around: int, step: int) -> int:
    """The next iteration of a loop."""
    steps = m[step + STEP_BODY]
    trip = m[around + FRAME_NEXT]
    frame = take(m, steps + LIST_FREE, m[steps + LIST_WIDTH])
    m[frame + FRAME_LIST] = steps
    m[frame + FRAME_PARENT] = around
    m[frame + FRAME_TRIP] = trip
    first = m[around + FRAME_POSITION] + m[step + STEP_OFFSET]
    m[frame + FRAME_POSITION] = first + trip * m[steps + LIST_SIZE]
    m[frame + FRAME_ACTIVE] = 0
    m[frame + FRAME_SIBLING] = 0
    m[frame + FRAME_CLOSED] = 0
    if trip == 0:
        m[frame + FRAME_BASE] = m[around + FRAME_BASE]
        m[frame + FRAME_HELD] = m[around + FRAME_HELD]
        m[frame + FRAME_CAUSE] = m[around + FRAME_CAUSE]
    else:
        m[frame + FRAME_BASE] = m[NOW]
        m[frame + FRAME_HELD] = m[NOW] - m[around + FRAME_OPENED]
        m[frame + FRAME_CAUSE] = m[CAUSE]
    clear_slots(m, frame)
    return frame


def clear_slots(m: Words, frame: int) -> int:
    """Nothing of a list has happened yet."""
    steps = m[frame + FRAME_LIST]
    m[frame + FRAME_LEFT] = m[steps + LIST_COUNT]
    i = 0
    while i < m[steps + LIST_COUNT]:
        slot = frame + FRAME_SLOTS + SLOT_WIDTH * i
        m[slot + SLOT_STATE] = m[m[steps + LIST_NEEDS] + i]
        m[slot + SLOT_LISTENERS] = 0
        m[slot + SLOT_REMAINING] = 0
        i += 1
    return 0


def begin(m: Words, frame: int) -> int:
    """Let the first steps of a list become ready."""
    steps = m[frame + FRAME_LIST]
    listens = m[steps + LIST_LISTENS]
    i = 0
    while i < m[listens]:
        index = m[listens + 1 + 3 * i]
        place = outward(m, frame, m[listens + 2 + 3 * i])
        slot = place + FRAME_SLOTS + SLOT_WIDTH * m[listens + 3 + 3 * i]
        if m[slot + SLOT_STATE] == DONE:
            m[frame + FRAME_SLOTS + SLOT_WIDTH * index + SLOT_STATE] -= 1
        else:
            listener = take(m, FREE_LISTENERS, LISTENER_WIDTH)
            m[listener + LISTENER_FRAME] = frame
            m[listener + LISTENER_INDEX] = index
            m[listener + LISTENER_NEXT] = m[slot + SLOT_LISTENERS]
            m[slot + SLOT_LISTENERS] = listener
        i += 1
    starts = m[steps + LIST_STARTS]
    i = 1
    while i <= m[starts]:
        if m[frame + FRAME_SLOTS + SLOT_WIDTH * m[starts + i] + SLOT_STATE] == 0:
            make_ready(m, frame, step_of(m, frame, m[starts + i]))
        i += 1
    return 0


def run(m: Words) -> int:
    """Simulate to the end, or until what was counted has to be taken away, memory is short, or for a while.

    Nodes of tasks that changed lanes stay until they are first: how many there are, nobody knows beforehand.
    """
    if m[BEGUN] == 0:
        m[BEGUN] = 1
        clear_slots(m, m[ROOT_FRAME])
        begin(m, m[ROOT_FRAME])
        settle(m)
    while True:
        if m[LANE_COUNT] != 0 and launch(m) == FULL:
            return FULL
        if m[EVENTS] == 0:
            return FINISHED
        if m[ARENA] > m[ARENA_END]:
            return CROWDED
        if m[STARTED] >= m[PAUSE]:
            return PAUSED
        m[NOW] = m[m[EVENTS] + NODE_TIME]
        while m[EVENTS] != 0 and m[m[EVENTS] + NODE_TIME] == m[NOW]:
            node = m[EVENTS]
            m[EVENTS] = without_first(m, node)
            end_task(m, node)


FUNCTIONS = tuple(item for item in list(globals().values()) if isfunction(item) and item is not isfunction)
"""What is compiled together, `run` last."""
