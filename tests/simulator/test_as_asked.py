"""What is certified is what was asked, what acts is what was certified, and what cannot be asked is refused at once."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from probes import Line

import clearance as cl
from clearance.core.errors import EnvironmentFault, InputError
from clearance.runs.worlds.dispatch import world_of
from clearance.runs.worlds.world import Task
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.actor_critic import Practical
from clearance.zoo import simulated


def at_first(problem: Any, design: Any) -> NetworkMixture:
    """A policy that has learned nothing."""
    policy = design.fitted(problem.obs_shape, problem.action)
    return NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))


def one(*_: Any) -> float:
    return 1.0


class Still(gym.Env[Any, Any]):
    """Nothing changes; an action costs what it says."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, action_space: Any = None, cost: Any = lambda a: 0.0) -> None:
        self.action_space, self.cost = gym.spaces.Discrete(3, start=-1) if action_space is None else action_space, cost

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action) or self.action_space.contains(np.int64(action))
        return np.zeros(1, np.float32), float(np.sum(action)), False, False, {"cost": self.cost(action)}


# ------------------------------------------------------------------------------------ J is the J of the statement


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_horizon_beyond_the_time_limit_lifts_it_in_vector_environments_too(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 2, autoreset_mode=mode)  # it has 200 steps
    asked: dict[str, Any] = {"limits": 250.0, "horizon": 300, "bounds": (0.0, 1.0)}
    problem = cl.gymnasium(env, constraints=one, **asked)
    steps = problem.walk(lambda obs, t: np.zeros((2, 1)), [1, 2], 310)
    assert np.flatnonzero(steps.truncated[:, 0])[0] == 299
    c = cl.certify(problem, at_first(problem, cl.gaussian(hidden=())), budget=3e4)
    assert c.verdict == "VIOLATED" and c.J_g == [-300.0]


def test_a_cut_before_the_horizon_is_an_error() -> None:
    problem = cl.gymnasium(lambda: Line(length=4, cut=True), limits=1.0, horizon=100, num_envs=2)
    with pytest.raises(EnvironmentFault, match="cut off after 4 steps, but J is over 100 steps: give horizon=4"):
        problem.walk(lambda obs, t: np.zeros((2, 1)), [1, 2], 10)
    seen = cl.check_env(lambda: Line(length=4, cut=True), limits=1.0, horizon=100)
    assert "cut off after 4 steps" in seen.wrong[0]

    class Closed(gym.vector.VectorEnv[Any, Any, Any]):
        num_envs, metadata = 2, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        single_observation_space, single_action_space = Line().observation_space, Line().action_space
        spec = gym.spec("CartPole-v1")

    with pytest.raises(InputError, match="time limit of 500 steps that cannot be lifted: give horizon=500"):
        cl.gymnasium(Closed(), constraints=one, limits=1.0, horizon=1000)


def test_the_users_own_object_keeps_its_time_limit() -> None:
    mine = RecordEpisodeStatistics(TimeLimit(Line(length=50), 5))
    walk = cl.gymnasium(mine, limits=1.0, horizon=20).walk(lambda obs, t: np.zeros((1, 1)), [3], 20)
    assert walk.truncated[:, 0].nonzero()[0].tolist() == [19]
    mine.reset(seed=3)
    assert [mine.step(np.zeros(1, np.float32))[3] for _ in range(5)] == [False] * 4 + [True]


@dataclass(frozen=True)
class Params:
    max_steps_in_episode: int = 10


class Counting:
    """Speaks gymnax: one number that counts steps, and `done` at the time limit, as gymnax has it."""

    name, default_params, action_space = "counting", Params(), SimpleNamespace(n=2)

    def reset(self, key: Any, params: Any) -> Any:
        return jnp.zeros(1), jnp.zeros((), jnp.int32)

    def step_env(self, key: Any, t: Any, action: Any, params: Any) -> Any:
        return jnp.zeros(1), t + 1, jnp.zeros(()), t + 1 >= params.max_steps_in_episode, {"cost": jnp.ones(())}


