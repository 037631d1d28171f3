"""A scenario, played over the verbs of a backend, and what came of it."""
