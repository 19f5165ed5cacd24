"""The table of the built-in method classes, by the names that the command line, sweeps and run folders use."""

from __future__ import annotations

from typing import Any, get_args

from clearance.core.errors import InputError
from clearance.exact.model_based import ModelBased
from clearance.exact.tabular_exploration import TabularExploration
from clearance.learning.direction import Direction
from clearance.learning.methods.cnpgpd import CNPGPD
from clearance.learning.methods.crpo import CRPO
from clearance.learning.methods.method_base import Method
from clearance.learning.methods.npgpd import NPGPD
from clearance.learning.methods.opgpd import OPGPD
from clearance.learning.methods.pdanpg import PDANPG
from clearance.learning.methods.pdnac import PDNAC
from clearance.learning.methods.pmdpd import PMDPD
from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
from clearance.learning.methods.practical_crpo import PracticalCRPO
from clearance.learning.methods.regularised_cnpgpd import RegularisedCNPGPD
from clearance.learning.methods.rpgpd import RPGPD
from clearance.learning.natural_direction import Natural
from clearance.runs import plain_data

METHODS: dict[str, Any] = {
    "regularised": RegularisedCNPGPD,
    "cnpgpd": CNPGPD,
    "npgpd": NPGPD,
    "pdanpg": PDANPG,
    "crpo": CRPO,
    "pmdpd": PMDPD,
    "pdnac": PDNAC,
    "rpgpd": RPGPD,
    "opgpd": OPGPD,
    "modelbased": ModelBased,
    "practical-cnpgpd": PracticalCNPGPD,
    "practical-crpo": PracticalCRPO,
}
PARTS = (*get_args(Direction), Natural)


def restore_method(data: dict[str, Any], given: Any = None) -> Method:
    """Return the method that `data` from a run folder describes.

    given  the user's own method, as a class or instance, if the run used one; a run folder does not store code
    """
    if given is not None:
        if isinstance(given, type):
            given = plain_data.restore(data, (given, *PARTS))
        if plain_data.as_json(plain_data.describe(given)) != data:
            raise InputError(f"method {type(given).__name__} is not the one of the run, or has other settings")
        return given
    kinds = (*METHODS.values(), TabularExploration)  # TabularExploration: the method of `cl.tabular` problems
    if data["name"] not in {kind.__name__ for kind in kinds}:
        raise InputError(f"settings.json: {data['name']!r} is no method of clearance's: give its class (method=…)")
    return plain_data.restore(data, (*kinds, *PARTS))
