"""Micro benchmarks: what every message passes, each part alone. `python -m bench.micro`."""
