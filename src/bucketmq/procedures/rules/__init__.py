"""Rules: stored, chosen by, examined, delivered, settled; fan-in, replay, audit."""
