"""solve, certify and resume: one pipeline, and the run folder that it writes."""
