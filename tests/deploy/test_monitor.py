"""The runtime monitor: few false alarms, short delays, and a state that survives a kill."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.certificates.certificate import Certificate, build_certificate
from clearance.deploy.change_test import BETS, Scale, advance, evidence


def certificate(limits: list[float], costs: bool = True, verdict: Any = "CERTIFIED") -> Certificate:
    """A certificate of a policy that keeps these limits, written as costs or as utilities."""
    b = -np.array(limits) if costs else np.array(limits)
    J = np.concatenate([[1.0], b + 0.01])
    names = [f"cost{i}" for i in range(len(b))]
    return build_certificate(verdict, J, (J, J), b, evidence="exact", parts=[J], components=1, message="", scope="",
                             names=names, costs=[costs] * len(b))  # fmt: skip


def alarm_at(monitor: cl.Monitor, costs: Any) -> int:
    """The episode of the alarm; 0 without one."""
    for t, cost in enumerate(costs, 1):
        try:
            monitor.record(cost)
        except cl.LimitAlarm:
            return t
    return 0


def test_a_policy_at_its_limit_seldom_raises_an_alarm() -> None:
    """1,000 deployments over 2,000 episodes at δ = 0.2. The chance of more than 245 alarms is below 3e-4 if the
    probability of one is 0.2, and the theorem says that it is no more.
    """
    rng, scale, S = np.random.default_rng(0), Scale(0.1, 0.0), np.zeros((1000, len(BETS)))
    alarmed = np.zeros(1000, bool)
    for t in range(1, 2001):
        S = advance(S, scale.gain(rng.random(1000) < 0.1), t)
        alarmed |= evidence(S, t, scale.rounding) >= 1 / 0.2
    assert 5 < alarmed.sum() < 245


def test_the_capital_is_fair_at_the_limit() -> None:
    """E M_t = 1 exactly, enumerated over all 2^10 sequences of costs 0 and 1 with mean at the limit."""
    scale, p, t = Scale(0.3, 0.0), 0.3, 10
    sequences = (np.arange(2**t)[:, None] >> np.arange(t)) & 1
    S = np.zeros((2**t, len(BETS)))
    for k in range(t):
        S = advance(S, scale.gain(sequences[:, k]), k + 1)
    chance = np.prod(np.where(sequences == 1, p, 1 - p), axis=1)
    assert chance @ evidence(S, t, 0.0) == pytest.approx(1.0, abs=1e-12)


def test_the_recursion_is_the_mixture_over_start_times() -> None:
    x, scale, T = np.random.default_rng(1).random(50), Scale(0.4, 0.1), 50
    z, S = scale.gain(x + 0.1), np.zeros(len(BETS))
    for t in range(1, T + 1):
        S = advance(S, z[t - 1], t)
    each = [np.mean(np.prod(1 + BETS * z[k - 1 :, None], axis=0)) / (k * (k + 1)) for k in range(1, T + 1)]
    assert evidence(S, T, 0.0) == pytest.approx(sum(each) + 1 / (T + 1), rel=1e-12)


@pytest.mark.parametrize("good, most", [(0, 400), (2000, 900)])
def test_a_shift_is_noticed_soon(good: int, most: int) -> None:
    """Twice the limit: at the start, and after a good time in which a single long bet would have lost its capital."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.random(good + most) < np.where(np.arange(good + most) < good, 0.05, 0.2)
        found.append(alarm_at(cl.Monitor(None, certificate([0.1]), delta=0.05), x.astype(float)) - good)
    assert all(0 < t <= most for t in found), found


def test_costs_utilities_and_names_mean_the_same() -> None:
    x = (np.random.default_rng(2).random(600) < 0.5).astype(float)
    by_cost = alarm_at(cl.Monitor(None, certificate([0.2])), x)
    by_utility = alarm_at(cl.Monitor(None, certificate([-0.2], costs=False), best=0.0), -x)
    two = cl.Monitor(None, certificate([0.2, 3.0]), delta=0.02)
    by_name = alarm_at(two, [{"cost1": 1.0, "cost0": v} for v in x])
    assert by_cost == by_utility == by_name > 0  # each of two limits has half of δ
    assert "cost0 does not keep its limit 0.2" in two.alarm


def test_steps_are_discounted_and_end_at_the_horizon() -> None:
    monitor = cl.Monitor(None, certificate([5.0, 5.0]), gamma=0.5, horizon=2)
    for _ in range(3):
        for cost in ([1.0, 0.0], [2.0, 4.0], [100.0, 100.0]):
            monitor.step(cost)
        monitor.end_episode()
    assert monitor.episodes == 3
    np.testing.assert_allclose(monitor.means, [2.0, 2.0])
    with pytest.raises(cl.InputError, match="no step"):
        monitor.end_episode()
    with pytest.raises(cl.InputError, match="give gamma"):
        cl.Monitor(None, certificate([5.0])).step(1.0)


def test_a_limit_of_zero_is_refuted_by_one_cost() -> None:
    monitor = cl.Monitor(None, certificate([0.0]))
    assert alarm_at(monitor, [0.0] * 50 + [1e-9]) == 51


