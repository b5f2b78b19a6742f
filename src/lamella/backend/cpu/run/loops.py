"""The loops of the thread pool as LLVM IR: how a worker waits, how work-groups are shared out, how the caller joins.

A board in memory holds, each on a cache line of its own:

- `sequence`, which grows with every task: what workers look at, and sleep on;
- `sleepers`, how many of them sleep, so that nobody is woken in vain;
- `state`, how many workers are inside the task, and a bit that says that it is closed: only the caller opens it;
- `waiting`, whether the caller sleeps until the last worker has left;
- `next`, the first work-group that nobody has taken;
- the task itself: kernel, arguments, number of work-groups, how many are taken at once; and the order to end.

A worker that comes late finds the task closed and goes back, so a core that is busy elsewhere delays nobody.
"""

from __future__ import annotations

from types import MappingProxyType

LINE = 64
SEQUENCE, SLEEPERS, STATE, WAITING, NEXT, TASK, SETTINGS, SCRATCH = (LINE * line for line in range(8))
SYMBOLS = ("worker", "dispatch", "stop", "spin")
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
  %seen = phi i32 [ %start, %entry ], [ %now, %enter ], [ %now, %work ], [ %now, %leave ], [ %now, %wake ]
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
  call void @share(ptr %board, ptr %scratch)
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

_DISPATCH = """
define void @dispatch(ptr %board, ptr %kernel, ptr %args, i64 %groups, i64 %chunk, i32 %helpers, ptr %scratch) {
entry:
  %sequence = getelementptr i8, ptr %board, i64 SEQUENCE
  %sleepers = getelementptr i8, ptr %board, i64 SLEEPERS
  %state = getelementptr i8, ptr %board, i64 STATE
  %waiting = getelementptr i8, ptr %board, i64 WAITING
  %next = getelementptr i8, ptr %board, i64 NEXT
  %task = getelementptr i8, ptr %board, i64 TASK
  %task.1 = getelementptr i8, ptr %task, i64 8
  %task.2 = getelementptr i8, ptr %task, i64 16
  %task.3 = getelementptr i8, ptr %task, i64 24
  %settings = getelementptr i8, ptr %board, i64 SETTINGS
  %spins = load i64, ptr %settings
  store ptr %kernel, ptr %task
  store ptr %args, ptr %task.1
  store i64 %groups, ptr %task.2
  store i64 %chunk, ptr %task.3
  store i64 0, ptr %next
  store atomic i32 0, ptr %state seq_cst, align 4
  %old = atomicrmw add ptr %sequence, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %work
wake:
  %called = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %sequence, i64 129, i32 %helpers)
  br label %work
work:
  call void @share(ptr %board, ptr %scratch)
  %open = atomicrmw or ptr %state, i32 CLOSED seq_cst
  br label %look
look:
  %count = phi i64 [ 0, %work ], [ %more, %again ]
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

CLOSED = 1 << 30


def write_loops(processor: str) -> str:
    """The text of the loops for a processor that FUTEX knows."""
    declared, pause = _PAUSE[processor]
    text = "\n".join(("declare i64 @syscall(i64, ...)", declared, _SHARE, _WORKER, _DISPATCH, _STOP, _SPIN))
    values = {"SEQUENCE": SEQUENCE, "SLEEPERS": SLEEPERS, "STATE": STATE, "WAITING": WAITING, "NEXT": NEXT}
    values |= {"TASK": TASK, "SETTINGS": SETTINGS, "SCRATCH": SCRATCH, "FUTEX": FUTEX[processor]}
    values |= {"CLOSED": CLOSED, "LAST": CLOSED + 1}
    for word, value in values.items():
        text = text.replace(f" {word}", f" {value}")
    return text.replace("PAUSE", pause)
