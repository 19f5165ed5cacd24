"""Rules of the user's own: what is certified is the rule that the user has, episode after episode, and nothing else."""

from __future__ import annotations

import functools
import os
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clearance as cl
from clearance.certificates import rule_watch
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.core.errors import InputError
from clearance.finite.samplers.finite_episodes import RuleEpisodes
from clearance.simulator.gymnasium_envs.raw_values import pack, unpack

HERE = Path(__file__).parent


ONE = spaces.Box(-9.0, 9.0, (1,)), np.ones(1, np.float32)


class Pays(gym.Env[Any, Any]):
    """An action costs what `price` says, in every step; observations are always the same."""

    def __init__(self, actions: Any = None, price: Callable[[Any], float] = float, sees: Any = None) -> None:
        self.action_space = spaces.Discrete(2) if actions is None else actions
        self.observation_space, self.shown = ONE if sees is None else sees
        self.price = price

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.shown, {}

    def step(self, action: Any) -> Any:
        return self.shown, 0.0, False, False, {"cost": self.price(action)}


def asked(env: Any, *, limit: float = 5.0, horizon: int = 10, lanes: int | None = 2, **more: Any) -> Any:
    return cl.gymnasium(env, limits=limit, horizon=horizon, num_envs=lanes, bounds=(0.0, 1.0), **more)


def cost_of(problem: Any, rule: Any) -> float:
    return -cl.certify(problem, rule, budget=3000).J_g[0]


# ------------------------------------------------------------------------------------ randomness of the rule's own


class Own:
    """Pays with probability p, by a generator of its own."""

    def __init__(self, p: float, rng: Any) -> None:
        self.p, self.rng = p, rng

    def __call__(self, obs: Any) -> int:
        return int(self.rng.random() < self.p)


def global_numpy(p: float, seed: int) -> Any:
    np.random.seed(seed)  # noqa: NPY002
    return lambda obs: int(np.random.random() < p)  # noqa: NPY002


