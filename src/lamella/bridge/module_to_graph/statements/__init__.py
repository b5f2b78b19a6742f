"""Statements before they are built: guards decided, patterns written out, order found."""
