"""A graph as SkriptND text: flat, every name an identifier, with the user's own operators beside it."""

from __future__ import annotations

from lamella.bridge.graph_to_skriptnd.document import documents
from lamella.bridge.graph_to_skriptnd.names import with_identifiers
from lamella.bridge.graph_to_skriptnd.origins import Origins, origins_of, restore_names
from lamella.graph.model import Model
from lamella.lang.skriptnd import Document

__all__ = ["Origins", "graph_to_skriptnd", "origins_of", "restore_names", "with_identifiers"]


def graph_to_skriptnd(model: Model) -> dict[str, Document]:
    """The modules of a model folder, by name; `main` holds the graph.

    Variables are called as `with_identifiers` calls them, which is how their data must be stored.
    """
    flat = with_identifiers(model)
    return documents(flat.graph, flat.library)
