"""Training: the config of a run, checks, mmengine's Runner, its schedule and hooks, exact resume."""

from tokennorm.environment import hide_onedl_message

hide_onedl_message()
