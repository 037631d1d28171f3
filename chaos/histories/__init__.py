"""Histories of clients, and what they prove: each is judged against a model of the object that its
clients used (docs/histories.md). Pure: it reads the lines that it is given, and nothing else."""
