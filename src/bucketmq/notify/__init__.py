"""Speaking to other people's addresses: which may be spoken to, and the HTTP client that keeps to it."""
