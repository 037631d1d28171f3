"""Where members live. Each backend gives a scenario the same meaning."""
