"""Problems given as simulators: JAX environments and Gymnasium, with policies of any parametrisation."""