def closure(p: float, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda obs: int(rng.random() < p)


def drawn_once_per_episode(p: float, seed: int) -> Any:
    class Once(Own):
        def reset(self) -> None:
            self.now = int(self.rng.random() < self.p)

        def __call__(self, obs: Any) -> int:
            return self.now

    return Once(p, np.random.default_rng(seed))


RANDOM: dict[str, Any] = {
    "generator": lambda p, seed: Own(p, np.random.default_rng(seed)),
    "random state": lambda p, seed: Own(p, np.random.RandomState(seed)),
    "random.Random": lambda p, seed: Own(p, random.Random(seed)),
    "closure": closure,
    "partial": lambda p, seed: functools.partial(lambda rng, obs: int(rng.random() < p), np.random.default_rng(seed)),
    "global": global_numpy,
    "once per episode": drawn_once_per_episode,
}


@pytest.mark.parametrize("kind", RANDOM)
def test_random_rules_that_break_a_limit_are_not_certified(kind: str) -> None:
    """J = .55 over .5. Copies in 256 lanes would all draw one number per block: 45 % would pass at the first look."""
    problem = asked(Pays, limit=0.5, horizon=1, lanes=256)
    seen = [cl.certify(problem, RANDOM[kind](0.55, seed), delta=1e-3, budget=340, seed=seed) for seed in range(8)]
    assert not [c for c in seen if c.verdict == "CERTIFIED"]
    assert np.mean([-c.J_g[0] for c in seen]) == pytest.approx(0.55, abs=0.06)  # five standard errors


def test_the_rule_is_not_copied_and_its_memory_is_its_own() -> None:
    class Remembers:
        def __init__(self) -> None:
            self.resets, self.calls = 0, 0

        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

        def reset(self) -> None:
            self.resets, self.calls = self.resets + 1, 0

        def __call__(self, obs: Any) -> int:
            self.calls += 1
            return int(self.calls % 2 == 0)

    rule = Remembers()
    c = cl.certify(asked(Pays, lanes=4), rule, budget=3000)
    assert c.J_g == [-5.0] and rule.resets == c.episodes


def test_a_rule_that_alternates_between_episodes_has_its_mean() -> None:
    """A hidden counter, never reset: every other episode costs 1."""
    count = iter(range(10**6))
    c = cl.certify(asked(Pays, limit=0.45, horizon=1, lanes=8), lambda obs: next(count) % 2, budget=2000)
    assert c.verdict != "CERTIFIED" and c.J_g[0] == pytest.approx(-0.5, abs=0.01)


# ------------------------------------------------------------------------------------ rules that seed themselves again

SHARED = np.random.default_rng(1)


class Reseeds(Own):
    def reset(self) -> None:
        self.rng = np.random.default_rng(0)


class ReseedsState(Own):
    def reset(self) -> None:
        self.rng.seed(0)


class Nested(Own):
    def __init__(self, p: float) -> None:
        self.p, self.parts = p, {"noise": [np.random.default_rng(0)]}

    @property
    def rng(self) -> Any:  # type: ignore[override]
        return self.parts["noise"][0]

    def reset(self) -> None:
        self.parts = {"noise": [np.random.default_rng(0)]}


class Cycle(Own):
    """A new seed each time, out of five."""

    k = 0

    def reset(self) -> None:
        self.k += 1
        self.rng = np.random.default_rng(self.k % 5)


class Global:
    def reset(self) -> None:
        np.random.seed(3)  # noqa: NPY002

    def __call__(self, obs: Any) -> int:
        return int(np.random.random() < 0.5)  # noqa: NPY002


class Module:
    def reset(self) -> None:
        SHARED.bit_generator.state = np.random.default_rng(1).bit_generator.state

    def __call__(self, obs: Any) -> int:
        return int(SHARED.random() < 0.5)


class Keys:
    """Random numbers of JAX, whose keys are arrays: typed ones, or two words."""

    def __init__(self, kind: str) -> None:
        import jax

        self.jax, self.new = jax, getattr(jax.random, kind)
        self.key = self.new(0)

    def reset(self) -> None:
        self.key = self.new(0)

    def __call__(self, obs: Any) -> int:
        self.key, now = self.jax.random.split(self.key)
        return int(self.jax.random.bernoulli(now))


RESEEDING: dict[str, Any] = {
    "typed key": lambda: Keys("key"),
    "raw key": lambda: Keys("PRNGKey"),
    "new generator": lambda: Reseeds(0.5, None),
    "random.Random": lambda: ReseedsState(0.5, random.Random()),
    "random state": lambda: ReseedsState(0.5, np.random.RandomState()),
    "nested": lambda: Nested(0.5),
    "cycle": lambda: Cycle(0.5, None),
    "global": Global,
    "module": Module,
}


@pytest.mark.parametrize("kind", RESEEDING)
def test_a_rule_that_seeds_itself_again_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match=r"policy.reset\(\) seeds a generator again: .*seed it once"):
        cl.certify(asked(Pays), RESEEDING[kind](), budget=3000)
    with pytest.raises(InputError, match=r"policy.reset\(\) seeds a generator again"):
        cl.certify(cl.zoo.two_state(), RESEEDING[kind](), budget=3000)


class Unused(Own):
    """Deterministic; has a generator that it seeds and does not use."""

    def reset(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, obs: Any) -> int:
        return 1


class Goes(Keys):
    """Keys that go on from episode to episode."""

    def reset(self) -> None:
        self.ready = True


class Fresh(Own):
    def reset(self) -> None:
        self.rng = np.random.default_rng()


def test_deterministic_and_fresh_rules_are_not_accused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rule in (Unused(0.5, None), Fresh(0.5, None), lambda obs: 1, closure(0.5, 1), Counter(), Goes("key")):
            assert cl.certify(asked(Pays), rule, budget=3000).verdict in ("VIOLATED", "UNDECIDED")
        assert cl.certify(cl.zoo.two_state(), Unused(0.5, None), budget=3000).episodes > 10
    c = cl.certify(asked(Pays), lambda obs: 0, budget=3000)
    assert c.verdict == "CERTIFIED" and "Every episode gave the same sums" in c.scope


class Counter:
    t = 0

    def __call__(self, obs: Any) -> int:
        self.t += 1
        return self.t % 2


def test_the_search_for_generators_ends() -> None:
    loop: list[Any] = [np.random.default_rng(0)]
    loop.append(loop)
    assert len(rule_watch.generator_states(loop)) == 3


# ------------------------------------------------------------------------------------ what the rule sees and gives


def writes(obs: Any) -> int:
    """Changes what it sees."""
    obs[0] = -1.0
    return 0


