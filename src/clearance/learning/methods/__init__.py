"""One file per algorithm: a frozen dataclass of its hyper-parameters with `init` and `step`."""
