"""(key, θ, N) → Draws(weight, score, A), Ĵ and the environment steps they cost: one file per world."""

from clearance.sample.draws import Draws
from clearance.sample.exact import Exact
from clearance.sample.table import Table

Sampler = Exact | Table

__all__ = ["Draws", "Exact", "Sampler", "Table"]
