# %% [markdown]
# # Which policy keeps short requests short?
#
# A server with 20 CPUs gets requests of 4 us, and one in two hundred of 10 ms (the mix of ghOSt 4.2 and Skyloft
# 5.2). We have no such machine. Up to which load does each policy keep the p99.9 of the short ones under 200 us?
#
# Run the cells in an editor that knows `# %%`, or all of them with `python which_policy.py`.

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import PercentFormatter

import heddle_sim

# %% [markdown]
# The scenario is a shipped one: costs of switches and of user interrupts as in Skyloft's tables, and a dispatcher
# that takes its own time. Any value can be overridden.

# %%
scenario = heddle_sim.Scenario("shinjuku", requests=50_000)
print(scenario.to_toml())

# %% [markdown]
# One run first, to see what an outcome contains. An estimate comes with half the width of its 95 % confidence interval.

# %%
outcome = heddle_sim.run(scenario)
print(outcome)
print("mean of all:", outcome.mean)
print("p99.9 of the short:", outcome.quantile("short", 0.999), "ns")
print("where the CPUs' time went:", outcome.shares)

# %% [markdown]
# Now a table: three policies at eight loads, a run each, on all CPUs of this machine. With `client=` the same line
# runs on a Dask or Ray cluster.

# %%
frame = heddle_sim.sweep(
    scenario,
    over={
        "policy": ["fifo", "shinjuku:quantum=30us", "shinjuku:quantum=10us"],
        "workload.load": np.linspace(0.2, 0.9, 8),
    },
)
short = frame[frame["part"] == "short"]
table = short.pivot(index="workload.load", columns="policy", values="p999_ns") / 1_000
print(table.round(1))

# %% [markdown]
# The answer: the highest load at which the promise is kept. A run without a steady state must not be quoted.

# %%
steady = short[short["unstable"].isna()]
kept = steady[steady["p999_ns"] <= 200_000].groupby("policy")["workload.load"].max()
print(kept)

# %%
figure, axes = plt.subplots(figsize=(7, 4))
for policy, points in steady.groupby("policy"):
    axes.semilogy(points["workload.load"], points["p999_ns"] / 1_000, marker="o", label=policy)
axes.axhline(200, color="grey", linestyle="--", linewidth=1)
axes.set(xlabel="offered load", ylabel="p99.9 of the short requests (us)", title="20 CPUs, 99.5 % 4 us, 0.5 % 10 ms")
axes.xaxis.set_major_formatter(PercentFormatter(1))
axes.legend()
figure.tight_layout()
figure.savefig("which_policy.png", dpi=150)
