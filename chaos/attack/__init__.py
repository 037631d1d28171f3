"""Attacks by hand: faults that a person aims at whatever runs on this machine, now."""
