"""The loops of the thread pool as LLVM IR: how a worker waits, how work-groups are shared out, how the caller joins.

A board in memory holds, each on a cache line of its own:

- `sequence`, which grows with every task: what workers look at, and sleep on;
- `sleepers`, how many of them sleep, so that nobody is woken in vain;
- `state`, how many workers are inside the task, and a bit that says that it is closed: only the caller opens it;
- `waiting`, whether the caller sleeps until the last worker has left;
- `next`, the first work-group that nobody has taken;
- the task itself: kernel, arguments, number of work-groups, how many are taken at once; and the order to end.

A worker that comes late finds the task closed and goes back, so a core that is busy elsewhere delays nobody.

A launch list is one task without a kernel: who enters it follows the caller from launch to launch. `generation` grows
with every launch that is shared; its work-groups are cut into as many parts as there are threads, each with a line of
its own: the last generation in which the part was *claimed*, and the last in which it was *done*. All parts of a
generation are claimed by moving that word from the generation before, so that who comes late cannot claim what is over,
and the launch stays on the board until all parts are done. A thread claims the part of its own number first, so that
the same thread finds the same rows in its caches; then those that nobody has claimed, so that a core that is busy
elsewhere delays nobody here either.
"""

from __future__ import annotations

import time
from types import MappingProxyType

LINE = 64
SEQUENCE, SLEEPERS, STATE, WAITING, NEXT, TASK, SETTINGS, GENERATION, RESTING, LISTED, SCRATCH = (
    LINE * line for line in range(11)
)
SPINS, ENDING, PARTS, PART_LINES = (SETTINGS + 8 * word for word in range(4))
SYMBOLS = ("worker", "dispatch", "walk", "stop", "spin")
FUTEX = MappingProxyType({"x86_64": 202, "aarch64": 98})
"""The system call that sleeps on a word, for each processor that we know it of."""

