"""Fingerprints of runs: the hashes of policy, certificate and trace, to show that a change of code changes no bit.

    python benchmarks/fingerprints.py --write before.json      with the code before the change
    python benchmarks/fingerprints.py --compare before.json    with the code after it, on the same machine

A hash depends on the processor and on the versions of NumPy, JAX and BLAS, so that files of different machines cannot
be compared. Texts (messages, scopes) are not hashed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import clearance as cl  # noqa: E402

TRACE = ("theta", "lam", "J_hat", "omega_norm", "steps", "counts", "J")
NUMBERS = ("J_r", "J_g", "b", "slack", "J_lower", "J_upper", "bound", "gap", "lam", "complementarity")
COUNTS = ("verdict", "components", "evidence", "delta", "episodes", "env_steps")


def hash_arrays(*arrays: Any) -> str:
    found = hashlib.sha256()
    for x in arrays:
        a = np.ascontiguousarray(x)
        found.update(f"{a.dtype}{a.shape}".encode() + a.tobytes())
    return found.hexdigest()[:16]


def hash_policy(policy: Any) -> str:
    rows = policy.pi if hasattr(policy, "pi") else policy.theta
    return hash_arrays(policy.weights, rows)


def hash_certificate(certificate: Any) -> str:
    data = certificate.asdict()
    text = json.dumps([data[name] for name in (*NUMBERS, *COUNTS)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(solution: Any) -> dict[str, str]:
    trace = hash_arrays(*(getattr(solution.trace, name) for name in TRACE), solution.state.theta, solution.state.lam)
    return {
        "policy": hash_policy(solution.policy),
        "certificate": hash_certificate(solution.certificate),
        "trace": trace,
    }


def small_model() -> cl.CMDP:
    return cl.zoo.random_cmdp(3)


class Interrupt:
    """A progress function that interrupts the run at its n-th call."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, *_: Any) -> None:
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt


def finite(method: Any = None, **how: Any) -> Callable[[], dict[str, str]]:
    return lambda: fingerprint(cl.solve(small_model(), method, seed=7, **how))


def features() -> dict[str, str]:
    model = small_model()
    method = cl.CNPGPD(K=300, N=20, kappa=0.0, lam_max=50.0)
    phi = np.random.default_rng(5).normal(size=(model.S, model.A, 35))
    return fingerprint(cl.solve(model, method, policy=cl.linear_softmax(phi), seed=1))


def network() -> dict[str, str]:
    model = small_model()
    method = cl.CNPGPD(K=12, N=20, direction=cl.LeastSquares(), kappa=0.0, lam_max=50.0)
    return fingerprint(cl.solve(model, method, policy=cl.two_layer(model.S, model.A, 16, seed=2), seed=1))


def interrupted() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "run")
        how = {"seed": 4, "evidence": "samples", "budget": 4e5}
        try:
            cl.solve(small_model(), out=out, checkpoint_every=5, progress=Interrupt(3), **how)
        except KeyboardInterrupt:
            return fingerprint(cl.resume(out))
        raise AssertionError("the run was not interrupted")


def swept() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "grid")
        cl.sweep("bai2023", {"seed": [0, 1], "kappa": [0, 0.1]}, out=out, method="cnpgpd", K=40, N=5)
        found = {}
        for point in sorted(p for p in out.rglob("policy.npz")):
            run = cl.run.load(point.parent)
            found[f"policy {point.parent.name}"] = hash_policy(run.policy)
            found[f"certificate {point.parent.name}"] = hash_certificate(run.certificate)
        assert len(found) == 8
        return found


def pole() -> Any:
    import gymnasium

    def tilt(obs: Any, action: Any, after: Any, info: Any) -> float:
        return float(abs(after[2]) > 0.05)

    def make() -> Any:
        return gymnasium.make("CartPole-v1")

    return cl.gymnasium(make, constraints=tilt, limits=2.0, horizon=20, num_envs=2, bounds=(0.0, 1.0))


def gym_run(method: Any = None) -> Callable[[], dict[str, str]]:
    def run() -> dict[str, str]:
        how = method or cl.PracticalCNPGPD(K=8, N=240, kappa=0.2)
        return fingerprint(cl.solve(pole(), how, policy=cl.categorical((8,)), budget=12000, seed=5, delta=0.1))

    return run


def gym_algorithm1() -> dict[str, str]:
    import gymnasium

    problem = cl.gymnasium(
        lambda: gymnasium.make("CartPole-v1"),
        constraints=lambda obs, action, after, info: float(action),
        limits=8.0,
        gamma=0.9,
        num_envs=2,
        bounds=(0.0, 1.0),
    )
    method = cl.CNPGPD(K=4, N=30, kappa=0.5, lam_max=20.0, direction=cl.LeastSquares())
    return fingerprint(cl.solve(problem, method, policy=cl.categorical((4,)), budget=40000, seed=5, delta=0.1))


