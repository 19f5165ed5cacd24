"""Studies of many runs: sweep, compare, frontier, reproduce."""