def wipes(obs: Any, action: Any, after: Any, info: Any) -> float:
    """A cost function that changes all it gets."""
    paid = float(action)
    after[0], obs[0] = 0.0, 0.0
    info.clear()
    return paid


FLOAT32 = spaces.Box(-1.0, 1.0, (1,), np.float32)
BYTES = spaces.Box(0, 255, (2,), np.uint8), np.array([250, 10], np.uint8)
DICT = spaces.Dict({"k": spaces.Discrete(3, start=4), "x": spaces.Box(-1.0, 1.0, (2,))}), {"k": 5, "x": np.ones(2)}
PAIR = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,)))), (2, np.ones(1, np.float32))


def is_rounded(action: Any) -> float:
    return float(np.float64(action[0]) == np.float64(np.float32(action[0])))


THREE = spaces.Discrete(4, start=2), 3
SEEN: dict[str, tuple[Any, Any, Any]] = {  # environment, rule, cost function; used directly each costs 10
    "discrete": (lambda: Pays(sees=THREE), lambda obs: int(np.ndim(obs) == 0 and obs == 3), None),
    "type": (lambda: Pays(sees=(spaces.Discrete(4), np.int64(3))), lambda obs: int(type(obs) is np.int64), None),
    "bytes": (lambda: Pays(sees=BYTES), lambda obs: int(obs.dtype == np.uint8), None),
    "dict": (lambda: Pays(sees=DICT), lambda obs: int(obs["k"] == 5 and obs["x"].shape == (2,)), None),
    "tuple": (lambda: Pays(sees=PAIR), lambda obs: int(obs[0] == 2 and obs[1].shape == (1,)), None),
    "float64 action": (lambda: Pays(FLOAT32, lambda a: 1 - is_rounded(a)), lambda obs: np.array([0.1]), None),
    "list action": (lambda: Pays(FLOAT32, lambda a: float(type(a) is list)), lambda obs: [0.5], None),
    "count from 5": (lambda: Pays(spaces.Discrete(2, start=5), lambda a: a - 5.0), lambda obs: 6, None),
    "rule writes": (Pays, writes, lambda obs, a, after, info: float(obs[0] > 0)),
    "cost function writes": (Pays, lambda obs: int(obs[0] == 1), wipes),
    "cost function sees": (lambda: Pays(sees=THREE), lambda obs: 0, lambda obs, a, after, info: float(obs == 3)),
}


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("how", ["objects", "vector"])
def test_the_rule_that_is_certified_is_the_rule_that_one_has(kind: str, how: str) -> None:
    env, rule, cost = SEEN[kind]
    if how == "vector":
        if kind == "list action":
            pytest.skip("a vector environment takes arrays")
        problem = asked(SyncVectorEnv([env] * 2, autoreset_mode=AutoresetMode.SAME_STEP), lanes=None, constraints=cost)
    else:
        problem = asked(env, constraints=cost)
    c = cl.certify(problem, rule, budget=3000)
    assert (c.verdict, c.J_g) == ("VIOLATED", [-10.0])


