"""Applications: pipelines, agents and pages that belong together, ready to run."""
