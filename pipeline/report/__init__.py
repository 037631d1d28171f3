"""The reports of runs: self-contained pages, made of kept numbers and without Spark."""
