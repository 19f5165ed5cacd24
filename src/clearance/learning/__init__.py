"""Algorithm 1 and its relatives: direction, dual step, loop and trace, in terms of the protocols alone."""
