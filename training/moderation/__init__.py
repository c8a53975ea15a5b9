"""Trains and measures the embedded model. Needs the extra `training`; nothing here is needed to classify."""
