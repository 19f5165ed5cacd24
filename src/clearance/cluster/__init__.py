"""Executors that run jobs in threads of this process or on a Ray cluster, and pools of workers that run a simulator."""
