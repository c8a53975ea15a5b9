"""Running queries: a pipeline as a query, its progress and failure, draining, checkpoints."""
