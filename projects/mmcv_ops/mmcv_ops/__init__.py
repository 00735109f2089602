"""mmcv's operators without a compiler: torchvision's prebuilt operators and PyTorch, under mmcv's names.

Nothing here needs to be imported: `mmcv/_ext.py`, which this distribution installs, serves mmcv by itself.
"""

from importlib import import_module

from .info import __version__

__all__ = ['__version__', 'running']


def running() -> str:
    """Returns one line that names the operators that `mmcv.ops` uses in this environment.

    Examples: `compiled mmcv 2.3.6 (CUDA 12.8)`, `mmcv_ops 1.0.0 (torchvision 0.26.0, CPU)`.

    Raises:
        ImportError: mmcv is not installed, or has neither kind of operators.
    """
    import torch
    from mmcv import __version__ as mmcv_version  # not in the folder that this distribution alone makes

    ext = import_module('mmcv._ext')
    cuda = ext.get_compiling_cuda_version()
    device = 'CPU' if cuda == 'not available' else f'CUDA {cuda}'
    if not hasattr(ext, 'MMCV_OPS'):
        return f'compiled mmcv {mmcv_version} ({device})'
    torchvision = import_module('torchvision')
    device = f'CUDA {torch.version.cuda}' if torch.version.cuda else 'CPU'
    return f'mmcv_ops {__version__} (torchvision {torchvision.__version__}, {device})'
