"""A user's own finite model: a machine that wears out, with a limit on breakdowns.

Should print a CERTIFIED policy whose reward is within a few per cent of the exact optimum.
"""

import numpy as np

import clearance as cl

# States: new, worn, broken. Actions: run, maintain. Running earns 1 but wears; a broken machine must be repaired.
P = np.zeros((3, 2, 3))
P[0, 0] = [0.8, 0.2, 0.0]
P[1, 0] = [0.0, 0.9, 0.1]
P[2, 0] = P[2, 1] = [0.5, 0.0, 0.5]
P[0, 1] = P[1, 1] = [1.0, 0.0, 0.0]
r = np.array([[1.0, -1.0], [1.0, -1.0], [0.0, 0.0]])
broken = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])

cmdp = cl.CMDP(P, r, cost=broken, limit=1.0, gamma=0.95, rho=[1, 0, 0], names=["time broken"])

best = cl.optimum(cmdp)
print(f"optimum {best.J_r:.3f}, what one more unit of the limit would earn: {best.lam[0]:.3f}")

# The model is known, so the gradients can be exact; leave `sampler` and `direction` out to learn from samples.
policy = cl.softmax(cmdp.S, cmdp.A)
method = cl.CNPGPD(K=3000, N=1, kappa=0.1, eta1=0.02, eta2=0.02, direction=cl.Tabular())
sol = cl.solve(cmdp, method, policy=policy, sampler=cl.Exact(cmdp, policy))
cert = cl.certify(cmdp, sol.policy)
print(f"{cert.verdict}: reward {cert.J_r:.3f}, slack {cert.slack[0]:.3f} (should be ≥ 0), gap {cert.gap:.3f}")
