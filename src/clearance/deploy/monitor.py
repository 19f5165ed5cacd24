"""A monitor of a policy in use: it records the costs of episodes, and raises an alarm if a certified limit is broken.

monitor = clearance.Monitor(policy, policy.certificate, state="monitor.json")
monitor.record(cost)                                    # once per episode
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest, load_json, save_json
from clearance.core.errors import InputError
from clearance.core.text import visible
from clearance.deploy.change_test import BETS, LARGEST, Scale, advance, evidence

SCHEMA = "clearance/monitor/1"
log = logging.getLogger(__name__)


class LimitAlarm(RuntimeError):
    """An error that `Monitor` raises when the observed costs show that a certified limit is broken in use."""


class Monitor:
    """A monitor that tests, episode by episode, whether the certified limits hold where the policy is used.

    policy       the policy that acts; None if other code calls it
    certificate  the certificate of the policy; costs are recorded with the sign that its constraints have
    delta        a policy that meets every limit raises an alarm with probability at most δ, over all time
    best         for each limit the best value that an episode can have: the smallest cost (default: 0), or the
                 largest utility (no default); a better value is an error
    gamma        the discount factor of J, for `step`;  horizon: the number of steps of an episode that J counts
    fallback     a rule, observation → action, that acts after an alarm; without it, `LimitAlarm` is raised
    state        a JSON file, written atomically after every episode and read at the start, to continue after a restart

    Theorem (`clearance.deploy.change_test`). Let the expected cost of every episode, given all episodes before it, meet
    its limit. Then the probability that an alarm is ever raised is at most δ: each of the I limits is tested at level
    δ/I. A change is noticed after a delay that grows with the logarithm of the number of good episodes before it.
    """

    def __init__(
        self,
        policy: Any,
        certificate: Certificate | None,
        *,
        delta: float = 0.01,
        best: Any = None,
        gamma: float | None = None,
        horizon: int | None = None,
        fallback: Callable[[Any], Any] | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        b, self.names, self.costs = _statement(certificate)
        if not (isinstance(delta, float) and 0 < delta < 1):
            raise InputError(f"delta must be in (0, 1), got {delta!r}")
        if gamma is not None and not 0 < gamma <= 1:
            raise InputError(f"gamma must be in (0, 1], got {gamma!r}")
        self.policy, self.certificate, self.delta, self.fallback = policy, certificate, delta, fallback
        self.gamma, self.horizon, self.state = gamma, horizon, state
        self.sign = np.where(self.costs, 1.0, -1.0)
        self.scales = [Scale(-x, low) for x, low in zip(b, self._least(best, b), strict=True)]
        self.episodes, self.alarm = 0, ""
        self.sums, self.capital = np.zeros(len(b)), np.zeros((len(b), len(BETS)))
        self._open: Array | None = None
        self._steps = 0
        if state is not None and os.path.exists(state):
            self._restore()

    # ------------------------------------------------------------------------------------ acting

    def reset(self) -> None:
        """Begin an episode of the policy."""
        if self.policy is not None and hasattr(self.policy, "reset"):
            self.policy.reset()

    def act(self, obs: Any) -> Any:
        """Return the policy's action at an observation; after an alarm, return the action of the fallback."""
        if not self.alarm:
            return self.policy.act(obs)
        return self._rule()(obs)

    # ------------------------------------------------------------------------------------ counting

    def record(self, costs: Any) -> None:
        """Record one finished episode.

        `costs` holds the sums over the episode, one for each limit, in the order of the limits or as a dict by name.
        """
        if self.alarm:
            self._rule()
            return
        values = self._values(costs)
        x = self.sign * values
        for name, scale, value, cost in zip(self.names, self.scales, values, x, strict=True):
            if cost < scale.best:
                raise InputError(f"{name}: {value:g} is better than the best that was declared: give `best`")
        self.episodes += 1
        self.sums += values
        z = np.array([scale.gain(cost) for scale, cost in zip(self.scales, x, strict=True)])
        self.capital = advance(self.capital, z, self.episodes)
        self._judge()

    def step(self, costs: Any) -> None:
        """Record one step of the current episode.

        `costs` holds the undiscounted costs of the step, one for each limit, in the order of the limits or as a dict by
        name. They are added up with the discount γ. Steps after the horizon do not count.
        """
        if self.gamma is None:
            raise InputError("give gamma, the discount of J (1.0 for plain sums), to count single steps")
        values = self._values(costs)
        self._open = np.zeros(len(values)) if self._open is None else self._open
        if self.horizon is None or self._steps < self.horizon:
            self._open = self._open + self.gamma**self._steps * values
        self._steps += 1

    def end_episode(self) -> None:
        """End the current episode, and record the sums of the costs that `step` was given.

        An episode that is cut off by a restart of the process is not recorded.
        """
        if self._open is None:
            raise InputError("no step of this episode was counted: call step(costs) after every step")
        costs, self._open, self._steps = self._open, None, 0
        self.record(costs)

    @property
    def evidence(self) -> Array:
        """The evidence against each limit [I]: the capital of a gambler who began with 1 and bets against the limit.

        An alarm is raised when it reaches I/δ.
        """
        pairs = zip(self.capital, self.scales, strict=True)
        return np.array([evidence(S, self.episodes, scale.rounding) for S, scale in pairs])

    @property
    def means(self) -> Array:
        """The mean of each limited sum [I] over the episodes so far."""
        return self.sums / max(self.episodes, 1)

    def __str__(self) -> str:
        means = enumerate(zip(self.names, self.means, strict=True))
        limits = [f"{name} {mean:.6g} on average, limit {self._shown(i)}" for i, (name, mean) in means]
        most = float(self.evidence.max()) / self.threshold
        return f"episode {self.episodes}: {', '.join(limits)}; evidence against the limits {most:.2g} of an alarm's"

    @property
    def threshold(self) -> float:
        return len(self.names) / self.delta

    # ------------------------------------------------------------------------------------ inside

    def _judge(self) -> None:
        found = self.evidence
        i = int(np.argmax(found))
        if found[i] >= self.threshold:
            text = f"{self.names[i]} does not keep its limit {self._shown(i)} in use: {self.means[i]:.6g} on average"
            self.alarm = f"{text} of {self.episodes} episodes, the last ones worse (δ = {self.delta:g})"
        self._save()
        if self.alarm:
            log.error("alarm: %s", self.alarm)
            self._rule()
        elif self.episodes & (self.episodes - 1) == 0:
            log.info("%s", self)

    def _rule(self) -> Callable[[Any], Any]:
        if self.fallback is None:
            raise LimitAlarm(self.alarm)
        return self.fallback

    def _shown(self, i: int) -> str:
        return f"{self.sign[i] * self.scales[i].limit + 0.0:g}"

    def _values(self, costs: Any) -> Array:
        """Return `costs` as an array [I]; they are one number, several in order, or a dict by name."""
        if isinstance(costs, Mapping):
            unknown = set(costs) ^ set(self.names)
            if unknown:
                raise InputError(f"costs must name {', '.join(self.names)}; see {visible(str(min(unknown, key=str)))}")
            costs = [costs[name] for name in self.names]
        return _numbers("costs", costs, len(self.names))

    def _least(self, best: Any, b: list[float]) -> Array:
        if best is None:
            if not all(self.costs):
                name = self.names[self.costs.index(False)]
                raise InputError(f"best must say how large {name} can be in an episode: it is no cost")
            best = np.zeros(len(b))
        least = self.sign * _numbers("best", best, len(b))
        for name, low, limit in zip(self.names, least, b, strict=True):
            if low > -limit:
                raise InputError(f"best of {name} breaks its limit: no episode could keep it")
        return least

    def _save(self) -> None:
        if self.state is not None:
            rows = np.minimum(self.capital, LARGEST).tolist()
            data = {"episodes": self.episodes, "sums": self.sums.tolist(), "capital": rows, "alarm": self.alarm}
            save_json(self.state, {"schema": SCHEMA, "about": self._about, **data})

    @property
    def _about(self) -> str:
        """A digest of limits, names, best values and δ.

        A state file that was written with another digest is refused.
        """
        return digest([[list(s) for s in self.scales], list(self.names), list(self.costs), self.delta, BETS.tolist()])

    def _restore(self) -> None:
        assert self.state is not None
        data = load_json(self.state, SCHEMA)
        if data.get("about") != self._about:
            raise InputError(f"{self.state}: belongs to another statement, best or delta: choose another file")
        try:
            episodes, alarm = data["episodes"], data["alarm"]
            sums = _numbers("sums", data["sums"], len(self.names))
            capital = _numbers("capital", np.ravel(data["capital"]), self.capital.size).reshape(self.capital.shape)
        except (KeyError, ValueError, TypeError) as e:
            raise InputError(f"{self.state}: was altered ({type(e).__name__}: {e})") from None
        whole = isinstance(episodes, int) and not isinstance(episodes, bool) and episodes >= 1
        if not (whole and isinstance(alarm, str) and np.all(capital >= 0)):
            raise InputError(f"{self.state}: was altered: episodes, alarm or capital is not what a monitor writes")
        self.episodes, self.alarm, self.sums, self.capital = episodes, visible(alarm), sums, capital
        log.info("continued: %s", self)


def _statement(certificate: Certificate | None) -> tuple[list[float], list[str], list[bool]]:
    """Return three lists from a certificate: the limits b, the names of the constraints, and whether each is a cost.

    Raise InputError unless the certificate is CERTIFIED and has limits.
    """
    if not isinstance(certificate, Certificate):
        raise InputError("certificate must be the Certificate of the policy, got none: give policy.certificate")
    if certificate.verdict != "CERTIFIED" or not certificate.b:
        raise InputError(f"the certificate states no limit that holds (its verdict is {certificate.verdict})")
    names = certificate.names or [f"limit {i}" for i in range(len(certificate.b))]
    return list(certificate.b), [visible(n) for n in names], certificate.costs or [False] * len(certificate.b)


def _numbers(name: str, x: Any, n: int) -> Array:
    try:
        found = np.atleast_1d(np.asarray(x, float))
    except (TypeError, ValueError):
        raise InputError(f"{name} must be {n} numbers, got {x!r:.60}") from None
    if found.shape != (n,) or not all(map(math.isfinite, found)):
        raise InputError(f"{name} must be {n} finite numbers, got {x!r:.60}")
    return found
