"""Detect user rules whose random generators return to an earlier state.

If the `reset` of a rule seeds its generator again, the rule draws the same random numbers in every episode. Then its
episodes are not independent samples of the rule that its author intends. From its actions alone, such a rule looks like
a deterministic rule, which is allowed. So the generators themselves are watched. A generator was seeded again if an
episode starts with it in the same state as an earlier episode that used it. Deterministic rules use no generator and
never raise an alarm.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.text import first_line

EPISODES = 64  # the number of episodes that are watched
DEPTH, OBJECTS = 4, 1000  # the largest depth and number of objects in the search for generators
TAKES = "a rule takes one argument, the observation (on a finite model, the number of the state)"
GENERATORS = np.random.Generator | np.random.RandomState | random.Random


class WatchedRule:
    """A user's rule, with a record of the states of its random generators at the start of each episode.

    A generator that an episode does not use may keep its state; this raises no alarm.
    """

    def __init__(self, rule: Callable[[Any], Any]) -> None:
        self.act, self.episode, self.step = rule, 0, 0
        reset = getattr(rule, "reset", None)
        self.reset = reset if callable(reset) else None
        self.began: dict[str, int] = {}
        self.used: dict[str, set[int]] = defaultdict(set)

    def begin(self) -> None:
        """Start an episode and call the rule's `reset`; raise InputError if `reset` seeds a random generator again.

        Generators that the rule does not use are ignored. Warn if other code seeds a generator again.
        """
        watched, self.episode, self.step = self.episode < EPISODES, self.episode + 1, 0
        ended = generator_states(self.act) if watched else {}
        for name, state in self.began.items():
            if ended.get(name, state) != state:
                self.used[name].add(state)
        if self.reset is not None:
            self._call("reset of ", self.reset)
        self.began = generator_states(self.act) if watched else {}
        for name, state in self.began.items():
            if state in self.used[name]:
                self._accuse(name, by_reset=ended.get(name) != state)

    def choose(self, obs: Any) -> Any:
        """Return the rule's action for the observation `obs`.

        If the rule returns a pair (action, None), as `predict` of Stable-Baselines3 does, return its first entry. If
        the rule raises an exception, raise an InputError that names the step and the observation.
        """
        action, self.step = self._call("", self.act, obs), self.step + 1
        return action[0] if isinstance(action, tuple) and len(action) == 2 and action[1] is None else action

    def _call(self, what: str, f: Callable[..., Any], *obs: Any) -> Any:
        try:
            return f(*obs)
        except InputError:
            raise
        except Exception as e:  # foreign code may raise anything
            where = f"step {self.step}, observation {_short(obs[0])}" if obs else "the start of an episode"
            hint = f"; {TAKES}" if obs and isinstance(e, TypeError) else ""
            said = f"{type(e).__name__}: {first_line(e)}"
            raise InputError(f"the {what}policy {_name(self.act)} raised {said} at {where}{hint}") from e

    def _accuse(self, name: str, *, by_reset: bool) -> None:
        again = (
            f"{name} begins episode {self.episode} in the same state as an earlier one, so its random numbers repeat"
        )
        if by_reset:
            raise InputError(f"policy.reset() seeds a generator again: {again}; seed it once, when the policy is made")
        warnings.warn(f"{again}: the policy or the environment seeds it again in every episode", stacklevel=2)
        self.episode = EPISODES  # warn only once


def _name(rule: Any) -> str:
    """Return `module:name` of a rule, as the command line takes it; for an object it is the name of its class."""
    rule = rule if hasattr(rule, "__qualname__") else type(rule)
    return f"{getattr(rule, '__module__', None)}:{rule.__qualname__}"


def _short(obs: Any) -> str:
    text = " ".join(repr(obs).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def generator_states(rule: Any) -> dict[str, int]:
    """Return the states of the global random generators and of those found in the rule, by name."""
    found = {name: _state(g) for name, g in _reachable(rule)}
    return found | {"np.random": _state(np.random.mtrand._rand), "random": hash(random.getstate())}


def _state(generator: Any) -> int:
    if _is_jax_array(generator):
        jax = sys.modules["jax"]
        return hash(np.asarray(jax.random.key_data(generator)).tobytes())
    if isinstance(generator, np.random.Generator):
        return hash(repr(generator.bit_generator.state))
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)
        return hash((state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"]))
    return hash(generator.getstate())


def _reachable(rule: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, generator) for each random generator found in a rule.

    The search covers the rule's attributes, the variables that its functions close over, and the contents of both.
    """
    waiting, seen = [("the policy", rule, 0)], set[int]()
    while waiting and len(seen) < OBJECTS:
        name, x, depth = waiting.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, GENERATORS) or _is_jax_key(name, x):
            yield name, x
        elif depth < DEPTH:
            waiting += [(f"{name}{part}", y, depth + 1) for part, y in _parts(x)]


def _is_jax_array(x: Any) -> bool:
    jax = sys.modules.get("jax")  # if a rule holds a JAX array, JAX was imported
    return jax is not None and isinstance(x, jax.Array)


def _is_jax_key(name: str, x: Any) -> bool:
    """Return whether x is a random key of JAX: of key type, or two words in a variable named like `key` or `rng`."""
    if not _is_jax_array(x):
        return False
    typed = sys.modules["jax"].numpy.issubdtype(x.dtype, sys.modules["jax"].dtypes.prng_key)
    last = name.rpartition(".")[2].lower()
    return bool(typed) or (x.shape == (2,) and x.dtype == np.uint32 and ("key" in last or "rng" in last))


def _parts(x: Any) -> list[tuple[str, Any]]:
    if isinstance(x, str | bytes | int | float | complex | np.ndarray | type | ModuleType | None) or _is_jax_array(x):
        return []
    if isinstance(x, dict):
        return [(f"[{k!r}]", v) for k, v in islice(x.items(), OBJECTS)]
    if isinstance(x, list | tuple | set | frozenset):
        return [(f"[{i}]", v) for i, v in enumerate(islice(x, OBJECTS))]
    if isinstance(x, FunctionType):
        return _of_function(x)
    parts = [(f".{k}", v) for k, v in getattr(x, "__dict__", {}).items()]
    parts += [(f".{k}", _attribute(x, k)) for k in ("__self__", "__func__", "func", "args", "keywords", *_slots(x))]
    own = [(k, v) for c in type(x).__mro__ for k, v in vars(c).items()]
    parts += [(f".{k}", v) for k, v in own if isinstance(v, GENERATORS)]
    return parts + [("", v) for k, v in own if k in ("__call__", "reset")]


def _of_function(f: FunctionType) -> list[tuple[str, Any]]:
    """Return pairs (name, value) for the objects through which a function may reach a random generator.

    These are the variables that the function closes over, its default arguments, and the random generators among the
    global variables that its code mentions.
    """
    parts = list(zip(f.__code__.co_freevars, map(_content, f.__closure__ or ()), strict=True))
    parts += [("defaults", f.__defaults__), ("keywords", f.__kwdefaults__)]
    named = ((k, f.__globals__.get(k)) for k in f.__code__.co_names)
    return [(f".{k}", v) for k, v in [*parts, *((k, v) for k, v in named if isinstance(v, GENERATORS))]]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _attribute(x: Any, name: str) -> Any:
    try:
        return getattr(x, name, None)
    except Exception:  # a property of a user's class may raise any exception
        return None


def _slots(x: Any) -> list[str]:
    slots = [getattr(c, "__slots__", ()) for c in type(x).__mro__]
    return [k for s in slots for k in ((s,) if isinstance(s, str) else s)]
