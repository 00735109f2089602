"""Errors in reading or transforming a sample, with the name of its image."""

from functools import partial
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from tokennorm.base.messages import UserError
from tokennorm.config.tree import innermost_datasets
from tokennorm.registry import HOOKS


class DataError(UserError):
    """An image or its annotations cannot be read; the message has the file and the reason."""

    def __str__(self) -> str:
        # A DataLoader worker passes on its whole traceback as the message; the error itself comes last.
        return super().__str__().rpartition('DataError: ')[2].rstrip()


@HOOKS.register_module()
class DataErrorHook(Hook):
    """Turns any error in reading or transforming a sample into a `DataError` with the name of its image.

    mmcv and OpenCV report an empty file, or a mask that does not fit, without naming the file.
    """

    def before_run(self, runner: Runner) -> None:
        """Wraps the datasets. mmengine calls this after building them, before any worker starts."""
        for loop in (runner._train_loop, runner._val_loop, runner._test_loop):  # private in mmengine 0.10.12
            if hasattr(loop, 'dataloader'):  # others are configs still
                for dataset in innermost_datasets(loop.dataloader.dataset):
                    if hasattr(dataset, 'prepare_data'):
                        dataset.prepare_data = partial(prepare_data, dataset)


def prepare_data(dataset: Any, index: int) -> Any:
    """Calls the dataset's own `prepare_data`, and names the image in its errors."""
    try:
        return type(dataset).prepare_data(dataset, index)
    except Exception as error:
        sample = dataset.get_data_info(index)
        name = sample.get('img_path', f'sample {index}')
        number = f' (image id {sample["img_id"]})' if 'img_id' in sample else ''
        reason = ' '.join(f'{type(error).__name__}: {error}'.split())
        reason = reason.replace("KeyError: 'mask'", 'an object has no segmentation')
        raise DataError(
            f'{name}{number} or its annotations cannot be read: {reason}. '
            '`tokennorm check DIR` finds such files in a folder'
        ) from error
