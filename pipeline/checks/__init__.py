"""The checks: each finds the violations of a guarantee, with the events that prove them."""
