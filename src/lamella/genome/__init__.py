"""Models by what they compute: canonical sequences, distances, trees, alignments, and which weights come from which."""

from __future__ import annotations

from lamella.genome.align import Aligned, align, lines_of
from lamella.genome.collection import Collection, Entry, Kinship, describe_model, distances, find_models
from lamella.genome.report import SURE, tree_page
from lamella.genome.sequence import Genome, Instruction, read_genome
from lamella.genome.transplant import (
    BlockOf,
    Moved,
    Transplant,
    plan_transplant,
    read_block,
    write_nac,
)
from lamella.genome.tree import METHODS, Tree, agreement, count_support, grow, join_neighbours

__all__ = [
    "METHODS",
    "SURE",
    "Aligned",
    "BlockOf",
    "Collection",
    "Entry",
    "Genome",
    "Instruction",
    "Kinship",
    "Moved",
    "Transplant",
    "Tree",
    "agreement",
    "align",
    "count_support",
    "describe_model",
    "distances",
    "find_models",
    "grow",
    "join_neighbours",
    "lines_of",
    "plan_transplant",
    "read_block",
    "read_genome",
    "tree_page",
    "write_nac",
]
