"""Studies made of many runs: sweep, compare, frontier, reproduce."""
