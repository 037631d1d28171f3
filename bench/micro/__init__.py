"""Micro benchmarks of the parts that every message passes, each alone. `python -m bench.micro`."""
