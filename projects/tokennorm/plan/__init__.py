"""The plan of a run: a recipe, and what data, options and the user change in it, each change a record with a rank."""

from tokennorm.plan.changes import Change, Plan, Rank

__all__ = ['Change', 'Plan', 'Rank']
