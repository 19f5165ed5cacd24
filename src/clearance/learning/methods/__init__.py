"""The learning algorithms, one file each: a frozen dataclass of settings with the methods `init` and `step`."""
