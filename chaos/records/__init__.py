"""What a run leaves besides what members wrote: the trace of the rig itself, and its figures."""
