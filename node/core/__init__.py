"""The pure heart: values, wire format, windows and clocks as data. Standard library only."""
