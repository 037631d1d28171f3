"""The checks: of each guarantee the violations, as a DataFrame with the events that prove them."""
