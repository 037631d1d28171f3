"""Stormcast's node: the protocol stack of one member."""
