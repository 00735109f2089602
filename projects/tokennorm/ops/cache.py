"""The directory for files that are made once per machine."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Returns `$TOKENNORM_CACHE`, else `$XDG_CACHE_HOME/tokennorm`, else `~/.cache/tokennorm`. It may not exist yet.

    Raises:
        RuntimeError: if none of them is set and the user has no home directory.
    """
    if named := os.environ.get('TOKENNORM_CACHE'):
        return Path(named).expanduser()
    cache = os.environ.get('XDG_CACHE_HOME', '')
    return Path(cache if os.path.isabs(cache) else Path.home() / '.cache', 'tokennorm')
