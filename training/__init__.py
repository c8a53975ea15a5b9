"""How the coefficients in the package were made. Not part of the wheel."""
