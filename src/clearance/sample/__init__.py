"""(key, world, θ, N) → Draws(weight, score, A), Ĵ, world and the environment steps they cost: one file per world.

`world` is what a sampler carries from one batch to the next: a critic's tables, or nothing. A
further argument `extra` [S, A] is one more signal, behind the others in A and not in Ĵ: an entropy, a divergence.
"""

from clearance.sample.critic import Critic
from clearance.sample.draws import Draws
from clearance.sample.exact import Exact
from clearance.sample.generative import Generative
from clearance.sample.network import NetworkCritic
from clearance.sample.returns import Acted, Returns
from clearance.sample.table import Table
from clearance.sample.trajectory import Trajectory

Sampler = Exact | Table | Critic | Trajectory | NetworkCritic | Generative

__all__ = [
    "Acted",
    "Critic",
    "Draws",
    "Exact",
    "Generative",
    "NetworkCritic",
    "Returns",
    "Sampler",
    "Table",
    "Trajectory",
]
