"""One file per algorithm: a frozen dataclass of its hyper-parameters with `init` and `step`."""

from clearance.methods.cnpgpd import CNPGPD, Info, State

__all__ = ["CNPGPD", "Info", "State"]