@pytest.mark.parametrize(("horizon", "J"), [(None, 10.0), (25, 9.282), (10, 6.513)])
def test_the_time_limit_of_gymnax_is_no_end(horizon: int | None, J: float) -> None:
    env = cl.from_gymnax(Counting(), "cost", 1.03 * J, gamma=0.9, horizon=horizon, bounds=([0.0, 0.0], [0.0, 1.0]))
    c = cl.certify(env, at_first(env, cl.categorical(hidden=())), budget=3e5)
    assert c.verdict == "CERTIFIED" and c.J_g[0] == pytest.approx(-J, rel=0.03 if horizon is None else 1e-4)


def test_a_limit_of_gymnax_that_cannot_be_lifted_is_an_error() -> None:
    env = Counting()
    env.default_params = SimpleNamespace(max_steps_in_episode=10)  # type: ignore[assignment]
    with pytest.raises(InputError, match="max_steps_in_episode is 10 and cannot be lifted: give horizon=10"):
        cl.from_gymnax(env, "cost", 50.0, gamma=0.9)


def test_exact_values_are_those_of_the_noise_that_acts() -> None:
    """The scale has a floor, which the certificate knows of."""
    env = simulated.double_integrator(budget=5e-4)
    design = cl.gaussian(hidden=(), scale="free", std=0.01)
    policy = design.fitted(env.obs_shape, env.action)
    theta = policy.init()
    theta[-1] = np.log(1e-3)  # below the floor, e⁻⁵
    mixture = NetworkMixture.single(policy, theta, Normaliser.identity(2))
    acts = np.array([mixture.reset(np.random.default_rng(s)).act(np.zeros(2, np.float32)) for s in range(4000)])
    c = cl.certify(env, mixture)
    assert c.verdict == "VIOLATED"
    assert -c.J_g[0] == pytest.approx(np.mean(acts**2) / (1 - 0.95), rel=0.1)
    with pytest.raises(InputError, match=r"std must be between 0\.0067 and 7\.4"):
        cl.gaussian(std=1e-3)


def toll(H: int, price: float) -> Any:
    """In the first step one may pay to get to where every further step earns 1: worth it if enough of them are left."""

    def step(key: Any, s: Any, a: Any) -> Any:
        pays = (s == 0) & (a == 1)
        earned = (s == 1) * 1.0 - price * pays
        return jnp.where(s == 0, jnp.where(pays, 1, 2), s), (earned, 0.0), jnp.zeros((), bool)

    return cl.environment(
        lambda key: jnp.zeros((), jnp.int32),
        step,
        lambda s: jax.nn.one_hot(s, 3),
        action=cl.Discrete(2),
        gamma=1.0,
        horizon=H,
        limits={"none": 1.0},
        bounds=([-price, 0.0], [1.0, 1.0]),
    )


TOLLS = [(10, 6.0, 3.0)]
TOLLS += [pytest.param(*x, marks=pytest.mark.slow) for x in ((10, 12.0, 0.0), (1, 0.5, 0.0), (60, 70.0, 0.0))]


@pytest.mark.parametrize(("H", "price", "best"), TOLLS)
def test_advantages_end_at_a_short_horizon(H: int, price: float, best: float) -> None:
    """9 steps are not worth a price of 12, whatever an episode without an end would earn."""
    method = cl.PracticalCNPGPD(K=60, N=100 * H, kappa=0.0, kl=(0.05, 0.05))
    sol = cl.solve(toll(H, price), method, policy=cl.categorical(hidden=()), budget=2.4e4 * H, seed=1)
    assert sol.certificate.J_r == pytest.approx(best, abs=0.03 * (price + 1))


# ------------------------------------------------------------------------------------ what acts


SPACES: dict[str, Any] = {
    "start": gym.spaces.Discrete(3, start=-1),
    "parts": gym.spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "square": gym.spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    "flags": gym.spaces.MultiBinary((2, 2)),
    "matrix": gym.spaces.Box(-2.0, 2.0, (2, 2)),
    "half": gym.spaces.Box(np.array([0.0, -np.inf]), np.array([np.inf, 1.0]), dtype=np.float64),
}


