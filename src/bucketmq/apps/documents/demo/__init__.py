"""The demo of documents: made-up documents of a made-up company, indexed, searched, changed, deleted."""
