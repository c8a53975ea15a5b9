"""Content moderation: posts come in, are judged on Spark, routed by their verdict, and looked at by people.

Posts are submitted to an ingest agent (`ingest`), wait in the queue `submissions`, are judged by a classifier
(`classify`), become records below `pending/`, are moved by the router agent (`router`) below `approved/`, `flagged/`
or `needs-review/`, and are decided by people at the review desk (`desk`).
"""
