"""One file per algorithm: a frozen dataclass of its hyper-parameters with `init` and `step`."""

from clearance.methods.cnpgpd import CNPGPD, Info, State
from clearance.methods.feasibility import Feasibility
from clearance.methods.regularised import RegularisedCNPGPD

__all__ = ["CNPGPD", "Feasibility", "Info", "RegularisedCNPGPD", "State"]

Method = CNPGPD | RegularisedCNPGPD
