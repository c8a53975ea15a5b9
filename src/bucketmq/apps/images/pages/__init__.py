"""The page of images: a tab of the dashboard with a contact sheet."""
