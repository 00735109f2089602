"""Training: the config of a run, checks, mmengine's Runner, its schedule and hooks, exact resume."""

import warnings

from tokennorm.environment import hide_onedl_message

hide_onedl_message()
# mmdet 3.5.1 warns when it is imported; nothing here needs that package.
warnings.filterwarnings('ignore', message='faster_coco_eval is not installed')
