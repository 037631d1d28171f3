"""What a scenario file may say, and what is made of it: values, steps, states of a network."""
