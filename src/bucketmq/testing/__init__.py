"""For tests: the contract that every store keeps, and real servers on this machine to run it against.

Public, so that whoever writes a store or an application can use the same suite. Nothing in the library imports this.
"""
