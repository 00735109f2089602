"""Training: the config of a run, checks, mmengine's Runner, its schedule and hooks, exact resume."""
