"""The pipeline of solve, certify and resume, and the run folder that it writes and reads."""
