"""Trees are those that the distances say; collections keep what they are given, and refuse what they are not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.genome import Collection, Tree, describe_model, grow, join_neighbours
from lamella.genome.collection import distances
from lamella.genome.tree import agreement, count_support
from lamella.pipeline.options import Options
from tests.support.forked import Lamella

NETWORK = """import nn;
import math;

graph {name} {{
    @input {{ x: real[2, 8]; }}
    @output {{ y: real[2, 8]; }}
    @variable {{ w: real[8, 8]; v: real[8, 8]; }}
    @compose {{
        h = nn.linear(x, w);
        g = {function}(h);
        y = nn.linear(g, v);
    }}
}}
"""


def random_tree(generator: np.random.Generator, count: int) -> Tree:
    """A tree of leaves with random lengths, its leaves as deep as they come."""
    parts = [Tree(frozenset([leaf]), (), float(generator.uniform(0.1, 1))) for leaf in range(count)]
    while len(parts) > 1:
        one, other = (parts.pop(int(generator.integers(len(parts)))) for _ in range(2))
        length = float(generator.uniform(0.1, 1))
        parts.append(Tree(one.leaves | other.leaves, (one, other), length))
    return parts[0]


def splits(tree: Tree, count: int) -> set[frozenset[frozenset[int]]]:
    """What each branch parts from what, wherever the root is."""
    every = frozenset(range(count))
    inner = (part.leaves for part in tree.walk() if 1 < len(part.leaves) < count - 1)
    return {frozenset((item, every - item)) for item in inner}


def deepened(tree: Tree, depth: float) -> Tree:
    """The tree with all leaves at one depth."""
    if not tree.branches:
        return Tree(tree.leaves, (), depth)
    length = min(tree.length, depth / 2)
    return Tree(tree.leaves, tuple(deepened(item, depth - length) for item in tree.branches), length)


@pytest.mark.parametrize("seed", range(12))
def test_trees_are_found_again_from_their_distances(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(4, 12))
    tree = random_tree(generator, count)
    found = join_neighbours(tree.between(count))
    assert splits(found, count) == splits(tree, count)
    assert np.allclose(found.between(count), tree.between(count))
    level = deepened(tree, 8.0)
    again = grow(level.between(count))
    assert {part.leaves for part in again.walk()} == {part.leaves for part in level.walk()}
    assert np.allclose(again.between(count), level.between(count))
    assert agreement(level.between(count), again) == pytest.approx(1)


def test_groups_on_the_mean_are_those_of_the_textbook() -> None:
    apart: Array = np.array([[0, 2, 6, 10], [2, 0, 5, 9], [6, 5, 0, 4], [10, 9, 4, 0]], dtype=float)
    tree = grow(apart)
    assert {tuple(sorted(part.leaves)) for part in tree.walk() if part.branches} == {
        (0, 1),
        (2, 3),
        (0, 1, 2, 3),
    }
    assert tree.height == pytest.approx((6 + 10 + 5 + 9) / 4 / 2)
    assert tree.newick("abcd").count("(") == 3


def test_resampled_genes_agree_where_all_genes_do() -> None:
    rows = np.zeros((4, 40), dtype=bool)
    rows[:2, :20] = True
    rows[2:, 20:] = True
    rows[0, 20], rows[2, 0] = True, True
    support = count_support([rows], grow, 20, 0)
    assert support[frozenset([0, 1])] == support[frozenset([2, 3])] == 20
    assert np.allclose(np.diag(distances([rows])), 0)


def test_a_collection_is_kept_and_hostile_ones_are_refused(tmp_path: Path) -> None:
    made = {}
    for name, function in (("tanh", "math.tanh"), ("relu", "nn.relu"), ("again", "math.tanh")):
        path = tmp_path / f"{name}.sknd"
        path.write_text(NETWORK.format(name=name, function=function), encoding="utf-8")
        made[name] = path
    collection = Collection()
    for path in made.values():
        entry, _, words = describe_model(path, Options())
        collection.add(entry, words)
    file = tmp_path / "zoo.json"
    collection.save(file)
    again = Collection.load(file)
    assert again.entries == collection.entries
    entry, _, words = describe_model(made["again"], Options())
    found = again.near(entry, words)
    assert [item.entry.name for item in found] == ["again.sknd", "tanh.sknd", "relu.sknd"]
    assert found[1].distance == 0 < found[2].distance
    assert found[2].more == ("floor·linear",)
    assert found[2].less == ("tanh·linear",)
    text = file.read_text(encoding="utf-8")
    data = json.loads(text)
    data["models"][0]["genes"] = data["models"][0]["genes"][:2]
    for wrong in ("", "[]", "{}", text[:200], text.replace('"format"', '"form"'), json.dumps(data)):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(LamellaError, match="collection"):
            Collection.load(file)


def test_the_command_names_what_it_leaves_out(tmp_path: Path, lamella: Lamella) -> None:
    zoo = tmp_path / "zoo"
    (zoo / "inner").mkdir(parents=True)
    (zoo / "a.sknd").write_text(NETWORK.format(name="a", function="math.tanh"), encoding="utf-8")
    (zoo / "inner" / "b.sknd").write_text(NETWORK.format(name="b", function="nn.relu"), encoding="utf-8")
    (zoo / "broken.onnx").write_bytes(b"no model")
    database, page, newick = (str(tmp_path / name) for name in ("zoo.json", "t.html", "t.nwk"))
    done = lamella("genome", "add", str(zoo), "--db", database)
    assert done.returncode == 1
    assert "broken.onnx" in done.stderr
    assert "2 models (2 new)" in done.stdout
    tree = lamella("genome", "tree", "--db", database, "--json", "--html", page, "-o", newick)
    assert json.loads(tree.stdout)["models"] == ["a.sknd", "b.sknd"]
    assert "'a.sknd':" in (tmp_path / "t.nwk").read_text(encoding="utf-8")
    assert "<svg" in (tmp_path / "t.html").read_text(encoding="utf-8")
    assert lamella("genome", "tree", "--db", str(tmp_path / "none.json")).returncode == 1
    wrong = lamella("genome", "nearr")
    assert wrong.returncode == 2
    assert "did you mean 'near'?" in wrong.stderr
