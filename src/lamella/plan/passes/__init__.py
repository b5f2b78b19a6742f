"""Passes from NEM to NEM: each is a pure function from a document and its plan to a better document, or None."""
