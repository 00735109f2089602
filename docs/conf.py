"""Sphinx configuration: `make docs` builds the site into build/docs."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'projects'), str(ROOT / 'docs' / '_ext')]

import tokennorm  # noqa: E402

project = 'TokenNorm'
author = 'TokenNorm contributors'
copyright = '2026, TokenNorm contributors'
version = release = tokennorm.__version__
extensions = [
    'myst_nb',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'sphinx.ext.intersphinx',
    'sphinx_copybutton',
    'sphinx_design',
    'command_help',
    'detectors_page',
    'mathml',
    'rules_page',
]
exclude_patterns = ['_ext', '_figures']
html_theme = 'furo'
html_math_renderer = 'mathml'
html_title = f'TokenNorm {version}'
html_static_path = ['_static']
html_search_scorer = str(ROOT / 'docs' / '_ext' / 'search_scorer.js')
myst_enable_extensions = ['colon_fence', 'deflist', 'dollarmath']
myst_heading_anchors = 3
nb_execution_mode = 'off'  # the notebook is executed by its test, and committed with its outputs
autodoc_member_order = 'bysource'
autodoc_typehints = 'signature'
napoleon_use_rtype = False
# `make docs OFFLINE=1` builds without the inventories of other projects.
intersphinx_mapping = (
    {}
    if os.environ.get('OFFLINE')
    else {
        'python': ('https://docs.python.org/3', None),
        'torch': ('https://docs.pytorch.org/docs/stable', None),
        'mmengine': ('https://mmengine.readthedocs.io/en/latest', None),
        'mmdetection': ('https://mmdetection.readthedocs.io/en/latest', None),
    }
)
# Types of upstream libraries whose inventories do not list them, or cannot be fetched without a network.
nitpick_ignore_regex = [
    (
        'py:.*',
        r'(torch|mmengine|mmdet|mmcv|numpy|np|PIL|supervision|nn|Tensor|collections|Path|pathlib|argparse|os)(\..*)?',
    ),
    ('py:exc', 'UserError|ImageError|ThresholdError'),  # of tokennorm.base.messages and tokennorm.inference.runtime
    ('py:class', r'tokennorm\.checkpoints\.layouts\.(Converted|Layout)'),
]
copybutton_prompt_text = r'\$ |>>> '
copybutton_prompt_is_regexp = True
