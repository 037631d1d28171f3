"""The sub-commands of the rig."""
