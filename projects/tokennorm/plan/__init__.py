"""The plan of a run: a recipe, and what data, options and the user change in it, each change a record with a rank.

`plan.options` is imported without mmengine and torch, which `Plan` needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` imports
    from tokennorm.plan.changes import Change, Plan, Rank

__all__ = ['Change', 'Plan', 'Rank']


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module('tokennorm.plan.changes'), name)
