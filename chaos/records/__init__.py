"""The files of a run besides its members' traces: its directory, the rig's own trace, a digest."""
