"""The review desk: what moderation adds to the dashboard, so that people see how posts flow and decide about them.

`tabs` answers requests, `index` knows the waiting posts, `flow` and `figures` what is going on. The scripts are in
`static/`. What a decision means is `bucketmq.apps.moderation.posts`; the page and the login are `bucketmq.dashboard`'s.
"""