@pytest.mark.parametrize("kind", SPACES)
def test_a_saved_policy_gives_actions_of_the_environments_own_space(kind: str, tmp_path: Any) -> None:
    space = SPACES[kind]
    problem = cl.gymnasium(lambda: Still(space), limits=1.0, horizon=5, num_envs=2)
    at_first(problem, cl.gaussian() if kind in ("matrix", "half") else cl.categorical()).save(tmp_path / "p.npz")
    actor = NetworkMixture.load(tmp_path / "p.npz").reset(np.random.default_rng(0))
    acts = [actor.act(np.zeros(1)) for _ in range(200)]
    assert all(space.contains(np.asarray(a, space.dtype)) for a in acts)
    assert len({np.asarray(a).tobytes() for a in acts}) > 2
    assert type(acts[0]) is int if kind == "start" else acts[0].shape == space.shape


def test_what_was_certified_is_what_acts() -> None:
    problem = cl.gymnasium(
        lambda: Still(cost=lambda a: float(a >= 1)), limits=10.0, horizon=20, bounds=(0.0, 1.0), num_envs=4
    )
    c, rng = cl.certify(problem, at_first(problem, cl.categorical(hidden=())), budget=4e4), np.random.default_rng(0)
    actor, env = at_first(problem, cl.categorical(hidden=())).reset(rng), Still(cost=lambda a: float(a >= 1))
    env.reset(seed=0)
    deployed = np.mean([env.step(actor.act(np.zeros(1)))[4]["cost"] for _ in range(3000)])
    assert c.J_g[0] == pytest.approx(-20 / 3, abs=0.4) and deployed == pytest.approx(1 / 3, abs=0.04)


def test_an_observation_of_another_shape_is_refused() -> None:
    problem = cl.gymnasium(Still, limits=1.0, horizon=5, num_envs=2)
    actor = at_first(problem, cl.categorical()).reset(np.random.default_rng(0))
    for wrong in (3, {"a": np.zeros(1)}, np.zeros(2)):
        with pytest.raises(InputError, match=r"must have shape \(1,\), got .*flatten"):
            actor.act(wrong)


class Counter:
    """Takes the middle action in every third step, the first otherwise."""

    def reset(self) -> None:
        self.t = 0

    def __call__(self, obs: Any) -> int:
        self.t += 1
        return 0 if self.t % 3 == 0 else -1


def test_a_rule_of_ones_own_is_certified_on_a_gymnasium_problem() -> None:
    asked: dict[str, Any] = {"limits": 10.0, "horizon": 20, "bounds": (0.0, 1.0), "num_envs": 4}
    problem = cl.gymnasium(lambda: Still(cost=lambda a: float(a == 0)), **asked)
    c = cl.certify(problem, Counter(), budget=4e4)
    assert c.verdict == "CERTIFIED" and c.components == 1 and "a rule, called as given" in c.scope
    assert (c.J_g[0], c.J_r) == (pytest.approx(-6.0), pytest.approx(-14.0))
    c = cl.certify(problem, lambda obs: 0, budget=4e4)
    assert (c.verdict, c.J_g) == ("VIOLATED", [-20.0])
    square = cl.gymnasium(lambda: Still(SPACES["square"], lambda a: float(a[1, 1] == 4)), **asked)
    assert cl.certify(square, lambda obs: np.array([[0, 0], [0, 4]]), budget=4e4).J_g == [-20.0]
    for wrong in (0.5, 2, [0, 1]):
        refused("an action outside of Discrete", lambda a=wrong: cl.certify(problem, lambda obs: a, budget=4e4))
    with cl.Fleet(simulated.cartpole(), cl.Local(1)) as fleet:
        refused("run in this process", lambda: cl.certify(fleet, lambda obs: 0, budget=4e4))
    refused("policy must be a NetworkMixture, got int", lambda: cl.certify(problem, 3, budget=4e4))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ before anything is learned


