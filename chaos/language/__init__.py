"""The language of scenario files, and what they are read into: values, steps, network states."""
