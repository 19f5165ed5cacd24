"""A shop: how much to order each evening, if at most a given share of the demand may be lost?

Data: demand.csv, how many days had which demand. Should print CERTIFIED and write inventory.csv and inventory.png.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt

import clearance as cl

SHELF, PRICE, COST, KEEP, ORDER, GAMMA = 24, 5.0, 3.0, 0.08, 4.0, 0.98

with open(Path(__file__).parent / "data/demand.csv", newline="") as file:
    days = {int(row["demand"]): int(row["days"]) for row in csv.DictReader(file)}
demand = {d: n / sum(days.values()) for d, n in days.items()}


def after(stock, order):
    chances = {}
    for d, p in demand.items():
        left = max(stock + order - d, 0)
        chances[left] = chances.get(left, 0.0) + p
    return chances


def profit(stock, order):
    sold = sum(p * min(d, stock + order) for d, p in demand.items())
    return PRICE * sold - COST * order - KEEP * stock - ORDER * (order > 0)


def lost(stock, order):
    return sum(p * max(d - stock - order, 0) for d, p in demand.items())


mean = sum(d * p for d, p in demand.items())
model = cl.model(
    states=list(range(SHELF + 1)),
    actions=lambda stock: list(range(SHELF - stock + 1)),
    transitions=after,
    reward=profit,
    costs={"lost sales [pieces]": lost},
    limits={"lost sales [pieces]": 0.02 * mean / (1 - GAMMA)},  # two per cent of the demand
    initial=0,
    gamma=GAMMA,
)
best = cl.optimum(model)
print(cl.certify(model, best))
cl.save_policy(best, "inventory.csv", model)

fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
orders = best.policy @ [float(a) for a in model.actions or ()]
left.bar(range(SHELF + 1), orders)
left.set(xlabel="stock in the evening", ylabel="pieces to order", title="The policy")
curve = cl.frontier(model, points=15)
right.plot(100 * curve.limit * (1 - GAMMA) / mean, curve.J_r * (1 - GAMMA), marker=".")
right.set(xlabel="limit: lost sales, % of the demand", ylabel="profit per day", title="What the limit costs")
fig.savefig("inventory.png", dpi=90)
