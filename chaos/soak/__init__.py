"""Soaks: a cluster that lives on through one storm after the other, and is judged while it does."""
