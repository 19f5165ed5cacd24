"""All-in steps per second of OmniSafe's NaturalPG on SafetyHalfCheetahVelocity: run it with OmniSafe's own interpreter.

    PYTHON310 -m venv omni && omni/bin/pip install omnisafe && omni/bin/python benchmarks/peers/omnisafe_speed.py

Its defaults: networks 64-64 tanh, 20,000 steps per update, critics fitted in 10 epochs of batches of 128, Fisher
products over all steps. Prints one line of JSON: seconds of each update with its steps, the rate without the first, and
return and cost as they went (50 updates are one million steps).
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--updates", type=int, default=3)
    p.add_argument("--threads", type=int, default=2, help="of torch")
    p.add_argument("--lanes", type=int, default=1, help="environments side by side")
    p.add_argument("--algorithm", default="NaturalPG")
    p.add_argument("--robot", default="HalfCheetah")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    if args.updates < 2:
        p.error("--updates must be at least 2: the first is left out of the rate")

    import omnisafe  # type: ignore[import-not-found]

    steps = 20_000
    config = {
        "seed": args.seed,
        "train_cfgs": {
            "total_steps": steps * args.updates,
            "vector_env_nums": args.lanes,
            "parallel": 1,
            "torch_threads": args.threads,
        },
        "algo_cfgs": {"steps_per_epoch": steps},
        "logger_cfgs": {"use_wandb": False, "use_tensorboard": False, "log_dir": tempfile.mkdtemp()},
    }
    out, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    agent = omnisafe.Agent(args.algorithm, f"Safety{args.robot}Velocity-v1", custom_cfgs=config)
    ends, busy, logger = [time.perf_counter()], [time.process_time()], agent.agent._logger
    dump = logger.dump_tabular

    seen: list = []

    def stamped() -> None:
        dump()
        seen.append([round(float(logger._current_row[key]), 2) for key in ("Metrics/EpRet", "Metrics/EpCost")])
        ends.append(time.perf_counter())
        busy.append(time.process_time())

    logger.dump_tabular = stamped
    agent.learn()
    seconds = [b - a for a, b in itertools.pairwise(ends)]
    rate = steps * (len(seconds) - 1) / sum(seconds[1:])
    facts = {"algorithm": args.algorithm, "threads": args.threads, "lanes": args.lanes, "seconds": seconds}
    per_cpu = steps * (len(seconds) - 1) / (busy[-1] - busy[1])  # comparable where the machine is shared
    learned = {"return_and_cost": seen[:: max(1, len(seen) // 10)] + seen[-1:]}  # means of the last 50 episodes
    print(json.dumps({**facts, **learned, "steps_per_second": rate, "steps_per_cpu_second": per_cpu}), file=out)


if __name__ == "__main__":
    main()
