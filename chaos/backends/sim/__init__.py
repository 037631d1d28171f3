"""The simulator: the same stacks as a real process, in virtual time, deterministic to the byte."""

from chaos.backends.sim.world import SimulatedRun, simulate

__all__ = ["SimulatedRun", "simulate"]
