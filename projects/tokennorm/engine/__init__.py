"""Everything that touches mmengine's Runner: configs, checks, hooks, resuming, prediction."""

import warnings

# mmdet 3.5.1 warns when it is imported; nothing here needs that package.
warnings.filterwarnings('ignore', message='faster_coco_eval is not installed')