def test_after_an_alarm_the_fallback_acts() -> None:
    class Policy:
        def act(self, obs: Any) -> str:
            return "policy"

    monitor = cl.Monitor(Policy(), certificate([0.1]), fallback=lambda obs: "safe")
    assert monitor.act(0) == "policy"
    for _ in range(30):
        monitor.record(1.0)
    assert monitor.alarm and monitor.act(0) == "safe"
    raising = cl.Monitor(Policy(), certificate([0.1]))
    assert alarm_at(raising, np.ones(30)) > 0
    for call in (lambda: raising.act(0), lambda: raising.record(0.0)):
        with pytest.raises(cl.LimitAlarm, match="cost0 does not keep its limit"):
            call()


def test_a_restart_continues_the_test(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new object from the state after every episode; one that is gone between two steps loses that episode only."""
    x, path = (np.random.default_rng(3).random(300) < 0.4).astype(float), tmp_path / "monitor.json"
    whole = cl.Monitor(None, certificate([0.1]))
    t = alarm_at(whole, x)
    assert t > 3
    with caplog.at_level(logging.INFO, "clearance.deploy.monitor"):
        for cost in x[: t - 1]:
            cl.Monitor(None, certificate([0.1]), state=path).record(cost)
        cut = cl.Monitor(None, certificate([0.1]), state=path, gamma=1.0)
        cut.step(1.0)
        with pytest.raises(cl.LimitAlarm):
            cl.Monitor(None, certificate([0.1]), state=path).record(x[t - 1])
    again = cl.Monitor(None, certificate([0.1]), state=path)
    assert again.alarm == whole.alarm and again.episodes == t
    np.testing.assert_array_equal(again.capital, whole.capital)
    with pytest.raises(cl.LimitAlarm):  # an alarm does not end with the process
        again.record(0.0)
    assert "continued: episode" in caplog.text and "alarm: cost0" in caplog.text


KILLED = """
import sys, time, pickle, clearance as cl
monitor = cl.Monitor(None, pickle.loads(bytes.fromhex(sys.argv[2])), state=sys.argv[1])
while monitor.episodes < 40:  # before the alarm, however slow the parent is
    monitor.record(float(monitor.episodes % 3 == 0))
    time.sleep(0.002)
time.sleep(600)
"""


def test_a_kill_loses_no_episode_that_was_recorded(tmp_path: Path) -> None:
    """Killed twice in the middle of its work, then continued here to the alarm: as if nothing had happened."""
    seen, path = certificate([0.2]), tmp_path / "monitor.json"
    for least in (5, 10):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), pickle.dumps(seen).hex()])
        while not path.exists() or json.loads(path.read_text())["episodes"] < least:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
    whole, again = cl.Monitor(None, seen), cl.Monitor(None, seen, state=path)
    assert again.episodes >= 10 and not again.alarm
    costs = [float(t % 3 == 0) for t in range(1000)]
    before = again.episodes
    assert before + alarm_at(again, costs[before:]) == alarm_at(whole, costs) > 50
    np.testing.assert_array_equal(again.capital, whole.capital)


@pytest.mark.parametrize("change, said", [
    ({"about": "x"}, "belongs to another statement"), ({"episodes": 0}, "was altered"), ({"episodes": True}, "altered"),
    ({"capital": [[1.0]]}, "was altered"), ({"sums": ["a"]}, "was altered"), ({"schema": "x"}, "expected"),
    ({"alarm": 1}, "was altered"), ({"capital": [[-1.0] * len(BETS)]}, "was altered"),
])  # fmt: skip
def test_an_altered_state_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    cl.Monitor(None, certificate([0.1]), state=path).record(0.0)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(cl.InputError, match=said):
        cl.Monitor(None, certificate([0.1]), state=path)


@pytest.mark.parametrize("how, said", [
    ({"delta": 1.5}, "delta must be"), ({"best": [0.0, 1.0]}, "best must be 1 finite"), ({"best": 0.2}, "breaks its"),
    ({"gamma": 0.0}, "gamma must be"), ({"certificate": None}, "got none"),
    ({"certificate": certificate([0.1], verdict="UNDECIDED")}, "states no limit that holds"),
    ({"certificate": certificate([0.1], costs=False)}, "best must say how large cost0"),
])  # fmt: skip
def test_wrong_settings_are_refused(how: dict[str, Any], said: str) -> None:
    settings: dict[str, Any] = {"certificate": certificate([0.1])} | how
    with pytest.raises(cl.InputError, match=said):
        cl.Monitor(None, **settings)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.1, [0.0, 0.0], "a", None, {"other": 0.0}, {}])
def test_wrong_costs_are_refused_and_not_counted(wrong: Any) -> None:
    monitor = cl.Monitor(None, certificate([0.1]))
    with pytest.raises(cl.InputError):
        monitor.record(wrong)
    assert monitor.episodes == 0 and not monitor.sums.any()
