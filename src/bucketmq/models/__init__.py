"""Models and clients that several applications share: sentence encoders, Claude, pictures and the text in them."""
