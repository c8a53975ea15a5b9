"""The demo: everything on this machine, a few hundred made-up posts, and a router that is killed on the way."""
