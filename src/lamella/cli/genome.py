"""`lamella genome`: many models by what they compute: collections, relatives, trees, alignments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lamella.base.diagnostic import Diagnostic, LamellaError, printable
from lamella.base.errors import InputError
from lamella.base.optional import Late
from lamella.base.suggest import nearest
from lamella.base.writer import write_text
from lamella.cli.colour import print_report
from lamella.cli.options import Command, Words, print_findings, print_json, refuse_dash
from lamella.cli.progress import show_progress
from lamella.cli.waiting import waiting
from lamella.pipeline.languages import ENDINGS, NAC
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella import genome as kin
    from lamella.train import saving
else:
    kin = Late("lamella.genome")  # which the help of the commands does without
    saving = Late("lamella.train.saving")  # which one of them needs

DATABASE = Path("genome.json")
DIFFERENCES = 3
"""Differences that a line names."""

_db = click.option(
    "--db", "database", type=click.Path(path_type=Path, readable=False), callback=refuse_dash,
    default=DATABASE, show_default=True, help="The collection of models.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class _Group(click.Group):
    """The commands of `genome`; one that does not exist is told the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            close = nearest(args[0], self.commands)
            meant = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command '{printable(args[0])}' of genome; {meant}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Group)
def genome() -> None:
    """Compare many models by what they compute: names, formats, frameworks and sizes aside.

    A model is written out by the definitions of its operators and read as a sequence of instructions: products with
    weights, reductions, gates. Its genes are the instructions with the operands they have, over four generations; the
    distance of two models is the part of their genes that not both have.
    """


def _sub(name: str) -> Callable[[Callable[..., None]], click.Command]:
    return genome.command(name, cls=Command)


@_sub("add")
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@_db
@_json
def add(models: tuple[Path, ...], database: Path, as_json: bool) -> None:
    """Put MODELS into a collection: files of any language, .onnx, .pt2, Hugging Face folders, or folders of these.

    A model that is there already from the same path is read again. What cannot be read is named, the others are added,
    and the status is 1.
    """
    collection = kin.Collection.load(database)
    paths = list(dict.fromkeys(kin.find_models(models)))
    if not paths:
        raise InputError("there are no models in it", path=models[0], hint="a folder is searched for models")
    before = len(collection.entries)
    refused: list[Diagnostic] = []
    for path in show_progress(paths, len(paths)):
        try:
            entry, _, words = kin.describe_model(path, Options())
            collection.add(entry, words)
        except LamellaError as problem:
            first = problem.findings[0]
            refused.append(replace(first, message=f"{printable(str(path), 120)}: {first.message}"))
    if len(refused) < len(paths):
        collection.save(database)
    count = len(collection.entries)
    facts = {
        "models": count,
        "new": count - before,
        "instructions": sum(item.instructions for item in collection.entries.values()),
        "genes": len(collection.shared_genes()),
    }
    if as_json:
        print_json({"ok": not refused, "diagnostics": [item.to_json() for item in refused], **facts})
    else:
        print_findings(refused)
        click.echo(
            f"{printable(str(database))}: {count} models ({facts['new']} new), {facts['instructions']:,} "
            f"instructions, {facts['genes']:,} genes that several models have"
        )
    sys.exit(1 if refused else 0)


@_sub("near")
@click.argument("model", type=click.Path(path_type=Path, readable=False))
@_db
@click.option("--count", type=click.IntRange(1), default=10, show_default=True, help="Models to show.")
@_json
def near(model: Path, database: Path, count: int, as_json: bool) -> None:
    """Find the relatives of MODEL in a collection: by what they compute, then by their weights."""
    collection = _open(database)
    with waiting(f"reading {printable(str(model))}"):
        entry, _, words = kin.describe_model(model, Options())
    found = collection.near(entry, words)[:count]
    if as_json:
        print_json({"ok": True, "diagnostics": [], "near": [_kin_json(item) for item in found]})
        return
    width = max(len(item.entry.name) for item in found)
    lines = [f"{'distance':>8}  {'model':{width}}  {'genes':>9}  differs by; weights"]
    for item in found:
        genes = f"{item.shared}/{item.total}"
        words_ = "; ".join(filter(None, (_differences(item), _weight_words(entry, item))))
        lines.append(f"{item.distance:8.3f}  {item.entry.name:{width}}  {genes:>9}  {words_}".rstrip())
    print_report("\n".join(lines))


