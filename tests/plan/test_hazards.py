"""Findings about bytes that tasks share."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.lang.nem.resolved import Index, Item, Plan, Resource
from lamella.plan.hazards import budget_of, find_hazards, find_hoistable
from lamella.plan.hazards.accesses import Accesses
from lamella.plan.order import Order
from lamella.plan.verify import verify
from tests.support.plan.build import Builder, device, index, loop, operation, plus, region, variable, wait


def codes(findings: list[Diagnostic]) -> list[str]:
    return sorted(finding.code for finding in findings)


def check(plan: Plan) -> list[str]:
    return codes(verify(plan))


def ring(window: int, slots: int, trips: int = 10) -> Plan:
    """Load a tile into its slot, work on it in place, store it."""
    build = Builder()
    outside, inside, results = build.buffer("X", 640), build.buffer("R", 256), build.buffer("Y", 640)
    number = build.loop_number()
    step = variable(number)
    slot = region(inside, plus(index(), operation("mod", step, slots), 64), 64)
    tile = plus(index(), step, 64)
    load = build.move(region(outside, tile, 64), slot)
    work = build.task("relu", [slot], [slot], [load])
    store = build.move(slot, region(results, tile, 64), work)
    return build.plan([loop(number, 0, trips - 1, window, [load, work, store])])


def test_a_ring_of_as_many_slots_as_iterations_in_flight_is_safe() -> None:
    assert check(ring(window=2, slots=2)) == []
    assert check(ring(window=4, slots=4)) == []


def test_a_ring_that_is_too_short_is_told_with_both_iterations() -> None:
    findings = verify(ring(window=3, slots=2))
    # all pairs but (store, store): only in (load, load) neither side reads the slot
    assert codes(findings) == ["NEM141"] * 4 + ["NEM142"]
    messages = [finding.message for finding in findings]
    assert any("bytes [0, 64) of 'R'" in message and "(i0=2 and i0=0)" in message for message in messages)


def test_one_iteration_less_than_needed_is_not_reported() -> None:
    assert check(ring(window=3, slots=2, trips=2)) == []


def pair(first_writes: bool, second_writes: bool) -> list[Diagnostic]:
    build = Builder()
    shared, other = build.buffer("S", 64), build.buffer("O", 256)
    tasks = []
    for place, writes in enumerate((first_writes, second_writes)):
        own, common = region(other, 64 * place, 32), region(shared, 8 * place, 32)
        tasks.append(build.move(own, common) if writes else build.move(common, own))
    return verify(build.plan(tasks))


def test_the_three_kinds() -> None:
    (raw,) = pair(True, False)
    assert raw.code == "NEM140"
    assert raw.message == "t1 (transfer) may read bytes [8, 32) of 'S' before t0 (transfer) has written it"
    (war,) = pair(False, True)
    assert war.code == "NEM141"
    assert war.message.startswith("t1 (transfer) may overwrite bytes [8, 32) of 'S' while t0")
    (waw,) = pair(True, True)
    assert waw.code == "NEM142"
    assert "t1 (transfer) and t0 (transfer) both write bytes [8, 32)" in waw.message
    assert pair(False, False) == []


def test_an_error_of_the_last_iteration_alone() -> None:
    """Two slopes that meet only at the end of 10^9 iterations."""
    last = 10**9 - 1
    for extra, expected in ((0, []), (1, ["NEM140"])):
        build = Builder()
        data, out = build.buffer("A", 10**12), build.buffer("B", 64)
        number = build.loop_number()
        step = variable(number)
        write = build.move(region(out, 32, 8), region(data, plus(index(), step, 8), 8))
        read = build.move(
            region(data, plus(index(24 * last + 8 - 8 * extra), step, -16), 8), region(out, 0, 8)
        )
        one = build.plan([loop(number, 0, last, 1, [write, read])])
        findings = [finding for finding in verify(one) if finding.code != "NEM148"]
        assert codes(findings) == expected
        assert all(f"(i0={last})" in finding.message for finding in findings)


def test_bounds_name_the_last_iteration() -> None:
    build = Builder()
    data, out = build.buffer("A", 64 * 10**9 - 1), build.buffer("B", 64)
    number = build.loop_number()
    move = build.move(region(data, plus(index(), variable(number), 64), 64), region(out, 0, 64))
    (finding,) = verify(build.plan([loop(number, 0, 10**9 - 1, 1, [move])]))
    assert finding.code == "NEM040"
    assert finding.message == (
        "region [63999999936, 64000000000) leaves buffer 'A' of 63999999999 bytes in iteration i0=999999999"
    )


def test_negative_offsets_are_outside() -> None:
    build = Builder()
    data, out = build.buffer("A", 64), build.buffer("B", 64)
    number = build.loop_number()
    falling = plus(index(32), variable(number), -8)
    move = build.move(region(data, falling, 8), region(out, 0, 8))
    (finding,) = verify(build.plan([loop(number, 0, 5, 1, [move])]))
    assert finding.message.startswith("region [-8, 0) leaves buffer 'A' of 64 bytes in iteration i0=5")


def test_a_move_onto_itself_needs_memmove() -> None:
    build = Builder()
    data = build.buffer("A", 64)
    for distance, expected in ((15, ["NEM143"]), (16, [])):
        src, dst = region(data, 0, 16), region(data, distance, 16)
        assert check(build.plan([build.task("transfer", [src], [dst])])) == expected
        assert check(build.plan([build.task("transfer", [src], [dst], memmove=True)])) == []


def test_work_in_place_is_elementwise_and_exact() -> None:
    build = Builder()
    data = build.buffer("A", 64)
    whole = region(data, 0, 16)
    assert check(build.plan([build.task("relu", [whole], [whole])])) == []
    assert check(build.plan([build.task("relu", [whole], [region(data, 8, 16)])])) == ["NEM144"]
    assert check(build.plan([build.task("relu", [whole], [region(data, 0, 8)])])) == ["NEM144"]
    assert check(build.plan([build.task("softmax", [whole], [whole])])) == ["NEM144"]
    assert check(build.plan([build.task("split", [region(data, 32, 16)], [whole, whole])])) == ["NEM144"]


def test_in_place_by_different_words_is_in_place() -> None:
    build = Builder()
    data = build.buffer("A", 128)
    number = build.loop_number()
    step = variable(number)
    for ahead in (1, 2):
        one = plus(index(), operation("mod", step, 2), 64)
        two = plus(index(), operation("mod", plus(step, index(ahead)), 2), 64)
        task = build.task("relu", [region(data, one, 64)], [region(data, two, 64)])
        assert check(build.plan([loop(number, 0, 99, 1, [task])])) == []
    near = plus(index(1), operation("mod", plus(step, index(2)), 2), 32)
    task = build.task(
        "relu", [region(data, plus(index(), operation("mod", step, 2), 32), 32)], [region(data, near, 32)]
    )
    assert check(build.plan([loop(number, 0, 99, 1, [task])])) == ["NEM144"]


# --- reload -------------------------------------------------------------------------------------------------


def reload(change: str = "") -> Plan:
    """Weights loaded in every iteration with two in flight; `change` breaks one condition."""
    build = Builder()
    weights, near, out = build.buffer("W", 64), build.buffer("L", 64), build.buffer("Y", 1280)
    number = build.loop_number()
    step = variable(number)
    load = build.move(
        region(weights, plus(index(), step, 1) if change == "moving" else 0, 32), region(near, 0, 32)
    )
    tile = region(out, plus(index(), step, 64), 32)
    early = build.task("relu", [region(near, 0, 32)], [tile], [load] if change != "unordered reader" else [])
    body: list[Item] = [load, early]
    if change == "source written":
        body.append(build.task("relu", [region(out, 1216, 8)], [region(weights, 16, 8)], [load, early]))
    if change == "other writer":
        body.append(build.task("relu", [region(out, 1216, 8)], [region(near, 16, 8)], [load, early]))
    return build.plan([loop(number, 0, 9, 2, body)])


def test_reload_is_a_warning() -> None:
    findings = verify(reload())
    assert codes(findings) == ["NEM145"]
    assert findings[0].severity == "warning"
    assert len(find_hazards(reload()).hazards) == 2


def test_reload_without_one_of_its_conditions_is_an_error() -> None:
    assert "NEM145" not in check(reload("moving"))
    assert "NEM145" not in check(reload("source written"))
    assert "NEM145" not in check(reload("other writer"))
    assert "NEM140" in check(reload("unordered reader"))
    for change in ("moving", "source written", "other writer", "unordered reader"):
        assert any(finding.severity == "error" for finding in verify(reload(change)))


def test_reload_into_a_ring_that_is_too_short() -> None:
    build = Builder()
    weights, near, out = build.buffer("W", 64), build.buffer("L", 64), build.buffer("Y", 640)
    number = build.loop_number()
    step = variable(number)
    slot = region(near, plus(index(), operation("mod", step, 2), 32), 32)
    load = build.move(region(weights, 0, 32), slot)
    work = build.task("relu", [slot], [region(out, plus(index(), step, 64), 32)], [load])
    assert check(build.plan([loop(number, 0, 9, 3, [load, work])])) == ["NEM145"]


def test_a_harmless_pair_hides_no_harm() -> None:
    """The same two tasks share reloaded bytes and, elsewhere, bytes that race."""
    build = Builder()
    weights, near, out = build.buffer("W", 64), build.buffer("L", 64), build.buffer("Y", 64)
    number = build.loop_number()
    load = build.move(region(weights, 0, 32), region(near, 0, 32))
    again = build.move(region(near, 0, 32), region(out, 0, 32), load)
    findings = verify(build.plan([loop(number, 0, 9, 2, [load, again])]))
    assert codes(findings) == ["NEM142", "NEM145"]


def test_hoisting_is_noted_where_it_is_possible() -> None:
    build = Builder()
    weights, near, out = build.buffer("W", 64), build.buffer("L", 64), build.buffer("Y", 640)
    number = build.loop_number()
    load = build.move(region(weights, 0, 32), region(near, 0, 32))
    work = build.task(
        "relu", [region(near, 0, 32)], [region(out, plus(index(), variable(number), 64), 32)], [load]
    )
    plan = build.plan([loop(number, 0, 9, 1, [load, work])])
    assert check(plan) == ["NEM148"]
    order = Order(plan)
    found = find_hoistable(order, Accesses(order, budget_of(Limits())))
    assert [(site.task.number, extent.loop.number) for site, extent in found] == [(load.number, number)]
    clear = build.task("relu", [region(out, 0, 32)], [region(near, 0, 32)], [load, work])
    assert check(build.plan([loop(number, 0, 9, 1, [load, work, wait(work), clear])])) == []
    assert check(build.plan([loop(number, 0, 0, 1, [load, work])])) == []


# --- imported buffers ---------------------------------------------------------------------------------------


def imported(level: str = "L2", readonly: bool = False, ordered: bool = False, window: int = 1) -> list[str]:
    build = Builder()
    one, two = build.buffer("X", 640, "L2", imported=True), build.buffer("Y", 640, level, imported=True)
    near = build.buffer("N", 640)
    number = build.loop_number()
    tile = plus(index(), variable(number), 64)
    load = build.move(region(one, tile, 64, readonly=readonly), region(near, tile, 64))
    store = build.move(region(near, tile, 64), region(two, tile, 64), *([load] if ordered else []))
    body: list[Item] = [load, store] if ordered else [load, wait(load), store]
    return check(build.plan([loop(number, 0, 9, window, body)]))


def test_imported_buffers_may_be_the_same_memory() -> None:
    assert imported(window=2) == ["NEM147"]
    assert imported(window=2, ordered=True) == ["NEM147"]
    assert imported(window=1) == []
    assert imported(window=2, readonly=True) == []
    assert imported(window=2, level="DDR") == []


def test_imported_buffers_within_one_task() -> None:
    build = Builder()
    one, two = build.buffer("X", 64, imported=True), build.buffer("Y", 64, imported=True)
    assert check(build.plan([build.move(region(one, 0, 64), region(two, 0, 64))])) == ["NEM147"]
    assert check(build.plan([build.move(region(one, 0, 64, readonly=True), region(two, 0, 64))])) == []
    moved = build.task("transfer", [region(one, 0, 64)], [region(two, 0, 64)], memmove=True)
    assert check(build.plan([moved])) == []


# --- unit indices -------------------------------------------------------------------------------------------


def resource(unit_index: Index) -> list[Diagnostic]:
    build = Builder()
    data, out = build.buffer("A", 640), build.buffer("B", 640)
    number = 0
    tile = plus(index(), variable(number), 64)
    move = build.task(
        "transfer", [region(data, tile, 64)], [region(out, tile, 64)], resource=Resource("DMA", unit_index)
    )
    return verify(build.plan([loop(number, 0, 9, 1, [move])], device()))


def test_unit_indices_are_checked_over_all_iterations() -> None:
    assert codes(resource(operation("mod", variable(0), 2))) == []
    (remapped,) = resource(operation("mod", variable(0), 4))
    assert (remapped.code, remapped.severity) == ("NEM115", "warning")
    assert "DMA[3] is remapped: test has 2 DMA" in remapped.message
    (negative,) = resource(plus(index(8), variable(0), -1))
    assert negative.code == "NEM116"
    assert "unit index -1" in negative.message


# --- what cannot be told ------------------------------------------------------------------------------------


def irregular() -> Plan:
    build = Builder()
    data, out = build.buffer("A", 10**9), build.buffer("B", 64)
    one, two = build.loop_number(), build.loop_number()
    square = operation("*", variable(one), variable(two))
    where = operation("mod", square, 999_999_937)
    move = build.move(region(out, 0, 1), region(data, where, 1))
    return build.plan([loop(one, 1, 10**6, 1, [loop(two, 10**6, 2 * 10**6, 2, [move])])])


def test_what_is_not_proved_is_said() -> None:
    (finding,) = verify(irregular(), Limits(max_pairs=4000))
    assert (finding.code, finding.severity) == ("NEM146", "warning")
    assert "max_pairs" in finding.hint


def test_many_findings_end() -> None:
    build = Builder()
    data, out = build.buffer("A", 6400), build.buffer("B", 64)
    tasks = [build.task("relu", [region(data, 64 * n, 64)], [region(out, 0, 64)]) for n in range(100)]
    findings = verify(build.plan(tasks))
    assert len(findings) == 1001
    assert codes(findings)[-1] == "NEM146"


def test_a_window_that_is_too_wide_is_named_with_the_one_that_fits() -> None:
    make = Builder()
    near, far = make.buffer("near", 192, "L1"), make.buffer("far", 6400)
    load = make.task(
        "transfer", [region(far, variable(0), 1)], [region(near, operation("mod", variable(0), 3), 1)]
    )
    plan = make.plan([loop(0, 0, 9, 4, [load])])
    (finding,) = [item for item in verify(plan) if item.code == "NEM142"]
    assert "3 apart" in finding.hint
    assert "@max_in_flight(4)" in finding.hint
    assert "lower it to 3" in finding.hint
