"""The oracles: independent readers of a run's traces, which decide whether the guarantees held."""
