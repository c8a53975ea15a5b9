"""Reading a queue as a streaming or batch DataFrame: what a batch reads, cut into tasks, lines to Arrow columns."""
