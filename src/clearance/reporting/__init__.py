"""Figures for files, recordings of episodes, and the HTML report of a run."""
