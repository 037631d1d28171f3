"""Many runs: a whole library of them, generated ones, one again, ever smaller ones."""
