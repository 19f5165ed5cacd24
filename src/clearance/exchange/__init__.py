"""Read and write models as tables, matrices, functions, PRISM, DRN and UMB files, and write policies."""
