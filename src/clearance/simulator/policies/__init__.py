"""Network policies: networks, action heads, products with their Jacobian, and mixtures."""
