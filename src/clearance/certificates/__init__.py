"""The certificate, the betting test behind statistical certificates, and the search for the best certified policy."""
