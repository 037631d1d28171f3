"""The rig: scenarios, faults, backends, oracles."""
