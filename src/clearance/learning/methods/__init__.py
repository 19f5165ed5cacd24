"""The learning algorithms, one file each: a frozen dataclass of hyper-parameters with `init` and `step`."""
