"""Scenarios played by members of Stormcast and of a peer in turn, under the same judge."""
