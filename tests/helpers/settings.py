"""Settings of the whole process, to compare before and after what must leave them."""

import gc
import locale
import logging
import os
import random
import resource
import signal
import sys
import warnings

import cv2
import mmengine.device.utils as mmengine_device
import numpy as np
import torch
from matplotlib import rcParams

from tokennorm.images.pixels import CV_LOG


def settings(generators=True):
    """Returns them by name. The generators of random numbers are left out where other threads draw."""
    cudnn = torch.backends.cudnn
    found = dict(
        stdout=id(sys.stdout),
        stderr=id(sys.stderr),
        environment=dict(os.environ),
        folder=os.getcwd(),
        warnings=list(warnings.filters),
        show_warning=warnings.showwarning,
        meta_path=list(sys.meta_path),
        excepthook=sys.excepthook,
        argv=list(sys.argv),
        signals=[signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        root_logger=(logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        records=logging.getLogRecordFactory(),
        collection=(gc.isenabled(), gc.get_threshold()),
        files=resource.getrlimit(resource.RLIMIT_NOFILE),
        locale=locale.setlocale(locale.LC_ALL),
        opencv=(cv2.getNumThreads(), CV_LOG.getLogLevel()),
        torch=(torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()),
        deterministic=(torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic),
        readable=sorted(map(str, torch.serialization.get_safe_globals())),
        start_method=torch.multiprocessing.get_start_method(allow_none=True),
        device=mmengine_device.DEVICE,
        fonts=list(rcParams['font.sans-serif']),
    )
    if generators:
        found |= dict(
            random=random.getstate(),
            numpy=str(np.random.get_state()),  # noqa: NPY002
            torch_generator=torch.get_rng_state().tolist(),
        )
    return found


def changed(before, generators=True):
    """Returns what differs now, as name: (before, now)."""
    now = settings(generators)
    return {name: (value, now[name]) for name, value in before.items() if value != now[name]}
