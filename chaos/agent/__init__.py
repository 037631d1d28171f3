"""The agent: one process that carries out network faults at its sites, for as long as a lease."""
