"""Everything that touches mmengine's Runner: configs, checks, hooks, resuming, prediction."""

from tokennorm.engine.compat import hide_onedl_message

hide_onedl_message()
