"""How good and how fast the application `logs` is."""
