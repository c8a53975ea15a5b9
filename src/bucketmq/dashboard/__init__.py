"""The dashboard: one page for whoever runs a bucket, with or without an application, which may add tabs of its own.

`app` answers requests, `survey` knows the queues, and each tab has a module: `overview`, `queues`, `rules`, `dead`. An
application's tab is a value (`tab`). The page itself is in `static/`. Who may do what is `bucketmq.server.gate`.
"""
