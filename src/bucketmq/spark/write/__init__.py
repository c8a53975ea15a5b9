"""Writing DataFrames: to queues, objects, dead letters and tables."""
