"""Guests: programs that know nothing of Stormcast, each in a network namespace of its own, under
the faults of a scenario; judged by when they are ready and by what their clients saw
(docs/guests.md)."""
