"""The review desk and dashboard: a page where people see how posts flow and decide about those that wait for them.

`app` answers requests, `session` says who asks, `index` knows the waiting posts, `flow` and `figures` what is going on.
The page itself is in `static/`. What a decision means is `bucketmq.apps.moderation.posts`.
"""
