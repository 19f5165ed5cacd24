"""A pump: when should it be inspected or replaced, if breakdowns are limited?

Data: pump.csv, a table with one row for each transition. Should print CERTIFIED and write maintenance.csv and
maintenance.png.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import clearance as cl

file = Path(__file__).parent / "data/pump.csv"
model = cl.from_table(file, gamma=0.97, limits={"breakdowns": 0.3}, initial="as new")
best = cl.optimum(model)
print(cl.certify(model, best))
cl.save_policy(best, "maintenance.csv", model)

fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
below = np.zeros(model.S)
for action, share in zip(model.actions or (), best.policy.T, strict=True):
    left.bar(model.states, share, bottom=below, label=action)
    below += share
left.set(ylabel="probability of the action", title="The policy")
left.tick_params(axis="x", rotation=30, labelsize=8)
left.legend(fontsize=8)
curve = cl.frontier(model, points=15)
right.plot(curve.limit, curve.J_r, marker=".")
right.set(xlabel="limit: breakdowns, discounted", ylabel="earnings, discounted", title="What the limit costs")
fig.savefig("maintenance.png", dpi=90)
