"""Finite models: the CMDP, its evaluation, softmax policies, mixtures and samplers."""
