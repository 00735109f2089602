"""Names of types in configs."""

from collections.abc import Mapping
from typing import Any


def type_name(cfg: Mapping[str, Any]) -> str:
    """Returns the name of a config's `type`, without its scope. Configs in pure Python have the class itself."""
    name_or_class = cfg.get('type')
    return getattr(name_or_class, '__name__', None) or str(name_or_class).rpartition('.')[2]
