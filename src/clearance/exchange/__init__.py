"""Models in and out: tables, matrices, functions, PRISM, DRN, UMB; policies out."""