def jax_run(method: Any) -> Callable[[], dict[str, str]]:
    def run() -> dict[str, str]:
        env = simulated_zoo().navigation(horizon=40)
        return fingerprint(cl.solve(env, method, policy=cl.gaussian((8,)), budget=30000, seed=5, delta=0.1))

    return run


def simulated_zoo() -> Any:
    """The JAX environments of the zoo, in this version or in version 0.1."""
    import importlib
    import importlib.util

    places = [f"clearance.{place}" for place in ("simulator.zoo", "zoo.simulated")]
    return importlib.import_module(places[importlib.util.find_spec(places[0]) is None])


def lqr() -> dict[str, str]:
    env, method = simulated_zoo().double_integrator(), cl.PracticalCNPGPD(K=20, N=2000)
    return fingerprint(cl.solve(env, method, policy=cl.gaussian(()), budget=1e5, seed=0))


def interrupted_simulator() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "run")
        how = {"policy": cl.categorical((8,)), "budget": 12000, "seed": 5, "delta": 0.1}
        method = cl.PracticalCNPGPD(K=8, N=240, kappa=0.2)
        try:
            cl.solve(pole(), method, out=out, checkpoint_every=2, progress=Interrupt(5), **how)
        except KeyboardInterrupt:
            return fingerprint(cl.resume(out, pole()))
        raise AssertionError("the run was not interrupted")


def certified_table() -> dict[str, str]:
    model = cl.zoo.two_state()
    best = cl.optimum(model)
    exact, sampled = cl.certify(model, best.policy), cl.certify(model, best.policy, evidence="samples", seed=3)
    rule = cl.certify(model, lambda s: 0, evidence="samples", budget=2e4, seed=3)
    return {n: hash_certificate(c) for n, c in (("exact", exact), ("samples", sampled), ("rule", rule))}


K: dict[str, Any] = {"K": 120, "N": 10}
RUNS: dict[str, Callable[[], dict[str, str]]] = {
    "regularised, exact": finite(cl.RegularisedCNPGPD(**K)),
    "regularised, exact, defaults": finite(budget=2e5),
    "regularised, samples": finite(evidence="samples", budget=1e6),
    "cnpgpd": finite(cl.CNPGPD(**K)),
    "cnpgpd, samples": finite(cl.CNPGPD(**K), evidence="samples", budget=1e6),
    "cnpgpd, least squares": finite(cl.CNPGPD(**K, direction=cl.LeastSquares())),
    "npgpd": finite(cl.NPGPD(**K)),
    "npgpd, weighted": finite(cl.NPGPD(**K, direction=cl.WeightedSGD())),
    "pdanpg": finite(cl.PDANPG(**K)),
    "crpo": finite(cl.CRPO(K=120)),
    "pmdpd": finite(cl.PMDPD(**K)),
    "pdnac": finite(cl.PDNAC(K=60)),
    "rpgpd": finite(cl.RPGPD(K=120)),
    "opgpd": finite(cl.OPGPD(K=120)),
    "model based": finite(cl.ModelBased()),
    "35 features": features,
    "two-layer network": network,
    "interrupted and resumed, samples": interrupted,
    "sweep": swept,
    "certify": certified_table,
    "gymnasium": gym_run(),
    "gymnasium, crpo": gym_run(cl.PracticalCRPO(K=8, N=240)),
    "gymnasium, Algorithm 1": gym_algorithm1,
    "gymnasium, interrupted and resumed": interrupted_simulator,
    "jax": jax_run(cl.PracticalCNPGPD(K=8, N=400)),
    "lqr": lqr,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Fingerprints of runs.")
    parser.add_argument("--write", metavar="FILE", help="write the fingerprints to this file")
    parser.add_argument("--compare", metavar="FILE", help="compare with the fingerprints of this file")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the runs whose name contains this text")
    args = parser.parse_args()
    before = json.loads(Path(args.compare).read_text()) if args.compare else {}
    found, different = {}, 0
    for name, run in RUNS.items():
        if args.only not in name:
            continue
        began = time.perf_counter()
        found[name] = run()
        same = "" if not args.compare else "same" if found[name] == before.get(name) else "DIFFERENT"
        different += same == "DIFFERENT"
        parts = "" if same == "same" else " ".join(f"{k}={v}" for k, v in found[name].items())
        print(f"{name:40} {time.perf_counter() - began:6.1f} s  {same or 'recorded'} {parts}", flush=True)
    if args.write:
        Path(args.write).write_text(json.dumps(found, indent=1) + "\n")
    return int(different > 0)


if __name__ == "__main__":
    raise SystemExit(main())
