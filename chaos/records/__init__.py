"""What a run leaves besides its members' traces: its directory, the rig's own trace, a digest."""
