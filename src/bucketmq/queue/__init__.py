"""What is true: messages, heads, commands and the pure function that applies them. No clock, no chance, no I/O."""
