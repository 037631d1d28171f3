"""The reports of runs: self-contained pages, made from stored metrics, without Spark."""