def _differences(item: kin.Kinship) -> str:
    """The smallest genes that one of two has alone."""
    words = []
    for sign, side in (("+", item.more), ("-", item.less)):
        words += [f"{sign} {text}" for text in side[:DIFFERENCES]]
        if len(side) > DIFFERENCES:
            words.append(f"{sign} {len(side) - DIFFERENCES} more")
    return ", ".join(words)


def _weight_words(entry: kin.Entry, item: kin.Kinship) -> str:
    return f"weights: {item.weights}" if entry.samples and item.entry.samples and not item.distance else ""


def _kin_json(item: kin.Kinship) -> dict[str, object]:
    return {
        "model": item.entry.name,
        "path": item.entry.path,
        "distance": item.distance,
        "shared": item.shared,
        "genes": item.total,
        "more": list(item.more),
        "less": list(item.less),
        "parameters": item.entry.parameters,
        "correlations": list(item.correlations),
        "weights": item.weights,
    }


@_sub("tree")
@_db
@click.option(
    "--method", type=Words(("upgma", "nj")), default="upgma", show_default=True,
    help="By the nearest groups, or by neighbours.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, readable=False), callback=refuse_dash,
    help="Write the tree in Newick's format.",
)  # fmt: skip
@click.option(
    "--html",
    type=click.Path(path_type=Path, readable=False),
    callback=refuse_dash,
    help="Write a page with a drawing.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 10_000), default=100, show_default=True,
    help="Trees of resampled genes that tell how sure each branch is.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Decides the resampling.")
@_json
def tree(
    database: Path, method: str, output: Path | None, html: Path | None, rounds: int, seed: int, as_json: bool
) -> None:
    """Draw the tree of a collection, with how sure its branches are."""
    collection = _open(database, 2)
    names = list(collection.entries)
    presence = collection.presence()
    apart = kin.distances(presence)
    with waiting("growing trees"):
        made = kin.METHODS[method](apart)
        support = kin.count_support(presence, kin.METHODS[method], rounds, seed)
    inner = [part for part in made.walk() if part.branches and len(part.leaves) < len(names)]
    sure = sum(support[part.leaves] >= kin.SURE * rounds for part in inner)
    follows = kin.agreement(apart, made)
    newick = made.newick(names, support, rounds)
    words = (
        f"{len(names)} models by {method}: correlation with the distances {follows:.2f}, "
        f"{sure} of {len(inner)} branches in at least {kin.SURE:.0%} of {rounds} trees of resampled genes"
    )
    if output is not None:
        write_text(output, newick)
    if html is not None:
        write_text(html, kin.tree_page(names, made, apart, support, rounds, words))
    if as_json:
        facts = {
            "models": names,
            "newick": newick,
            "correlation": follows,
            "sure": sure,
            "branches": len(inner),
        }
        print_json({"ok": True, "diagnostics": [], **facts, "distances": apart.tolist()})
        return
    for line in made.outline(names):
        click.echo(line)
    click.echo(words)


@_sub("align")
@click.argument("left", type=click.Path(path_type=Path, readable=False))
@click.argument("right", type=click.Path(path_type=Path, readable=False))
@_json
def align_models(left: Path, right: Path, as_json: bool) -> None:
    """Write the instructions of two models side by side, with gaps: = the same, ~ akin, - only LEFT, + only RIGHT."""
    with waiting("aligning"):
        one, other = (kin.describe_model(path, Options())[1] for path in (left, right))
        pairs = kin.align(one, other)
    same = sum(
        a is not None and b is not None and str(one.instructions[a]) == str(other.instructions[b])
        for a, b in pairs
    )
    if as_json:
        sides = [[str(item) for item in side.instructions] for side in (one, other)]
        print_json({"ok": True, "diagnostics": [], "left": sides[0], "right": sides[1], "pairs": pairs})
        return
    for line in kin.lines_of(one, other, pairs):
        click.echo(line)
    counts = len(one.instructions), len(other.instructions)
    click.echo(f"{same} of {counts[0]} and {counts[1]} instructions are the same")


