"""The soak: real processes on a folder and on SeaweedFS for a long time, killed, frozen and cut off, then audited.

`make soak` runs it for an hour; `make soak ARGS="--minutes 3"` for less, with as many messages and changes a second.
Progress goes to stderr, and the exit code is 0 if every promise held. Players note what they do in ledgers (`player`).
The director disturbs them and keeps the queues trimmed (`site`), samples memory, file handles, directories and objects
(`samples`), and holds the ledgers against each other at the end (`audit`).
"""