def test_without_bounds_nothing_is_learned_in_vain() -> None:
    said: list[Any] = []
    with pytest.raises(InputError, match="its constraints have no bounds, so samples cannot certify: declare bounds"):
        cl.solve(cl.gymnasium(Still, limits=1.0, horizon=5, num_envs=2), budget=1e5, progress=lambda *x: said.append(x))
    assert not said


@pytest.mark.parametrize("bounds", [None, ([-1.0], [1.0])])
def test_a_problem_without_constraints(bounds: Any) -> None:
    problem = cl.gymnasium(Still, limits=[], horizon=5, num_envs=2, bounds=bounds)
    method = cl.PracticalCNPGPD(K=30, N=200, kl=(0.1, 0.1))
    sol = cl.solve(problem, method, policy=cl.categorical(hidden=()), budget=24_000)
    assert sol.certificate.verdict == "CERTIFIED" and sol.certificate.J_r > 4
    assert (sol.certificate.interval is None) == (bounds is None)


def test_schedules_are_planned_for_the_batches_that_there_will_be() -> None:
    for lanes, K in ((2, 40), (64, 5)):
        problem = cl.gymnasium(Still, limits=1.0, horizon=10, num_envs=lanes, bounds=(0.0, 1.0))
        sampler = Practical(problem, cl.categorical().fitted(problem.obs_shape, problem.action))
        world, method = world_of(problem), cl.PracticalCNPGPD(K=1000, N=80)
        settled = world.settle(Task(world, sampler, method, "samples", 6400.0, 0.01, 0), None)
        assert settled.method.K == K and isinstance(settled.sampler, Practical) and settled.sampler.warm == K // 5


def test_discounted_episodes_end_where_their_own_length_does() -> None:
    taken = {}
    for lanes in (1, 16):
        problem = cl.gymnasium(
            lambda: Still(cost=lambda a: 0.5), limits=5.0, gamma=0.9, bounds=(0.0, 1.0), num_envs=lanes
        )
        c = cl.certify(problem, at_first(problem, cl.categorical(hidden=())), budget=1e4)
        taken[lanes] = c.env_steps / c.episodes
        assert c.J_g[0] == pytest.approx(-5.0, abs=0.4)
    assert taken[16] == pytest.approx(taken[1], rel=0.2) == pytest.approx(1 / (1 - np.sqrt(0.9)), rel=0.2)


def test_signals_on_their_bounds_in_float32() -> None:
    """.1 ten times over is a little more than 1 there."""
    env = cl.environment(
        lambda key: jnp.zeros(1),
        lambda key, s, a: (s, jnp.array([-0.3, 0.1]), jnp.zeros((), bool)),
        lambda s: s,
        action=gym.spaces.Discrete(2),  # type: ignore[arg-type]
        gamma=1.0,
        horizon=1000,
        limits=[200.0],
        bounds=([-0.3, 0.0], [0.0, 0.1]),
    )
    c = cl.certify(env, at_first(env, cl.categorical(hidden=())), budget=1e6)
    assert c.verdict == "CERTIFIED" and c.J_g[0] == pytest.approx(-100, rel=1e-4)


def broken(what: str) -> Any:
    """A JAX environment that goes wrong in step 6 of every episode."""

    def step(key: Any, t: Any, a: Any) -> Any:
        bad = t == 6
        reward = jnp.where(bad & (what == "reward"), jnp.nan, 0.5)
        cost = jnp.where(bad & (what == "cost"), 7.0, 0.5)
        return t + 1, (reward, cost), jnp.zeros((), bool)

    def observe(t: Any) -> Any:
        return jnp.where((t == 6) & (what == "obs"), jnp.nan, 0.0) + jnp.zeros(1)

    return cl.environment(
        lambda key: jnp.zeros((), jnp.int32),
        step,
        observe,
        action=cl.Discrete(2),
        gamma=1.0,
        horizon=10,
        limits=9.0,
        names=["heat"],
        bounds=([0.0, 0.0], [1.0, 1.0]),
        name="mine",
    )


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("reward", "reward is not finite (value nan)"),
        ("cost", "heat lies outside its declared bounds [0, 1] (value 7.0)"),
        ("obs", "the observation is not finite (value [nan])"),
    ],
)
def test_faults_of_jax_environments_are_told_with_step_and_value(what: str, told: str) -> None:
    with pytest.raises(EnvironmentFault) as e:
        cl.solve(broken(what), cl.PracticalCNPGPD(K=5, N=640), budget=1e5)
    assert str(e.value) == f"mine, lane 0, step 6: {told}" and e.value.step == 6
    assert told in cl.check_env(broken(what)).wrong[0]
    if what != "obs":
        with pytest.raises(EnvironmentFault, match="mine, lane 0, step 6"):
            cl.certify(broken(what), at_first(broken(what), cl.categorical()), budget=1e5)


