"""The control endpoint of a process: commands over HTTP, closed unless it is asked for."""
