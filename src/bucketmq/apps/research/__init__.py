"""Studies: a plan becomes trials, workers run them, and a report is written in which every number has its evidence."""
