"""`lamella demo`: one small classifier through all layers, every stage compared with the one above, as a report."""
