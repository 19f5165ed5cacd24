"""Executors that run jobs: threads of this process, a Ray cluster, and pools of workers that keep a simulator."""
