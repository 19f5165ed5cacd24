"""Mixtures of a user's rule (a function from observation to action) and networks.

At the beginning of every episode, the rule or one of the networks is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import certificate_array
from clearance.certificates.rule_watch import WatchedRule
from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import save_npz
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.core.network_form import ARRAYS, RULE_NAME, explain_missing_rule, most_numbers
from clearance.core.policy_tables import SUFFIXES
from clearance.core.validation import read_distributions, read_numbers
from clearance.simulator.policies.network_mixture import NetworkActor, NetworkMixture


@dataclass(eq=False, repr=False)
class RuleMixture:
    """A mixture of a rule `observation -> action`, which has probability `share`, and a mixture of networks.

    It can be used as a rule: `reset()` draws the rule or a network for one episode, and a call with an observation
    returns the action. With share 1, only the rule is used. A file stores the name of the rule, not its code. So after
    loading, `rule` is None until `with_rule` sets it.
    """

    networks: NetworkMixture
    share: float
    rule: Callable[[Any], Any] | None
    name: str
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    actor: NetworkActor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"the rule's share must be in (0, 1], got {self.share!r}")
        self.watched = None if self.rule is None else WatchedRule(self.rule)

    def __repr__(self) -> str:
        return f"<RuleMixture: the rule {self.name} with probability {self.share:.4g}, else {self.networks!r}>"

    @property
    def weights(self) -> Array:
        """The probabilities [number of networks + 1]: first those of the networks, then that of the rule."""
        return np.append((1 - self.share) * self.networks.weights, self.share)

    @property
    def M(self) -> int:
        """The number of policies with a positive probability."""
        return int(np.count_nonzero(self.weights))

    def with_rule(self, rule: Callable[[Any], Any]) -> RuleMixture:
        """Return the same mixture with `rule` as its rule; needed after loading, since a file does not store code."""
        return replace(self, rule=rule)

    def known_rule(self) -> Callable[[Any], Any]:
        """Return the rule; raise InputError if the mixture was loaded from a file and the rule was not set."""
        if self.rule is None:
            raise InputError(explain_missing_rule(self.name, self.share))
        return self.rule

    def reset(self) -> None:
        """Begin an episode: draw the rule or one of the networks."""
        self.known_rule()
        assert self.watched is not None
        self.actor = None if self.rng.random() < self.share else self.networks.reset(self.rng)
        if self.actor is None:
            self.watched.begin()

    def __call__(self, obs: Any) -> Any:
        """Return the action at one observation. Action and observation are in the environment's own form."""
        self.known_rule()
        assert self.watched is not None
        return self.watched.choose(obs) if self.actor is None else self.actor.act(obs)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a policy file by name: those of the networks, all weights, and the name of the rule."""
        return self.networks.arrays() | {"weights": self.weights, RULE_NAME: np.array(self.name)}

    def save(self, path: AnyPath, certificate: Certificate | None = None) -> None:
        """Write `policy.npz`, with the certificate of this policy if given.

        `clearance.load_policy(path, rule=rule)` reads the file.
        """
        save_npz(path, self.arrays() | certificate_array(certificate))


def describe_rule(mixture: RuleMixture) -> str:
    """Return a sentence about the rule and its probability, for the scope of a certificate."""
    if mixture.share == 1:
        return f"the rule {mixture.name}, called as given"
    rest = "the others are networks, whose actions are sampled"
    return f"with probability {mixture.share:.4g} it is the rule {mixture.name}, called as given; {rest}"


def rule_name(rule: Any) -> str:
    """Return the qualified name of a rule, with its module; an object without a name gets the name of its class."""
    named = rule if hasattr(rule, "__qualname__") else type(rule)
    return f"{named.__module__}.{named.__qualname__}"


def load_mixture(path: AnyPath) -> NetworkMixture | RuleMixture:
    """Load a policy file: a `RuleMixture` if the file names a rule, else a `NetworkMixture`."""
    if (suffix := Path(str(path)).suffix.lower()) in SUFFIXES:
        raise InputError(f"{path}: {suffix} policies are for finite models; those of simulators are .npz files")
    found = read_arrays(path, (*ARRAYS, RULE_NAME), most_numbers)
    if RULE_NAME not in found:
        return NetworkMixture.load(path)
    try:
        weights = read_distributions("weights", read_numbers("weights", found.get("weights"), ndim=1))
        if not 0 < weights[-1] <= 1 or len(weights) < 2:
            raise InputError("weights must hold those of networks, and last that of the rule")
        networks = weights[:-1] if weights[:-1].any() else np.eye(len(weights) - 1)[0]
        mixture = NetworkMixture.restored(found | {"weights": networks / networks.sum()})
        return RuleMixture(mixture, float(weights[-1] / weights.sum()), None, str(found[RULE_NAME])[:200])
    except InputError as e:
        raise InputError(f"{path}: {e}") from None