def test_what_was_learned_goes_along_with_a_fault_in_jax() -> None:
    """A walk that comes to the fault only when it has learned to."""

    def step(key: Any, t: Any, a: Any) -> Any:
        return t + a, (a.astype(float), jnp.where(t > 8, jnp.nan, 0.0)), jnp.zeros((), bool)

    env = cl.environment(
        lambda key: jnp.zeros((), jnp.int32),
        step,
        lambda t: jnp.ones(1),
        action=cl.Discrete(2),
        gamma=1.0,
        horizon=10,
        limits=1.0,
        bounds=([0.0, 0.0], [1.0, 1.0]),
    )
    method = cl.PracticalCNPGPD(K=100, N=40, kl=(0.1, 0.1))
    with pytest.raises(EnvironmentFault, match=r"step 9: cost is not finite|step 9: g0 is not finite") as e:
        cl.solve(env, method, policy=cl.categorical(hidden=()), budget=1e5)
    assert isinstance(e.value.learned, NetworkMixture)


# ------------------------------------------------------------------------------------ what is refused


def refused(match: str, call: Any) -> None:
    with pytest.raises(InputError, match=match) as e:
        call()
    assert len(str(e.value).splitlines()) == 1


def test_certify_checks_what_it_is_given() -> None:
    problem = cl.gymnasium(Still, limits=1.0, horizon=5, num_envs=2, bounds=(0.0, 1.0))
    mine = at_first(problem, cl.categorical())
    refused("delta must be in", lambda: cl.certify(problem, mine, delta=2.0))
    refused("budget must be at least 1 step", lambda: cl.certify(problem, mine, budget=float("nan")))
    refused("evidence of Still is 'samples', got 'exact'", lambda: cl.certify(problem, mine, evidence="exact"))
    refused("bounds is for finite models", lambda: cl.certify(problem, mine, bounds=([0.0], [1.0])))
    other = cl.gymnasium(lambda: Still(gym.spaces.Discrete(7)), limits=1.0, horizon=5, num_envs=2)
    refused("policy is for observations", lambda: cl.certify(problem, at_first(other, cl.categorical())))


def test_slips_are_told_in_one_line() -> None:
    pole: dict[str, Any] = {"constraints": one, "limits": 1.0, "horizon": 10}
    problem = cl.gymnasium(Still, limits=1.0, horizon=5, num_envs=2)
    same = Still()
    refused("the problem must be a CMDP or a simulator", lambda: cl.solve("CartPole-v1"))  # type: ignore[call-overload]
    functions: list[Any] = [cl.optimum, cl.diagnose, cl.slater_margin]
    for function in functions:
        refused("needs a finite model", lambda f=function: f(problem))
    refused("the factory raised ZeroDivisionError", lambda: cl.gymnasium(lambda: 1 / 0, **pole))
    refused("the factory gave None, which is no environment", lambda: cl.gymnasium(lambda: None, **pole))
    refused("the same environment twice", lambda: cl.gymnasium(lambda: same, **pole))
    refused("horizon must be a whole number", lambda: cl.gymnasium("CartPole-v1", limits=[], horizon="100"))  # type: ignore[arg-type]
    far = cl.SideProcess("a:b", python="/bin/true")
    refused("a:b could not be made: the side process died", lambda: cl.gymnasium(far, limits=1.0, horizon=5))


