"""One file per algorithm: a frozen dataclass of its hyper-parameters with `init` and `step`."""

from clearance.methods.cnpgpd import CNPGPD
from clearance.methods.crpo import CRPO
from clearance.methods.feasibility import Feasibility
from clearance.methods.method import Info, State
from clearance.methods.modelbased import ModelBased
from clearance.methods.npgpd import NPGPD
from clearance.methods.optimistic import OPGPD
from clearance.methods.pdanpg import PDANPG
from clearance.methods.pdnac import PDNAC
from clearance.methods.pmdpd import PMDPD
from clearance.methods.regularised import RegularisedCNPGPD
from clearance.methods.rpgpd import RPGPD

__all__ = [
    "CNPGPD",
    "CRPO",
    "NPGPD",
    "OPGPD",
    "PDANPG",
    "PDNAC",
    "PMDPD",
    "RPGPD",
    "Feasibility",
    "Info",
    "Method",
    "ModelBased",
    "RegularisedCNPGPD",
    "State",
]

Method = RegularisedCNPGPD | CNPGPD | NPGPD | PDANPG | CRPO | PMDPD | PDNAC | RPGPD | OPGPD | ModelBased
