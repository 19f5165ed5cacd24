"""C-NPG-PD for networks on simulators: Algorithm 1 with KL-bounded natural steps and settings that need no rescaling.

    A_L = A_r + λ⁺·A_g, normalised              λ⁺ = P(λ − η_p (Ĵ_g − b − κ))      the multiplier used for the policy
    θ ← θ + β ω                                 ω natural direction, β bounded in KL                  (line 16, θ)
    λ ← (1 − ξ) P_[0,Λ](λ − η₂ (Ĵ_g − b − κ))   ξ > 0 only if the limit is met with slack             (line 16, λ)

Ĵ_g is always the estimate of the limited quantity itself. λ⁺ predicts the next λ (as in PMD-PD, Liu et al. 2021), since
with λ alone the run would oscillate around the limit for a long time.

If the first policy breaks limits, these limits are relaxed to the values of this policy, and then tightened to the true
limits during the first 20 % of the iterations. Otherwise the policy might give up a rare reward before it has found it.
Certificates are about the true limits.

If there are fewer than 100 iterations, η₂ is larger in proportion, so that λ can still reach its final value. If there
are fewer than 250, each batch gives two or three natural steps: ω is computed again at the new θ, with advantages
weighted by clipped probability ratios. ξ = `release` · room², where room = (Ĵ_g − b − κ)/(|b| − κ), clipped to [0, 1].

Units: u is the root mean square of the advantages of a signal, and v the root mean square of an episode's distance from
its limit. Steps of λ are η₂ (u_r/u_gi) (Ĵ_gi − b_i − κ_i)/v_i, so that the same settings suit rewards and costs of any
scale. docs/research/simulator_log.md lists the ranges that were tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import check_positive
from clearance.learning import dual
from clearance.learning.direction import lagrangian
from clearance.learning.draws import Draws
from clearance.learning.methods.method_base import first_state, kappa_value, setting
from clearance.learning.methods.natural_step import NaturalSteps, Sizes
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State

SEARCH_KL = 0.1  # bound on the mean KL of one step of the search for the safest policy
SMOOTH = 0.15  # weight of a new batch in the running slack
PACED = 100  # the smallest number of iterations for which η₂ is not enlarged
LATEST = 0.15  # length of the period, as a share of the iterations, in which a run may return to the safest policy
KEPT = "first", "safe"  # the entries of `Course` that hold parameters θ


class Course(NamedTuple):
    """The memory of the method, in addition to θ and λ; all entries are arrays.

    short      by how much the first policy broke each limit [I]
    slack      running mean of Ĵ_g − b [I]
    quiet      by how much the noise has been reduced, 0 to 1
    met        number of successive batches, up to the last one, that were safe
    searching  1 during the search for the safest policy, else 0
    began      iteration in which Algorithm 1 started
    first      θ of the first policy
    safe, room θ of the safest policy so far, and its smallest slack relative to the limit
    back       1: continue with the first policy;  −1: the run has returned to the safest policy;  0: neither
    """

    short: Any
    quiet: Any
    searching: Any
    slack: Any
    first: Any
    safe: Any
    room: Any
    began: Any
    back: Any
    met: Any


@dataclass(frozen=True)
class PracticalCNPGPD(NaturalSteps):
    """C-NPG-PD for simulators and networks, with its settings; the default method of `solve` on simulators."""

    eta2: float = setting(0.3, "η₂, the step of λ, in units of the problem; more with K < 100")
    eta_p: float = setting(1.0, "η_p, how far λ⁺ looks ahead, in the same units")
    relax: float = setting(0.2, "share of the iterations over which a limit that is broken at first is approached")
    search: float = setting(0.0, "share of the iterations that may look for the safest policy first; 0: none")
    turn: float = setting(1.0, "share of the iterations after which a run that breaks limits returns to it; 1: never")
    release: float = setting(0.5, "share of λ that an iteration takes back, at most, while limits are met with slack")
    lam_max: float = setting(50.0, "Λ, upper bound of λ in units of the problem")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("lam_max", self.lam_max)
        for name in ("eta2", "eta_p"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name} must be a number ≥ 0, got {getattr(self, name)!r}")
        for name in ("relax", "search", "turn", "release"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must be in [0, 1], got {getattr(self, name)!r}")

    @property
    def eta2_paced(self) -> float:
        """The step size η₂ in use: the setting `eta2`, multiplied by 100/K if K is below 100."""
        return self.eta2 * max(1.0, PACED / self._K)

    def relaxed_at(self, k: int) -> float:
        """Return the share of the first policy's violation by which the limits are relaxed in iteration k.

        The share falls linearly from 1 to 0 during the first part of the run; its length is the setting `relax`.
        """
        return max(1 - k / (self.relax * self._K), 0.0) if self.relax else 0.0

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        zero, off = np.zeros(I), np.zeros(())
        course = Course(zero, off, off + 1, zero, np.array(theta), np.array(theta), off - np.inf, off, off, off)
        return first_state(theta, I, memory)._replace(method_memory=course)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Run one iteration of the search for the safest policy or, once this search has ended, of Algorithm 1."""
        assert self.N is not None
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        b = sampler.statement.b
        slack = J_hat[1:] - b
        course = self._observe(state, slack, memory, b)
        if course.searching and not self._found(course, state.k):
            theta, size = self._safer(draws, slack, state, memory, b, SEARCH_KL)
            lam = state.lam
        else:
            course = self._begin(course, state)
            theta, lam, size = self._ascend(draws, slack, state, memory, course, lam_max, b)
            if course.back < 0 and np.any(course.slack < 0) and np.any(slack < self.margin(state.k, memory)):
                theta, size = self._safer(draws, slack, state, memory, b, self.kl_at(state.k))
            theta, course = self._redirect(theta, course, state)
        before, after = state.sampler_memory, memory
        course = course._replace(**{name: sampler.carry(getattr(course, name), before, after) for name in KEPT})
        return State(theta, lam, state.k + 1, memory, course), Info(J_hat, size, steps)

    def _ascend(
        self, draws: Draws, slack: Array, state: State, memory: Sizes, course: Course, lam_max: float, b: Array
    ) -> tuple[Array, Array, float]:
        """Return θ and λ after one iteration of Algorithm 1, and the norm ‖ω‖ of the direction along which θ moved.

        `slack` [I] is Ĵ_g − b of this batch for the limits b, `memory` are the sampler's statistics, and `course` is
        the method's memory.
        """
        scale, most = pace(memory), np.minimum(self.lam_max * units(memory), lam_max)
        kappa = self.margin(state.k, memory) - self.relaxed_at(state.k - int(course.began)) * course.short
        ahead = np.clip(state.lam - self.eta_p * scale * (slack - kappa), 0.0, most)
        theta, size = self.moved(draws, lagrangian(draws.A, ahead), state, float(course.quiet))
        lam = np.minimum(dual.step(state.lam, slack, self.eta2_paced * scale, kappa, np.inf), most)
        return theta, lam * (1 - self.released(np.minimum(slack, course.slack), kappa, b)), size

    def released(self, slack: Array, kappa: Array, b: Array) -> Array:
        """Return the share of λ [I] to remove: `release` · ((slack − κ)/(|b| − κ))², the ratio clipped to [0, 1].

        λ grows while a limit is broken. Once the limit is met, λ would fall only by η₂ per iteration, and a policy that
        has become too conservative would learn nothing new until then. Near the limit the share is close to 0.
        """
        room = (slack - kappa) / np.maximum(np.abs(b) - kappa, 1e-12)
        return np.where(np.abs(b) > kappa, self.release * np.clip(room, 0.0, 1.0) ** 2, 0.0)

    def _observe(self, state: State, slack: Array, memory: Sizes, b: Array) -> Course:
        """Return the method's memory (`Course`), updated after a batch with the slacks `slack` = Ĵ_g − b [I].

        These entries change: the first violation (in iteration 0), the running mean of the slack, the safest policy so
        far, the reduction of the noise, and the number of successive safe batches. `memory` holds the statistics of the
        sampler, and `b` the limits.
        """
        course: Course = state.method_memory
        if state.k == 0:
            course = course._replace(short=np.maximum(-slack, 0.0), slack=slack)
        course = course._replace(slack=course.slack + SMOOTH * (slack - course.slack))
        room = np.min(slack / np.where(b != 0, np.abs(b), 1.0), initial=np.inf)
        if room > course.room:
            course = course._replace(safe=state.theta, room=np.asarray(room))
        quiet = self.quieter(float(course.quiet), bool(np.all(slack >= 0)), state.k)
        met = (course.met + 1) * np.all(slack >= self._aim(memory, b))
        return course._replace(quiet=np.asarray(quiet), met=met)

    def _aim(self, memory: Sizes, b: Array) -> Array:
        """Return the slack [I] at which a batch counts as safe: 2κ or, if smaller, the middle between κ and |b|.

        κ is the margin at the end of the run, and `memory` holds the sampler's statistics. If |b| ≤ κ, the slack is κ.
        """
        kappa = self.margin(self._K, memory)
        return np.where(np.abs(b) > kappa, np.minimum(2 * kappa, 0.5 * (kappa + np.abs(b))), kappa)

    def _found(self, course: Course, k: int) -> bool:
        """Return whether the search for a safe policy ends in iteration k; `course` is the method's memory.

        It ends if the first batch was safe, if two batches in a row were safe, or if the iterations reserved for the
        search are used up.
        """
        return course.met >= min(k + 1, 2) or k >= self.search * self._K

    def _safer(
        self, draws: Draws, slack: Array, state: State, memory: Sizes, b: Array, kl: float
    ) -> tuple[Array, float]:
        """Return θ after a natural step that raises the J_gi that have too little slack, and the norm ‖ω‖.

        ω is the direction of the step, and `kl` its KL bound. The weight of each J_gi is the slack that it lacks,
        measured in its own units.
        """
        lack = np.maximum(self._aim(memory, b) - slack, 0.0) / np.maximum(np.asarray(memory.miss, float), 1e-12)
        A = draws.A[:, 1:] @ (lack / np.maximum(np.asarray(memory.size, float)[1:], 1e-12))
        return self.moved(draws, A, state, 0.0, kl)

    def _begin(self, course: Course, state: State) -> Course:
        """Return `course`, the method's memory, updated at the end of the search for a safe policy.

        Algorithm 1 begins then. If there was a search that found no safe policy, the limits are not relaxed. If there
        was one that found a safe policy, Algorithm 1 starts from the first policy.
        """
        if not course.searching:
            return course
        short = course.short if course.met or not self.search else np.zeros_like(course.short)
        back = np.asarray(1.0 if self.search and course.met and state.k else 0.0)
        off = np.zeros(())
        return course._replace(searching=off, began=off + state.k, short=short, back=back)

    def _redirect(self, theta: Array, course: Course, state: State) -> tuple[Array, Course]:
        """Return (the θ with which the run continues, the updated memory `course` of the method).

        θ is that of the first policy directly after a search that found a safe policy. It is that of the safest policy
        so far if the run still breaks limits near the end (the setting `turn`). Otherwise it is the given `theta`.
        """
        if course.back == 1:
            return course.first, course._replace(back=np.zeros(()))
        late = self.turn < 1 and self.turn <= state.k / self._K <= self.turn + LATEST and course.back == 0
        if late and course.room > 0 and np.any(course.slack < -np.asarray(kappa_value(self.kappa))):
            return course.safe, course._replace(back=np.full((), -1.0))
        return theta, course


def units(memory: Sizes) -> Array:
    """Return u_r/u_gi [I], the multiplier at which the reward and constraint i have equal weight.

    u is the root mean square of the advantages of a signal, from the sampler's `memory`.
    """
    size = np.asarray(memory.size, float)
    return size[0] / np.maximum(size[1:], 1e-12)


def pace(memory: Sizes) -> Array:
    """Return u_r/(u_gi v_i) [I], the factor that converts a unit of slack into a change of λ_i, for η₂ = 1.

    u is the root mean square of the advantages of a signal, and v is the root mean square of an episode's distance from
    its limit; both come from the sampler's `memory`.
    """
    return units(memory) / np.maximum(np.asarray(memory.miss, float), 1e-12)
