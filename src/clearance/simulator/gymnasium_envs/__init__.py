"""Gymnasium environments as constrained problems, in this process or in another one."""
