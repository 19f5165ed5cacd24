"""Adapters between the pipeline and the kinds of problems: one for each kind, all with the same protocol (`World`)."""
