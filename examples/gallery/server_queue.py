"""A server with a queue: how fast should it work, if power costs money and waiting is limited?

Data: speeds.csv, what each speed of the server does and costs. Should print CERTIFIED and write
server_queue.csv and server_queue.png.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt

import clearance as cl

ROOM, ARRIVAL = 60, 0.4  # places in the queue; the chance of an arrival in one second

with open(Path(__file__).parent / "data/speeds.csv", newline="") as file:
    speeds = {row["speed"]: (float(row["service_probability"]), float(row["watts"])) for row in csv.DictReader(file)}


def after(waiting, speed):
    served = speeds[speed][0] if waiting else 0.0
    chances = {}
    for arrives, p in ((1, ARRIVAL), (0, 1 - ARRIVAL)):
        for leaves, q in ((1, served), (0, 1 - served)):
            n = min(waiting + arrives - leaves, ROOM)
            chances[n] = chances.get(n, 0.0) + p * q
    return chances


model = cl.model(
    states=list(range(ROOM + 1)),
    actions=list(speeds),
    transitions=after,
    reward=lambda waiting, speed: -speeds[speed][1] / 1000,
    costs={"waiting [customers]": lambda waiting, speed: waiting},
    limits={"waiting [customers]": 300.0},  # discounted: 3 customers on average
    initial=0,
    gamma=0.99,
)
best = cl.optimum(model)
print(cl.certify(model, best))
cl.save_policy(best, "server_queue.csv", model)

fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained", width_ratios=[1.3, 1])
left.stackplot(range(ROOM + 1), best.policy.T, labels=list(speeds), step="mid", alpha=0.8)
left.set(xlabel="customers in the system", ylabel="probability of the speed", title="The policy", xlim=(0, 20))
left.legend(fontsize=8)
curve = cl.frontier(model, points=15)
right.plot(curve.limit / 100, -curve.J_r / 100, marker=".")
right.set(xlabel="limit: customers on average", ylabel="kW on average", title="What the limit costs")
fig.savefig("server_queue.png", dpi=90)
