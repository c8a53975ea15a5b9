"""Everything a user can ask: the `*Api` classes own each verb's signature, docstring and procedure.

The facades bind these verbs to an engine (`bucketmq.binding`) and add nothing. A program that brings procedures of its
own uses them with `yield from` and has a bucket carry the whole through: `bucket.run(procedure)`.
"""
