"""The control endpoint of a process: questions over HTTP, closed unless asked for."""
