"""Everything that touches mmengine's Runner: configs, checks, hooks, resuming, prediction."""