@_sub("transplant")
@click.argument("blocks", nargs=-1, required=True, metavar="DONOR:BLOCK TARGET:BLOCK")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, readable=False), callback=refuse_dash,
    help="Write TARGET with the weights: .nac, .onnx, .sknd, .safetensors, or a folder.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be moved, and write nothing.")
@click.option(
    "--tolerance", type=float, default=Options().tolerance, show_default=True,
    help="How far the block may be from what it computes in DONOR, in parts of the largest number.",
)  # fmt: skip
@_json
def transplant(
    blocks: tuple[str, ...], output: Path | None, dry_run: bool, tolerance: float, as_json: bool
) -> None:
    """Put the weights of a block of DONOR into the place of a block's of TARGET.

    A block is named by the path of its weights: model.nac:blocks[1].mlp, folder:blocks.0. Both must be of one motif and
    of equal sizes, and TARGET's block with the new weights must compute what DONOR's computes, on random inputs.
    """
    if len(blocks) != 2 or "-" in blocks:
        hint = "; a shell takes '>' for itself: write no arrow" if "-" in blocks else ""
        raise click.UsageError(f"two blocks are needed: DONOR:BLOCK TARGET:BLOCK{hint}")
    if (output is None) != dry_run:
        raise click.UsageError("say either where the result goes with -o OUT, or --dry-run")
    options = replace(Options(), tolerance=tolerance)
    with waiting("comparing blocks"):
        donor, target = (kin.read_block(item, options) for item in blocks)
        made = kin.plan_transplant(donor, target, options)
        written = [] if output is None else _write_transplant(made, output, options)
    if as_json:
        moved = [
            {"from": item.source, "to": item.target, "shape": list(item.shape), "turned": item.is_turned}
            for item in made.moved
        ]
        facts = {"motif": list(made.motif), "moved": moved, "parameters": made.parameters}
        more = {"kept": list(made.kept), "shared": list(made.shared), "difference": made.difference}
        print_json(
            {"ok": True, "diagnostics": [], **facts, **more, "written": [str(item) for item in written]}
        )
        return
    print_report("\n".join(_transplant_lines(made)))
    for path in written:
        click.echo(printable(str(path)))


def _write_transplant(made: kin.Transplant, output: Path, options: Options) -> list[Path]:
    """A NAC file stays the file that it is; others are written as training writes them."""
    path = made.target.path
    if ENDINGS.get(path.suffix.lower()) == ENDINGS.get(output.suffix.lower()) == NAC.name:
        return [kin.write_nac(made, output, options)]
    saving.require_save(path, output, options)
    data = made.target.model.data or {}
    written, findings = saving.save_trained(path, output, made.numbers(), lambda: dict(data), options)
    print_findings(findings)
    return list(written)


def _transplant_lines(made: kin.Transplant) -> Iterator[str]:
    yield f"{made.donor} and {made.target} are of one motif: {', '.join(made.motif)}"
    width = max(len(item.target) for item in made.moved)
    for item in made.moved:
        turned = ", rows as columns" if item.is_turned else ""
        facts = f"{list(item.shape)!s:16} {item.parameters:>12,}"
        yield f"  {printable(item.target):{width}}  {facts}  from {printable(item.source)}{turned}"
    for name in made.kept:
        yield f"  {printable(name):{width}}  stays: the donor's block has nothing for it"
    for name in made.shared:
        yield f"  note: operations outside of the block read {printable(name)} too"
    numbers = "bit by bit" if not made.difference else f"within {made.difference:.2g} of the largest number"
    yield f"{made.parameters:,} parameters move; the block then computes what it computes in the donor, {numbers}"


def _open(database: Path, least: int = 1) -> kin.Collection:
    """The collection of a file, which must have models."""
    collection = kin.Collection.load(database)
    if len(collection.entries) < least:
        count = len(collection.entries)
        raise InputError(
            f"the collection has {count} model{'s' * (count != 1)}, and {least} {'are' if least > 1 else 'is'} needed",
            path=database,
            hint=f"`lamella genome add MODEL… --db {database}` adds some",
        )
    return collection
