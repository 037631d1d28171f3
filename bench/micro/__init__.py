"""Micro benchmarks: the parts that every message passes, each on its own. `python -m bench.micro`."""
