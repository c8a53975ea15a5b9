"""The page of research: studies, how far they are, their figures, what failed, and the reports."""
