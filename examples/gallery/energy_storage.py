"""A battery beside a solar roof: when to charge and discharge, if wear is limited?

Data: hours.csv, the price of electricity and the sun for each hour of the day. Should print CERTIFIED and write
energy_storage.csv and energy_storage.png.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt

import clearance as cl

FULL, GAMMA, LOSS = 8, 0.995, 0.1  # kWh that the battery holds; one step is an hour; what charging loses
ACTIONS = {"discharge 2": -2, "discharge 1": -1, "wait": 0, "charge 1": 1, "charge 2": 2}

with open(Path(__file__).parent / "data/hours.csv", newline="") as file:
    hours = [(float(row["price"]), float(row["sun_kwh"]), float(row["load_kwh"])) for row in csv.DictReader(file)]


def after(state, action):
    hour, level, cloudy = state
    level, hour = level + ACTIONS[action], (hour + 1) % 24
    return {(hour, level, cloudy): 0.85, (hour, level, not cloudy): 0.15}


def earnings(state, action):
    hour, _, cloudy = state
    price, sun, load = hours[hour]
    bought = load - sun * (0.3 if cloudy else 1.0) + ACTIONS[action] * (1 + LOSS * (ACTIONS[action] > 0))
    return -price * bought if bought > 0 else -0.4 * price * bought  # what is fed in earns less


states = [(hour, level, cloudy) for hour in range(24) for level in range(FULL + 1) for cloudy in (False, True)]
model = cl.model(
    states=states,
    initial=(0, 4, False),
    actions=lambda state: [name for name, kwh in ACTIONS.items() if 0 <= state[1] + kwh <= FULL],
    transitions=after,
    reward=earnings,
    costs={"throughput [kWh]": lambda state, action: abs(ACTIONS[action])},
    limits={"throughput [kWh]": 60.0},  # discounted: 0.3 kWh an hour, less than one full cycle a day
    gamma=GAMMA,
)
best = cl.optimum(model)
print(cl.certify(model, best))
cl.save_policy(best, "energy_storage.csv", model)

fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
kwh = [ACTIONS[name] for name in model.actions or ()]
flow, visits = best.d @ kwh, best.d.sum(axis=1)
by_hour = [[s for s, (hour, *_) in enumerate(states) if hour == h] for h in range(24)]
left.bar(range(24), [flow[s].sum() / visits[s].sum() for s in by_hour], label="charged, on average")
left.plot(range(24), [10 * price for price, *_ in hours], color="tab:red", label="price per 10 kWh")
left.set(xlabel="hour of the day", ylabel="kWh", title="The policy")
left.legend(fontsize=8)
curve = cl.frontier(model, points=11)
right.plot(curve.limit * (1 - GAMMA) * 24, curve.J_r * (1 - GAMMA) * 24, marker=".")
right.set(xlabel="limit: throughput, kWh a day", ylabel="earnings a day", title="What the limit costs")
fig.savefig("energy_storage.png", dpi=90)
