"""The walk that changes documents."""

from __future__ import annotations

from lamella.base.source import Source, Trivia
from lamella.lang.nem import nodes, parse, write
from lamella.plan.passes.rewrite import Edits, declared_in, loops_of, names_in, walk

TEXT = """\
# a program
const N = 4

# the loop
loop i in [0..N - 1]:
    loop k in [0..1]:
        wait(a)  # here
    endloop
    # the end
endloop
"""


def document() -> nodes.Document:
    return parse(Source("test.nem", TEXT)).document


def test_no_edits_change_nothing() -> None:
    before = document()
    assert Edits().apply(before) == before
    assert write(Edits().apply(before)) == TEXT


def test_parts_are_found_by_identity() -> None:
    before = document()
    outer, inner = loops_of(before)
    edits = Edits()
    edits.swap(inner.last, nodes.Integer(7))
    edits.put_first(outer, nodes.Wait((nodes.Name("first"),)))
    edits.put_last(inner, nodes.Wait((nodes.Name("last"),)))
    edits.put_before(inner, nodes.Wait((nodes.Name("before"),)))
    edits.decorate(inner, (nodes.Decorator("max_in_flight", (nodes.Integer(2),)),))
    after = """\
# a program
const N = 4

# the loop
loop i in [0..N - 1]:
    wait(first)
    wait(before)
    loop k in [0..7] @max_in_flight(2):
        wait(a)  # here
        wait(last)
    endloop
    # the end
endloop
"""
    assert write(edits.apply(before)) == after
    assert write(before) == TEXT


def test_statements_are_dropped_and_tied() -> None:
    before = document()
    outer, inner = loops_of(before)
    wait = inner.body[0]
    assert isinstance(wait, nodes.Wait)
    edits = Edits()
    edits.tie(wait, (nodes.Name("b"), nodes.Name("c")))
    edits.annotate(outer, Trivia(("# changed",)))
    edits.drop(before.statements[0])
    text = write(edits.apply(before))
    assert "wait(b, c)  # here" in text
    assert text.startswith("# changed\nloop i")


def test_deep_nests_do_not_exhaust_the_stack() -> None:
    loops = "".join(f"loop i{n} in [0..1]:\n" for n in range(190)) + "wait(a)\n" + "endloop\n" * 190
    sums = "const N = " + "1 + (2 * (" * 80 + "1" + "))" * 80 + "\n"
    before = parse(Source("test.nem", sums + loops)).document
    (const,) = [item for item, _ in walk(before) if isinstance(item, nodes.Const)]
    edits = Edits()
    edits.swap(loops_of(before)[-1].first, nodes.Integer(1))
    edits.swap(const.name, nodes.Name("M"))
    text = write(edits.apply(before))
    assert "loop i189 in [1..1]" in text
    assert text.startswith("const M = 1 + 2 * (1")


def test_names() -> None:
    assert declared_in(document()) == {"N": 1, "i": 1, "k": 1}
    assert sorted(name.id for name in names_in(document())) == ["N", "N", "a", "i", "k"]
