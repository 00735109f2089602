"""The import of PyTorch and OpenMMLab, which takes seconds."""

import sys

from tokennorm.base.cores import let_threads_sleep, limit_threads
from tokennorm.base.environment import Fault, check_mmcv_ops, import_mmdet, remedy_of_import, settle_user
from tokennorm.base.messages import UserError
from tokennorm.base.process import alone
from tokennorm.base.ranks import print_once

IMPORTING = 'Importing PyTorch and OpenMMLab ...'


@alone()
def import_openmmlab() -> None:
    """Imports PyTorch and mmdet, and announces it the first time."""
    let_threads_sleep()
    is_new = 'torch' not in sys.modules  # otherwise the program that has imported it has set its threads
    if note := settle_user():
        print_once(note)
    if 'mmdet.apis' not in sys.modules:
        print_once(IMPORTING)
    try:
        check_mmcv_ops()
        import_mmdet()
        if is_new:
            limit_threads()
    except Fault:
        raise
    except Exception as error:
        if remedy := remedy_of_import(error):
            raise UserError(f'PyTorch and OpenMMLab cannot be imported: {error}; {remedy}') from error
        if isinstance(error, ImportError):
            raise
        # of packages that do not fit each other
        raise ImportError(f'{type(error).__name__}: {error}', name='mmdet') from error
