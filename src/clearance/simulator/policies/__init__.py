"""Network policies: networks, action distributions, products with the Jacobian of a network, and mixtures."""
