"""Episodes of a policy on a simulator against what is known of them by hand; figures, recordings and the frontier."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learners import learn, point, pole
from lines import Line, go
from runs import cli

import clearance as cl
from clearance.reporting.recording import record_episodes
from clearance.zoo import simulated


def line(limit: float = 5.0, horizon: int | None = 20, gamma: float | None = None, **more: Any) -> Any:
    how: dict[str, Any] = {"horizon": horizon, "gamma": gamma, "bounds": (0.0, 1.0), "num_envs": 2} | more
    return cl.gymnasium(Line, limits={"toll": limit}, constraints=lambda o, a, n, info: {"toll": info["cost"]}, **how)


def test_a_rule_by_hand() -> None:
    """Going always takes 10 steps at cost 1 each; staying earns nothing until the horizon; γ discounts the sums."""
    seen = cl.evaluate(line(), go, episodes=8)
    assert seen.returns.tolist() == seen.values[:, 0].tolist() == [10.0] * 8 and seen.lengths.tolist() == [10] * 8
    assert seen.beyond.tolist() == [1.0] and seen.limits.tolist() == [5.0]
    stay = cl.evaluate(line(), lambda obs: 0, episodes=4)
    assert stay.returns.tolist() == [0.0] * 4 and stay.lengths.tolist() == [20] * 4 and stay.beyond.tolist() == [0.0]
    discounted = cl.evaluate(line(horizon=None, gamma=0.5), go, episodes=3)
    np.testing.assert_allclose(discounted.returns, 2 * (1 - 0.5**10), rtol=1e-12)
    free = cl.evaluate(line(horizon=None, gamma=0.5), lambda obs: 0, episodes=3)
    assert free.lengths.tolist() == [10] * 3  # until γ^t ≤ 10⁻³


@pytest.mark.parametrize("make", [pole, pytest.param(point, marks=pytest.mark.slow)])
def test_networks_on_both_kinds_of_simulators(make: Any) -> None:
    """The mean of the episodes is what a certificate from fresh episodes says, up to their spread."""
    simulator = make()
    found = learn(simulator, None)
    seen = cl.evaluate(simulator, found.policy, episodes=300, seed=1)
    other = cl.evaluate(simulator, found, episodes=300, seed=2)
    low, high = seen.interval
    spread = (high - low) / 2 / 1.96
    assert np.all(np.abs(seen.mean - other.mean) < 6 * np.sqrt(2) * spread + 1e-9)
    assert seen.lengths.max() <= simulator.statement.horizon and seen.episodes == 300
    assert not np.array_equal(seen.returns, other.returns)
    again = cl.evaluate(simulator, found.policy, episodes=300, seed=1)
    np.testing.assert_array_equal(seen.returns, again.returns)


def test_a_mixture_follows_its_components_once_per_episode() -> None:
    """Two networks that always stay or always go, with weights ¼ and ¾."""
    policy = cl.categorical(()).fitted((1,), cl.Discrete(2))
    theta = np.array([[0.0, 0.0, 40.0, 0.0], [0.0, 0.0, 0.0, 40.0]])  # weights [2, 1], then biases
    mixture = cl.NetworkMixture(policy, np.array([0.25, 0.75]), theta, cl_identity(1))
    seen = cl.evaluate(line(), mixture, episodes=400)
    assert set(seen.returns.tolist()) == {0.0, 10.0}
    low, high = (x[0] for x in seen.beyond_interval)
    assert abs(seen.beyond[0] - 0.75) < 6 * np.sqrt(0.1875 / 400) and low < seen.beyond[0] < high


def cl_identity(n: int) -> Any:
    from clearance.simulator.policies.network_policy import Normaliser

    return Normaliser.identity(n)


def test_intervals_cover() -> None:
    """Clopper–Pearson bounds of 0 and of all episodes, against their closed forms."""
    seen = cl.evaluate(line(), go, episodes=50)
    low, high = seen.beyond_interval
    assert high[0] == 1.0 and low[0] == pytest.approx(0.025 ** (1 / 50))
    stay = cl.evaluate(line(), lambda obs: 0, episodes=50)
    assert stay.beyond_interval[0][0] == 0.0 and stay.beyond_interval[1][0] == pytest.approx(1 - 0.025 ** (1 / 50))


def test_words_tables_and_files(tmp_path: Path) -> None:
    seen = cl.evaluate(line(), go, episodes=5)
    assert "5 episodes of Line" in repr(seen) and "toll" in seen._repr_html_()
    rows = {row["name"]: row for row in seen.table()}
    assert list(rows) == ["return", "toll", "length"] and rows["toll"]["limit"] == 5.0 and rows["toll"]["beyond"] == 1.0
    seen.save(tmp_path / "episodes.csv")
    with open(tmp_path / "episodes.csv") as f:
        assert list(csv.reader(f))[:2] == [["return", "toll", "length"], ["10.0", "10.0", "10.0"]]
    assert len(seen.plot().axes) == 2


@pytest.mark.parametrize("call, said", [
    (lambda: cl.evaluate(line(), go, episodes=1), "episodes must be a whole number from 2"),
    (lambda: cl.evaluate(line(), 3), "policy must be a NetworkMixture"),
    (lambda: cl.evaluate(cl.zoo.two_state(), [[1, 0], [1, 0]], episodes=5), "a finite model is evaluated exactly"),
    (lambda: cl.evaluate(simulated.cartpole(), lambda obs: 7, episodes=2), "which is no action of"),
    (lambda: cl.frontier(line()), "at is missing"), (lambda: line().replace(gamma=0.5), "replace takes limit or b"),
    (lambda: cl.frontier(line(), "heat", at=[1.0]), "'heat' is none of toll"),
])  # fmt: skip
def test_what_cannot_be_evaluated(call: Any, said: str) -> None:
    with pytest.raises(cl.InputError, match=said):
        call()


def test_the_frontier_of_a_simulator(tmp_path: Path) -> None:
    """Warm-started runs from the loosest limit on; the origin of each is the run before."""
    method = cl.PracticalCNPGPD(K=6, N=160, kappa=0.3)
    curve = cl.frontier(line(), at=[4.0, 8.0], budget=9000, delta=0.2, method=method, out=tmp_path / "runs")
    assert curve.limit.tolist() == [8.0, 4.0] and curve.name == "toll" and len(curve.plot().axes) == 1
    assert curve.certificates[0].origin is None and "a run of seed 0" in (curve.certificates[1].origin or "")
    assert cl.run.load(tmp_path / "runs/limit-4").problem.b.tolist() == [-4.0]
    curve.save(tmp_path / "curve.csv")
    assert (tmp_path / "curve.csv").read_text().splitlines()[0] == "limit,J_r,value,verdict,env_steps"


def test_episodes_are_recorded(tmp_path: Path) -> None:
    from PIL import Image

    seen = record_episodes(Line(), go, tmp_path / "line.gif", episodes=2)
    assert seen["returns"] == [10.0, 10.0] and seen["frames"] == 22
    with Image.open(tmp_path / "line.gif") as image:
        assert image.size == (40, 16) and 10 <= image.n_frames <= 22  # type: ignore[attr-defined]  # equal frames are one
    with pytest.raises(cl.InputError, match="render_mode='rgb_array'"):
        record_episodes(Line(render_mode=None), go, tmp_path / "a.gif")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    support = str(Path(__file__).resolve().parents[1] / "support")
    monkeypatch.syspath_prepend(support)
    asked = "lines:Line lines:go --limits 5 --horizon 20 --num_envs 1"
    status, out, err = cli(f"evaluate {asked} --episodes 6 --json --out {tmp_path}/h.png", capsys)
    found = json.loads(out)
    assert status == 0 and found["table"][1]["beyond"] == 1.0 and (tmp_path / "h.png").stat().st_size > 1000, err
    status, out, err = cli(f"evaluate {asked} --episodes 6", capsys)
    assert status == 0 and "cost" in out and "100 %" in out
    status, out, err = cli(f"watch lines:Line lines:go --out {tmp_path}/w.gif", capsys)
    assert status == 0 and (tmp_path / "w.gif").exists(), err
    silent = f"watch lines:silent lines:go --out {tmp_path}/w.gif"
    wrongs = {"watch two-state lines:go --out w.gif": "two-state", silent: "rgb_array"}
    for wrong, said in (wrongs | {"evaluate two-state lines:go": "clearance certify"}).items():
        status, out, err = cli(wrong, capsys)
        assert status == 2 and said in err and err.count("\n") == 1


def test_costs_and_limits_by_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "support"))
    asked = "evaluate lines:Line lines:go --horizon 20 --num_envs 1 --episodes 4 --json --cost info.cost"
    status, out, _ = cli(f"{asked} --cost road=info.toll.road --limit road=9 --limit cost=12", capsys)
    rows = {row["name"]: row for row in json.loads(out)["table"]}
    assert (
        status == 0 and rows["road"]["limit"] == 9.0 and rows["cost"]["limit"] == 12.0 and rows["road"]["mean"] == 10.0
    )
    for more, said in {
        "--limit heat=3": "must have the same names", "": "give --limit NAME=NUMBER",
        "--cost road": "must be info.NAME",
        "--cost info.toll.lane --limit cost=3,lane=3": "info.toll has no 'lane'", "--limits 3,4": "2 entries for 1",
        "--constraints lines:go --limit cost=3": "give one of them",
    }.items():  # fmt: skip
        status, out, _ = cli(f"{asked} {more}", capsys)
        assert status == 2 and said in json.loads(out)["message"], (more, out)


def test_tensorboard_from_python(tmp_path: Path) -> None:
    from runs import events

    seen: list[int] = []
    cl.solve(
        cl.zoo.two_state(), cl.CNPGPD(K=30), tensorboard=tmp_path / "board", progress=lambda *x: seen.append(x[1].k)
    )
    assert "J_hat/reward" in events(str(tmp_path / "board")) and seen[-1] == 30
