"""A comparison of norms and stems that anyone can repeat: the grid of runs, their pieces, and the report."""

from experiments.study.plan import ARMS, BASELINE, Run, Study, load_study

__all__ = ['ARMS', 'BASELINE', 'Run', 'Study', 'load_study']
