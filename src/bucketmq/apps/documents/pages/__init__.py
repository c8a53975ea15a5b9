"""The tab of documents: search, hits with their places, and the graph around a name."""
