"""Measurements: ratios and rates of this machine in this run, never tests. See bench/README.md."""
