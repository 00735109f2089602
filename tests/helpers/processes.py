"""Training runs in processes of their own."""

import gc
import os

import torch
from torch import distributed as torch_dist
from torch import multiprocessing


def start(rank, folder):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
    torch_dist.init_process_group('gloo', store=torch_dist.FileStore(f'{folder}/store', 2), rank=rank, world_size=2)


def end():
    torch_dist.barrier()  # a process whose peer is gone is aborted
    gc.collect()
    torch_dist.destroy_process_group()


def in_two_processes(function, folder):
    """Forks of a process that has imported this module only: autograd does not run in a fork of one that has run it."""
    multiprocessing.start_processes(function, args=(str(folder),), nprocs=2, start_method='forkserver')
