"""Truth about finite models: optimum, enclosures, exact certificates, infeasibility and theory."""
