"""Artifacts: what a build made is published once, verified wherever it goes, and promoted from environment to
environment without ever being built again.

`manifest` and `keys` say what is true and are pure, `publish`, `verify` and `environments` are procedures on a bucket,
`deploy` is the agent on the machines where artifacts run.
"""
