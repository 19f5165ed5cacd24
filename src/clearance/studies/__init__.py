"""Studies that consist of many runs: sweep, compare, frontier, reproduce."""
