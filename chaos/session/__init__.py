"""Plays a scenario over the verbs of a backend, judges the run and keeps it."""
