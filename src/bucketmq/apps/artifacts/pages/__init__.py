"""The page: environments by artifacts, who promoted what when, and buttons for people with the role."""
