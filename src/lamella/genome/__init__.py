"""Models by what they compute: canonical sequences, distances, trees, alignments, and which weights come from which."""

from __future__ import annotations

from lamella.genome.align import Aligned, align
from lamella.genome.collection import Collection, Entry, Kinship, describe_model, find_models
from lamella.genome.report import tree_page
from lamella.genome.sequence import Genome, Instruction, read_genome
from lamella.genome.tree import Tree, grow, join_neighbours

__all__ = [
    "Aligned",
    "Collection",
    "Entry",
    "Genome",
    "Instruction",
    "Kinship",
    "Tree",
    "align",
    "describe_model",
    "find_models",
    "grow",
    "join_neighbours",
    "read_genome",
    "tree_page",
]
