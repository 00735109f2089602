"""Ranks of a distributed run, before their process group exists."""

import os

from tokennorm.base.console import say


def is_first_process() -> bool:
    """Returns whether this process is rank 0, or there is no launcher. The process group need not exist yet."""
    ranks = (os.environ.get(name) for name in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'))
    return int(next((rank for rank in ranks if rank is not None), 0)) == 0


def print_once(*lines: str) -> None:
    """Prints lines, in rank 0 only."""
    for line in lines if is_first_process() else ():
        say(line)
