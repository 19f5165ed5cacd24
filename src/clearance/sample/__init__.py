"""(key, world, θ, N) → Draws(weight, score, A), Ĵ, world and the environment steps they cost: one file per world.

`world` is what a sampler carries from one batch to the next: a critic's tables, or nothing.
"""

from clearance.sample.critic import Critic
from clearance.sample.draws import Draws
from clearance.sample.exact import Exact
from clearance.sample.returns import Acted, Returns
from clearance.sample.table import Table

Sampler = Exact | Table | Critic

__all__ = ["Acted", "Critic", "Draws", "Exact", "Returns", "Sampler", "Table"]
