"""The agent: one process that does to the networks of its sites what it is told, for a lease."""
