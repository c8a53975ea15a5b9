"""Users' objects: put, move, delete, with a note before and an event after; sweeps that find the rest."""
