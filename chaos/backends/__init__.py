"""Backends: where members live. A scenario means the same on each of them."""