class Alive(Pays):
    """Returns its own state, which it changes in place, and scales its action in place."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.state = np.zeros(1, np.float32)
        return self.state, {}

    def step(self, action: Any) -> Any:
        self.state += 1
        action *= 0
        return self.state, 0.0, False, False, {}


def test_an_environment_that_changes_what_it_gave() -> None:
    """The cost: the observation before the step is the one after it, or the action has changed."""

    def changed(obs: Any, action: Any, after: Any, info: Any) -> float:
        return float(obs[0] == after[0] or action[0] != 0.5)

    problem = asked(lambda: Alive(spaces.Box(-1.0, 1.0, (1,))), constraints=changed)
    assert cost_of(problem, lambda obs: np.array([0.5])) == 0.0
    seen: list[Any] = []
    cl.certify(problem, lambda obs: (seen.append(obs), np.array([0.5]))[1], budget=300)
    assert [float(x[0]) for x in seen[:11]] == [*range(10), 0]


def test_network_policies_are_not_misled_by_cost_functions() -> None:
    """What a cost function writes into `after` must not be the next observation."""

    def costs(obs: Any, action: Any, after: Any, info: Any) -> float:
        after[:] = 99.0
        return 0.0

    steps = asked(Pays, constraints=costs).walk(lambda obs, t: np.zeros(2, int), [1, 2], 5)
    assert (steps.obs == 1).all() and (steps.after == 1).all()


SPACES: dict[str, tuple[Any, Any, list[Any]]] = {  # what fits, what does not
    "discrete": (spaces.Discrete(3, start=-1), [-1, 1, np.int8(0), np.array(1), True], [2, -2, 0.0, 0.5, [0, 1], "a"]),
    "box": (
        spaces.Box(0.1, 1.0, (1,), np.float32),
        [[0.1], np.array([1.0]), np.array([0.1]), [1], np.array([0.5], np.float32)],
        [0.5, [0.09], [1.01], [np.nan], [np.inf], [1e300], ["a"], [[0.5]], [0.5, [1.0]], None],
    ),
    "free box": (spaces.Box(-np.inf, np.inf, (1,)), [[1e30], [-2]], [[np.inf], [np.nan], [1j]]),
    "parts": (spaces.MultiDiscrete([2, 3], start=[5, -1]), [[5, 1], np.array([6, -1])], [[4, 0], [5, 2], [5.0, 0.0]]),
    "flags": (spaces.MultiBinary((2, 2)), [np.eye(2, dtype=np.int8)], [np.full((2, 2), 2), np.eye(2)]),
}


@pytest.mark.parametrize("kind", SPACES)
def test_actions_outside_their_space_are_errors_that_name_them(kind: str) -> None:
    space, right, wrong = SPACES[kind]
    problem = asked(lambda: Pays(space, lambda a: 0.0))
    for a in right:
        assert cost_of(problem, lambda obs, a=a: a) == 0.0
    for a in wrong:
        with pytest.raises(InputError, match=r"step 0 .*the policy gave an action outside of") as told:
            cost_of(problem, lambda obs, a=a: a)
        assert "\n" not in str(told.value) and (a is None or repr(a)[:5] in str(told.value))


def test_an_environment_that_clips_by_itself_gets_the_action_as_it_is() -> None:
    clips = lambda: gym.wrappers.ClipAction(Pays(FLOAT32, lambda a: float(a[0] == 1)))  # noqa: E731
    assert cost_of(asked(clips), lambda obs: np.array([1.5])) == pytest.approx(10.0)


# ------------------------------------------------------------------------------------ wherever environments are


def far() -> Pays:
    """For a side process: pays where the action has not been rounded."""
    return Pays(FLOAT32, lambda a: 1 - is_rounded(a), DICT)


def test_a_rule_and_a_side_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    kinds: list[Any] = []

    def rule(obs: Any) -> Any:
        kinds.append((type(obs), obs["k"], obs["x"].dtype))
        return np.array([0.1])

    with asked(cl.SideProcess("test_rules:far", processes=2), lanes=3) as problem:
        assert cost_of(problem, rule) == pytest.approx(10.0)
        with pytest.raises(InputError, match=r"outside of Box.*2\.5"):
            cost_of(problem, lambda obs: np.array([2.5]))
        assert cost_of(problem, rule) == pytest.approx(10.0)  # the side process lives on
    assert set(kinds) == {(dict, 5, np.dtype(float))}


def test_raw_values_travel_with_their_types() -> None:
    for x in (3, 2.5, True, None, "a", np.int8(3), np.float32(0.1), (1, [2.0]), {"a": np.arange(6).reshape(2, 3)}):
        again = unpack(pack(x))
        assert type(again) is type(x) and repr(again) == repr(x)
    for wrong in (np.array([object()]), object(), {1, 2}):
        with pytest.raises(TypeError, match="cannot go to or from a side process"):
            pack(wrong)
    with pytest.raises(TypeError, match="cannot go"):
        unpack({"array": "|O", "shape": [1], "data": ""})


def test_rules_stay_in_this_process() -> None:
    for call in (
        lambda: cl.certify(asked(Pays), Own(0.5, np.random.default_rng(0)), executor=cl.Local()),
        lambda: cl.certify(cl.zoo.two_state(), lambda s: 0, executor=cl.Local()),
    ):
        with pytest.raises(InputError, match="in this process"):
            call()


def drifting(first: int) -> Iterator[int]:
    """Free for so many steps, and never again."""
    yield from [0] * first
    while True:
        yield 1


def test_a_rule_that_changes_over_time_is_warned_of() -> None:
    act = drifting(128)
    with pytest.warns(UserWarning, match="changes over time"):
        cl.certify(
            asked(Pays, limit=0.9, horizon=1), lambda obs: next(act), budget=300, delta=1e-300
        )  # no early verdict
    acts, model = drifting(4000), cl.zoo.two_state()
    finite = SteadyEpisodes(RuleEpisodes(model, lambda s: next(acts)), "the model", ("the reward", *model.names))
    with pytest.warns(UserWarning, match="the model: .* changes over time"):
        finite.draw(np.uint64(1), 0, int(8000 / finite.episode_steps))


def test_scope_says_what_is_assumed_of_a_rule() -> None:
    c = cl.certify(asked(Pays), lambda obs: 0, budget=3000)
    for words in (
        "resets are independent",
        "does not change over time",
        "carries nothing from one episode to the next",
    ):
        assert words in c.scope
    finite = cl.certify(cl.zoo.two_state(), lambda s: 0, budget=3000)
    assert "Assumed: the policy carries nothing" in finite.scope


def test_a_rule_of_a_finite_model_is_not_asked_after_its_horizon() -> None:
    """A rule that counts its steps would find more of them than the horizon has."""

    class Counting:
        def __init__(self) -> None:
            self.steps, self.most = 0, 0

        def reset(self) -> None:
            self.steps = 0

        def __call__(self, state: int) -> int:
            self.steps += 1
            self.most = max(self.most, self.steps)
            return state

    two, rule = cl.zoo.two_state(), Counting()
    model = cl.CMDP(two.P, two.r, two.g, [-5.0], rho=two.rho, horizon=5)
    J_g = cl.certify(model, np.eye(2)).J_g  # the rule as a table
    cl.certify(model.replace(b=J_g), rule, evidence="samples", budget=5e3)  # on the limit: it draws many episodes
    assert rule.most == 5


def wants_four(a: Any, b: Any, c: Any, d: Any) -> int:
    return 0


class Misspelt:
    """A rule that looks a key up that is not there, in its second step; with `first`, its reset fails."""

    def __init__(self, first: bool = False) -> None:
        self.first, self.calls = first, 0

    def reset(self) -> None:
        if self.first:
            raise RuntimeError("no arm")

    def __call__(self, obs: Any) -> int:
        self.calls += 1
        return 0 if self.calls == 1 else {"left": 0}["letf"]


@pytest.mark.parametrize("use", [cl.certify, cl.evaluate, lambda p, rule: cl.solve(p, init=rule, budget=1000)])
def test_a_rule_that_raises_is_named_with_the_step(use: Any) -> None:
    problem = cl.gymnasium(Pays(), constraints=lambda o, a, n, i: 0.0, limits=1.0, bounds=([0, 0], [1, 1]), horizon=3)
    with pytest.raises(InputError, match=r"policy .*:wants_four raised TypeError: .* at step 0, .*takes one argument"):
        use(problem, wants_four)
    with pytest.raises(InputError, match=r"policy .*:Misspelt raised KeyError: 'letf' at step 1, observation array"):
        use(problem, Misspelt())
    with pytest.raises(InputError, match=r"the reset of policy .*:Misspelt raised RuntimeError: no arm"):
        use(problem, Misspelt(first=True))


def test_a_rule_that_raises_on_a_finite_model_is_named() -> None:
    with pytest.raises(InputError, match=r":wants_four raised TypeError: .* at step 0, observation \d; .*the state"):
        cl.certify(cl.zoo.two_state(), wants_four)


def test_actions_that_are_not_there_are_named_by_step_and_state() -> None:
    """Episodes with a horizon run on states (t, s), which nobody else sees."""
    P = np.zeros((3, 2, 3))
    P[0, :, 1] = P[1, :, 2] = P[2, :, 0] = 1
    names: dict[str, Any] = {"states": ["a", "b", "c"], "actions": ["stay", "run"]}
    available = np.array([[False, True], [True, True], [True, False]])
    model = cl.CMDP(P, np.ones((3, 2)), rho=[1, 0, 0], horizon=5, available=available, **names)
    right = (1, 0, 0)
    assert cl.certify(model, lambda s: right[s], budget=1000).verdict == "CERTIFIED"  # the first state lacks action 0
    with pytest.raises(InputError, match=r"gave action 1 at step 2, state 2 \(c\), which has no such action$"):
        cl.certify(model, lambda s: 1)
    with pytest.raises(InputError, match=r"'run' at step 0, state 0 \(a\).*the number of an action: 1 run$"):
        cl.certify(model, lambda s: "run")
