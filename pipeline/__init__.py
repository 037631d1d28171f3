"""The pipeline: verdicts and measurements from the traces of runs, on Spark.

It reads the Parquet of docs/trace-format.md, and imports nothing of `node` or `chaos`, which wrote
it.
"""
