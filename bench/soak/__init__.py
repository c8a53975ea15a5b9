"""The soak: real processes on a folder and on SeaweedFS for a long time, killed, frozen and cut off, then audited.

`make soak` and `python -m bench.soak --minutes 60 --messages 1000000 --changes 100000` run it; the exit code is 0 if
every promise held. Players note what they do in ledgers (`player`). The director disturbs them and keeps the queues
trimmed (`site`), samples memory, file handles, directories and objects (`samples`), and holds the ledgers against each
other at the end (`audit`).
"""
