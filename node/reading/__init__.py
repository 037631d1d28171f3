"""Reads and writes settings: quantities, and YAML in which every value has its place."""
