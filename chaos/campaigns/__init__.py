"""Campaigns of many runs: the library, the museum, searches, replays, comparisons, shrinking."""
