"""Tests in processes of their own, forked from one that has imported torch, mmengine and mmdet once per worker."""

import gc
import os

import torch
from torch import distributed as torch_dist
from torch import multiprocessing

# What the tests and, when it builds a runner, mmengine import.
PRELOADED = ('tests.helpers.toy_training', 'tokennorm.engine', 'torchvision', 'mmdet.evaluation', 'experiments.shapes')
multiprocessing.set_forkserver_preload([__name__, *PRELOADED])


def start(rank, folder):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
    torch_dist.init_process_group('gloo', store=torch_dist.FileStore(f'{folder}/store', 2), rank=rank, world_size=2)


def end():
    torch_dist.barrier()  # a process whose peer is gone is aborted
    gc.collect()
    torch_dist.destroy_process_group()


def in_processes(function, folder, number=2):
    """Forks of a process that has only imported: autograd does not run in a fork of one that has run it."""
    multiprocessing.start_processes(function, args=(str(folder),), nprocs=number, start_method='forkserver')
