"""The scope `tokennorm::` of configs, which mmengine does not know."""

import sys


def support_scope() -> None:
    """Has mmengine find the configs of this package in `_base_ = 'tokennorm::...'` and `get_config('tokennorm::...')`.

    mmengine 0.10.12 has a fixed table of packages, which lacks tokennorm, and names the original mmsegmentation. It is
    extended where mmengine has been imported before this package, and when `tokennorm.registry` imports it.
    """
    table = getattr(sys.modules.get('mmengine.config.utils'), 'MODULE2PACKAGE', {})
    table.update(tokennorm='tokennorm', mmseg='mmseg')
