"""What differs between the kinds of problems: one adapter for each behind one protocol."""
