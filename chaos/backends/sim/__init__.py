"""The simulator: the same stacks as a real process, in virtual time, deterministic to the byte."""
