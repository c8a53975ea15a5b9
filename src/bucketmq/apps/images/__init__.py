"""Images: what lies below raw/ gets thumbnails, a verdict, its text, a description, and a row in one table."""