_PAUSE = MappingProxyType(
    {
        "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
        "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    }
)

_SHARE = """
define internal void @share(ptr %board, ptr %scratch) {
entry:
  %next = getelementptr i8, ptr %board, i64 NEXT
  %task = getelementptr i8, ptr %board, i64 TASK
  %task.1 = getelementptr i8, ptr %task, i64 8
  %task.2 = getelementptr i8, ptr %task, i64 16
  %task.3 = getelementptr i8, ptr %task, i64 24
  %kernel = load ptr, ptr %task
  %args = load ptr, ptr %task.1
  %groups = load i64, ptr %task.2
  %chunk = load i64, ptr %task.3
  br label %take
take:
  %first = atomicrmw add ptr %next, i64 %chunk monotonic
  %some = icmp slt i64 %first, %groups
  br i1 %some, label %work, label %done
work:
  %end = add i64 %first, %chunk
  %whole = icmp slt i64 %end, %groups
  %last = select i1 %whole, i64 %end, i64 %groups
  call void %kernel(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch)
  br label %take
done:
  ret void
}
"""

_WORKER = """
define void @worker(ptr %board, i64 %index, i32 %start) {
entry:
  %sequence = getelementptr i8, ptr %board, i64 SEQUENCE
  %sleepers = getelementptr i8, ptr %board, i64 SLEEPERS
  %state = getelementptr i8, ptr %board, i64 STATE
  %waiting = getelementptr i8, ptr %board, i64 WAITING
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %ending = getelementptr i8, ptr %settings, i64 8
  %spins = load i64, ptr %settings
  %places = getelementptr i8, ptr %board, i64 SCRATCH
  %place = getelementptr ptr, ptr %places, i64 %index
  br label %wait
wait:
  %seen = phi i32 [ %start, %entry ], [ %now, %enter ], [ %now, %out ], [ %now, %leave ], [ %now, %wake ]
  br label %look
look:
  %count = phi i64 [ 0, %wait ], [ %more, %again ]
  %found = load atomic i32, ptr %sequence acquire, align 4
  %changed = icmp ne i32 %found, %seen
  br i1 %changed, label %woken, label %again
again:
  PAUSE
  %more = add i64 %count, 1
  %tired = icmp sge i64 %more, %spins
  br i1 %tired, label %sleep, label %look
sleep:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %sequence, i64 128, i32 %seen, ptr null)
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %risen = load atomic i32, ptr %sequence acquire, align 4
  %same = icmp eq i32 %risen, %seen
  br i1 %same, label %sleep, label %woken
woken:
  %now = phi i32 [ %found, %look ], [ %risen, %sleep ]
  %end = load atomic i32, ptr %ending acquire, align 4
  %ended = icmp ne i32 %end, 0
  br i1 %ended, label %done, label %enter
enter:
  %inside = load atomic i32, ptr %state acquire, align 4
  %closed = icmp sge i32 %inside, CLOSED
  br i1 %closed, label %wait, label %try
try:
  %one.more = add i32 %inside, 1
  %tried = cmpxchg ptr %state, i32 %inside, i32 %one.more seq_cst seq_cst
  %entered = extractvalue { i32, i1 } %tried, 1
  br i1 %entered, label %work, label %enter
work:
  %scratch = load ptr, ptr %place
  %task = getelementptr i8, ptr %board, i64 TASK
  %kernel = load ptr, ptr %task
  %is.list = icmp eq ptr %kernel, null
  br i1 %is.list, label %list, label %single
list:
  call void @follow(ptr %board, i64 %index, ptr %scratch)
  br label %out
single:
  call void @share(ptr %board, ptr %scratch)
  br label %out
out:
  %left = atomicrmw sub ptr %state, i32 1 seq_cst
  %last.out = icmp eq i32 %left, LAST
  br i1 %last.out, label %leave, label %wait
leave:
  %expected = load atomic i32, ptr %waiting seq_cst, align 4
  %sleeping = icmp ne i32 %expected, 0
  br i1 %sleeping, label %wake, label %wait
wake:
  %called = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %state, i64 129, i32 1)
  br label %wait
done:
  ret void
}
"""

_OPEN = """
define internal void @open(ptr %board, i32 %helpers) {
entry:
  %sequence = getelementptr i8, ptr %board, i64 SEQUENCE
  %sleepers = getelementptr i8, ptr %board, i64 SLEEPERS
  %state = getelementptr i8, ptr %board, i64 STATE
  store atomic i32 0, ptr %state seq_cst, align 4
  %old = atomicrmw add ptr %sequence, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %done
wake:
  %called = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %sequence, i64 129, i32 %helpers)
  br label %done
done:
  ret void
}

define internal void @close(ptr %board) {
entry:
  %state = getelementptr i8, ptr %board, i64 STATE
  %waiting = getelementptr i8, ptr %board, i64 WAITING
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %spins = load i64, ptr %settings
  %open = atomicrmw or ptr %state, i32 CLOSED seq_cst
  br label %look
look:
  %count = phi i64 [ 0, %entry ], [ %more, %again ]
  %inside = load atomic i32, ptr %state acquire, align 4
  %empty = icmp eq i32 %inside, CLOSED
  br i1 %empty, label %done, label %again
again:
  PAUSE
  %more = add i64 %count, 1
  %tired = icmp sge i64 %more, %spins
  br i1 %tired, label %tell, label %look
tell:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  br label %check
check:
  %still = load atomic i32, ptr %state seq_cst, align 4
  %left = icmp eq i32 %still, CLOSED
  br i1 %left, label %awake, label %sleep
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %state, i64 128, i32 %still, ptr null)
  br label %check
awake:
  store atomic i32 0, ptr %waiting seq_cst, align 4
  br label %done
done:
  ret void
}
"""

_DISPATCH = """
define void @dispatch(ptr %board, ptr %kernel, ptr %args, i64 %groups, i64 %chunk, i32 %helpers, ptr %scratch) {
  %next = getelementptr i8, ptr %board, i64 NEXT
  %task = getelementptr i8, ptr %board, i64 TASK
  %task.1 = getelementptr i8, ptr %task, i64 8
  %task.2 = getelementptr i8, ptr %task, i64 16
  %task.3 = getelementptr i8, ptr %task, i64 24
  store ptr %kernel, ptr %task
  store ptr %args, ptr %task.1
  store i64 %groups, ptr %task.2
  store i64 %chunk, ptr %task.3
  store i64 0, ptr %next
  call void @open(ptr %board, i32 %helpers)
  call void @share(ptr %board, ptr %scratch)
  call void @close(ptr %board)
  ret void
}
"""

_TAKE = """
define internal void @take(ptr %board, i32 %generation, i64 %own, ptr %scratch) {
entry:
  %listed = getelementptr i8, ptr %board, i64 LISTED
  %listed.1 = getelementptr i8, ptr %listed, i64 8
  %listed.2 = getelementptr i8, ptr %listed, i64 16
  %waiting = getelementptr i8, ptr %listed, i64 24
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %settings.2 = getelementptr i8, ptr %settings, i64 16
  %settings.3 = getelementptr i8, ptr %settings, i64 24
  %parts = load i64, ptr %settings.2
  %lines = load ptr, ptr %settings.3
  %before = sub i32 %generation, 1
  br label %each
each:
  %step = phi i64 [ 0, %entry ], [ %step.1, %next ]
  %sum = add i64 %own, %step
  %wraps = icmp uge i64 %sum, %parts
  %rest = sub i64 %sum, %parts
  %part = select i1 %wraps, i64 %rest, i64 %sum
  %far = shl i64 %part, 6
  %line = getelementptr i8, ptr %lines, i64 %far
  %seen = load atomic i32, ptr %line acquire, align 4
  %free = icmp eq i32 %seen, %before
  br i1 %free, label %try, label %next
try:
  %tried = cmpxchg ptr %line, i32 %before, i32 %generation seq_cst seq_cst
  %won = extractvalue { i32, i1 } %tried, 1
  br i1 %won, label %work, label %next
work:
  %kernel = load ptr, ptr %listed
  %args = load ptr, ptr %listed.1
  %groups = load i64, ptr %listed.2
  %part.1 = add i64 %part, 1
  %low = mul i64 %groups, %part
  %high = mul i64 %groups, %part.1
  %first = udiv i64 %low, %parts
  %last = udiv i64 %high, %parts
  %some = icmp ult i64 %first, %last
  br i1 %some, label %run, label %finish
run:
  call void %kernel(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch)
  br label %finish
finish:
  %done = getelementptr i8, ptr %line, i64 4
  store atomic i32 %generation, ptr %done seq_cst, align 4
  %expected = load atomic i32, ptr %waiting seq_cst, align 4
  %sleeping = icmp ne i32 %expected, 0
  br i1 %sleeping, label %wake, label %next
wake:
  %called = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %done, i64 129, i32 1)
  br label %next
next:
  %step.1 = add i64 %step, 1
  %more = icmp ult i64 %step.1, %parts
  br i1 %more, label %each, label %out
out:
  ret void
}
"""

_FOLLOW = """
define internal void @follow(ptr %board, i64 %index, ptr %scratch) {
entry:
  %generation = getelementptr i8, ptr %board, i64 GENERATION
  %resting = getelementptr i8, ptr %board, i64 RESTING
  %listed = getelementptr i8, ptr %board, i64 LISTED
  %ended = getelementptr i8, ptr %listed, i64 28
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %spins = load i64, ptr %settings
  %own = add i64 %index, 1
  %start = load atomic i32, ptr %generation acquire, align 4
  br label %serve
serve:
  %now = phi i32 [ %start, %entry ], [ %found, %look ], [ %risen, %sleep ]
  %end = load atomic i32, ptr %ended acquire, align 4
  %over = icmp ne i32 %end, 0
  br i1 %over, label %done, label %work
work:
  call void @take(ptr %board, i32 %now, i64 %own, ptr %scratch)
  br label %look
look:
  %count = phi i64 [ 0, %work ], [ %more, %again ]
  %found = load atomic i32, ptr %generation acquire, align 4
  %changed = icmp ne i32 %found, %now
  br i1 %changed, label %serve, label %again
again:
  PAUSE
  %more = add i64 %count, 1
  %tired = icmp sge i64 %more, %spins
  br i1 %tired, label %sleep, label %look
sleep:
  %before = atomicrmw add ptr %resting, i32 1 seq_cst
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %generation, i64 128, i32 %now, ptr null)
  %after = atomicrmw sub ptr %resting, i32 1 seq_cst
  %risen = load atomic i32, ptr %generation acquire, align 4
  %same = icmp eq i32 %risen, %now
  br i1 %same, label %sleep, label %serve
done:
  ret void
}
"""

_PUBLISH = """
define internal void @publish(ptr %board, i32 %now) {
entry:
  %generation = getelementptr i8, ptr %board, i64 GENERATION
  %resting = getelementptr i8, ptr %board, i64 RESTING
  store atomic i32 %now, ptr %generation seq_cst, align 4
  %asleep = load atomic i32, ptr %resting seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %done
wake:
  %called = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %generation, i64 129, i32 2147483647)
  br label %done
done:
  ret void
}

define internal void @meet(ptr %board, i32 %now) {
entry:
  %listed = getelementptr i8, ptr %board, i64 LISTED
  %waiting = getelementptr i8, ptr %listed, i64 24
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %settings.2 = getelementptr i8, ptr %settings, i64 16
  %settings.3 = getelementptr i8, ptr %settings, i64 24
  %spins = load i64, ptr %settings
  %parts = load i64, ptr %settings.2
  %lines = load ptr, ptr %settings.3
  br label %each
each:
  %part = phi i64 [ 0, %entry ], [ %part.1, %next ]
  %far = shl i64 %part, 6
  %line = getelementptr i8, ptr %lines, i64 %far
  %done = getelementptr i8, ptr %line, i64 4
  br label %look
look:
  %count = phi i64 [ 0, %each ], [ %more, %again ]
  %found = load atomic i32, ptr %done acquire, align 4
  %is.done = icmp eq i32 %found, %now
  br i1 %is.done, label %next, label %again
again:
  PAUSE
  %more = add i64 %count, 1
  %tired = icmp sge i64 %more, %spins
  br i1 %tired, label %tell, label %look
tell:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  br label %check
check:
  %still = load atomic i32, ptr %done seq_cst, align 4
  %came = icmp eq i32 %still, %now
  br i1 %came, label %awake, label %sleep
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %done, i64 128, i32 %still, ptr null)
  br label %check
awake:
  store atomic i32 0, ptr %waiting seq_cst, align 4
  br label %next
next:
  %part.1 = add i64 %part, 1
  %some = icmp ult i64 %part.1, %parts
  br i1 %some, label %each, label %out
out:
  ret void
}
"""

_WALK = """
define internal i32 @reset(ptr %board) {
entry:
  %generation = getelementptr i8, ptr %board, i64 GENERATION
  %task = getelementptr i8, ptr %board, i64 TASK
  %listed = getelementptr i8, ptr %board, i64 LISTED
  %ended = getelementptr i8, ptr %listed, i64 28
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %settings.2 = getelementptr i8, ptr %settings, i64 16
  %settings.3 = getelementptr i8, ptr %settings, i64 24
  %parts = load i64, ptr %settings.2
  %lines = load ptr, ptr %settings.3
  %now = load atomic i32, ptr %generation acquire, align 4
  store atomic i32 0, ptr %ended seq_cst, align 4
  store ptr null, ptr %task
  br label %each
each:
  %part = phi i64 [ 0, %entry ], [ %part.1, %each ]
  %far = shl i64 %part, 6
  %line = getelementptr i8, ptr %lines, i64 %far
  %done = getelementptr i8, ptr %line, i64 4
  store atomic i32 %now, ptr %line seq_cst, align 4
  store atomic i32 %now, ptr %done seq_cst, align 4
  %part.1 = add i64 %part, 1
  %some = icmp ult i64 %part.1, %parts
  br i1 %some, label %each, label %out
out:
  ret i32 %now
}

define void @walk(ptr %board, ptr %rows, i64 %count, i32 %helpers, ptr %scratch, ptr %times) {
entry:
  %listed = getelementptr i8, ptr %board, i64 LISTED
  %listed.1 = getelementptr i8, ptr %listed, i64 8
  %listed.2 = getelementptr i8, ptr %listed, i64 16
  %ended = getelementptr i8, ptr %listed, i64 28
  %start = call i32 @reset(ptr %board)
  call void @open(ptr %board, i32 %helpers)
  call void @stamp(ptr %times, i64 0)
  br label %each
each:
  %number = phi i64 [ 0, %entry ], [ %number.1, %next ]
  %now = phi i32 [ %start, %entry ], [ %after, %next ]
  %far = shl i64 %number, 5
  %row = getelementptr i8, ptr %rows, i64 %far
  %row.1 = getelementptr i8, ptr %row, i64 8
  %row.2 = getelementptr i8, ptr %row, i64 16
  %row.3 = getelementptr i8, ptr %row, i64 24
  %kernel = load ptr, ptr %row
  %args = load ptr, ptr %row.1
  %groups = load i64, ptr %row.2
  %shared = load i64, ptr %row.3
  %is.shared = icmp ne i64 %shared, 0
  br i1 %is.shared, label %share, label %alone
alone:
  call void %kernel(ptr %args, i64 0, i64 %groups, i64 %groups, ptr %scratch)
  br label %next
share:
  store ptr %kernel, ptr %listed
  store ptr %args, ptr %listed.1
  store i64 %groups, ptr %listed.2
  %fresh = add i32 %now, 1
  call void @publish(ptr %board, i32 %fresh)
  call void @take(ptr %board, i32 %fresh, i64 0, ptr %scratch)
  call void @meet(ptr %board, i32 %fresh)
  br label %next
next:
  %after = phi i32 [ %now, %alone ], [ %fresh, %share ]
  %number.1 = add i64 %number, 1
  call void @stamp(ptr %times, i64 %number.1)
  %some = icmp ult i64 %number.1, %count
  br i1 %some, label %each, label %out
out:
  store atomic i32 1, ptr %ended seq_cst, align 4
  %last = add i32 %after, 1
  call void @publish(ptr %board, i32 %last)
  call void @close(ptr %board)
  ret void
}
"""

_STOP = """
define void @stop(ptr %board) {
  %sequence = getelementptr i8, ptr %board, i64 SEQUENCE
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %ending = getelementptr i8, ptr %settings, i64 8
  store atomic i32 1, ptr %ending seq_cst, align 4
  %old = atomicrmw add ptr %sequence, i32 1 seq_cst
  %called = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %sequence, i64 129, i32 2147483647)
  ret void
}
"""

_SPIN = """
define void @spin(ptr %board, i64 %spins) {
entry:
  br label %look
look:
  %count = phi i64 [ 0, %entry ], [ %more, %look ]
  %found = load atomic i32, ptr %board acquire, align 4
  PAUSE
  %more = add i64 %count, 1
  %tired = icmp sge i64 %more, %spins
  br i1 %tired, label %done, label %look
done:
  ret void
}
"""

STAMP = """
declare i32 @clock_gettime(i32, ptr)

define internal void @stamp(ptr %times, i64 %number) {
entry:
  %is.timed = icmp ne ptr %times, null
  br i1 %is.timed, label %time, label %done
time:
  %far = shl i64 %number, 4
  %place = getelementptr i8, ptr %times, i64 %far
  %told = call i32 @clock_gettime(i32 CLOCK, ptr %place)
  br label %done
done:
  ret void
}
"""
"""Writes the time, as seconds and nanoseconds, into a row of a table where there is one."""

_ALONE = """
define void @walk_alone(ptr %rows, i64 %count, ptr %scratch, ptr %times) {
entry:
  call void @stamp(ptr %times, i64 0)
  br label %each
each:
  %number = phi i64 [ 0, %entry ], [ %number.1, %each ]
  %far = shl i64 %number, 5
  %row = getelementptr i8, ptr %rows, i64 %far
  %row.1 = getelementptr i8, ptr %row, i64 8
  %row.2 = getelementptr i8, ptr %row, i64 16
  %kernel = load ptr, ptr %row
  %args = load ptr, ptr %row.1
  %groups = load i64, ptr %row.2
  call void %kernel(ptr %args, i64 0, i64 %groups, i64 %groups, ptr %scratch)
  %number.1 = add i64 %number, 1
  call void @stamp(ptr %times, i64 %number.1)
  %some = icmp ult i64 %number.1, %count
  br i1 %some, label %each, label %out
out:
  ret void
}
"""

_FILL = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @fill(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) {
  %args.1 = getelementptr i8, ptr %args, i64 8
  %place = load ptr, ptr %args
  %size = load i64, ptr %args.1
  %low = mul i64 %size, %first
  %high = mul i64 %size, %last
  %begin = udiv i64 %low, %groups
  %end = udiv i64 %high, %groups
  %start = getelementptr i8, ptr %place, i64 %begin
  %bytes = sub i64 %end, %begin
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %bytes, i1 false)
  ret void
}
"""

ALONE_SYMBOLS = ("walk_alone", "fill")
CLOSED = 1 << 30


def write_alone() -> str:
    """The text of what one thread needs: it goes through a launch list, and fills memory."""
    return "\n".join((STAMP, _ALONE, _FILL)).replace(" CLOCK", f" {time.CLOCK_MONOTONIC}")


def write_loops(processor: str) -> str:
    """The text of the loops for a processor that FUTEX knows."""
    declared, pause = _PAUSE[processor]
    parts = (_SHARE, _TAKE, _FOLLOW, _WORKER, _OPEN, _DISPATCH, STAMP, _PUBLISH, _WALK, _STOP, _SPIN)
    text = "\n".join(("declare i64 @syscall(i64, ...)", declared, *parts))
    values = {"SEQUENCE": SEQUENCE, "SLEEPERS": SLEEPERS, "STATE": STATE, "WAITING": WAITING, "NEXT": NEXT}
    values |= {"TASK": TASK, "SETTINGS": SETTINGS, "SCRATCH": SCRATCH, "FUTEX": FUTEX[processor]}
    values |= {"CLOSED": CLOSED, "LAST": CLOSED + 1}
    values |= {"CLOCK": time.CLOCK_MONOTONIC}
    values |= {"GENERATION": GENERATION, "RESTING": RESTING, "LISTED": LISTED}
    for word, value in values.items():
        text = text.replace(f" {word}", f" {value}")
    return text.replace("PAUSE", pause)
