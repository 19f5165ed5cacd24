"""The differences between the kinds of problems: one adapter for each kind, all with the same protocol."""
