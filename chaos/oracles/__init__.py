"""The oracles: they decide from a run's traces alone whether the guarantees held."""