class Loud(Still):
    def close(self) -> None:
        raise RuntimeError("close failed")


def test_check_env_tells_of_factories_and_ends() -> None:
    assert "the factory raised" in cl.check_env(lambda: 1 / 0, limits=1.0, horizon=5).wrong[0]
    vector = cl.check_env(lambda: SyncVectorEnv([Still] * 3), limits=1.0, horizon=5)
    assert vector.ok
    assert cl.check_env(Loud, limits=1.0, horizon=5, num_envs=2).wrong == ("close raised RuntimeError: close failed",)
    seen = cl.check_env(simulated.cartpole())
    assert seen.ok and seen.deterministic and "knows nothing: reward" in str(seen)


def test_vector_environments_with_one_seed_and_without_masks() -> None:
    native = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    asked: dict[str, Any] = {"limits": 5.0, "horizon": 100, "bounds": (0.0, 1.0)}
    assert cl.check_env(native, constraints=one, **asked).ok

    class Bare(gym.vector.VectorEnv[Any, Any, Any]):
        num_envs, metadata, spec = 3, {"autoreset_mode": AutoresetMode.NEXT_STEP}, None
        single_observation_space = observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
        single_action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return np.zeros((3, 1), np.float32), {}

        def step(self, actions: Any) -> Any:
            no = np.zeros(3, bool)
            return np.zeros((3, 1), np.float32), np.zeros(3), no, no, {"cost": np.array([0.1, 0.2, 0.3])}

    steps = cl.gymnasium(Bare(), **asked).walk(lambda obs, t: np.zeros(3, int), [1, 2, 3], 4)
    assert np.allclose(steps.h[:, :, 1], [-0.1, -0.2, -0.3])


def mine(signals: Any, **more: Any) -> Any:
    """A JAX environment whose step gives these signals."""
    asked: dict[str, Any] = {"action": cl.Discrete(2), "gamma": 1.0, "horizon": 5, "limits": 5.0}
    step = lambda key, x, a: (x, signals, jnp.zeros((), bool))  # noqa: E731
    return cl.environment(lambda key: jnp.zeros(1), step, lambda x: x, **asked | more)


def test_signals_of_jax_environments() -> None:
    assert mine((0.1, 2.0)).statement.I == 1
    assert mine([0.1, 2.0, 3], limits={"heat": 1.0, "noise": 2.0}).statement.names == ("heat", "noise")
    for wrong in (jnp.zeros(1), jnp.zeros(()), jnp.zeros(3), (0.1, 2.0, 3.0)):
        refused(r"step gives h of shape .*, it must be \[1\+I\] = \(2,\)", lambda h=wrong: mine(h))
    refused("step gives h as a dict", lambda: mine({"r": 1.0}))
    refused("limits must be a number or a vector of numbers", lambda: mine((0.1, 2.0), limits="x"))
    refused(r"bounds must be \(low, high\)", lambda: mine((0.1, 2.0), bounds=([0.0, [1.0]], [1.0, 1.0])))
    refused(r"bounds\[1\] has low 1 above high 0", lambda: mine((0.1, 2.0), bounds=([0.0, 1.0], [1.0, 0.0])))
    refused("action must be cl.Discrete", lambda: mine((0.1, 2.0), action="left"))
    two: Any = lambda key, x, a: (x, (0.1, 2.0))  # noqa: E731
    asked: dict[str, Any] = {"action": cl.Discrete(2), "gamma": 1.0, "horizon": 5, "limits": 5.0}
    refused("step must give", lambda: cl.environment(lambda key: jnp.zeros(1), two, lambda x: x, **asked))
    several: Any = lambda x: {"a": x}  # noqa: E731
    ok: Any = lambda key, x, a: (x, (0.1, 2.0), jnp.zeros((), bool))  # noqa: E731
    refused("observe must give one array", lambda: cl.environment(lambda key: jnp.zeros(1), ok, several, **asked))
