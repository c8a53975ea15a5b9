"""What queries leave behind: readers, orphans, lost checkpoints."""
