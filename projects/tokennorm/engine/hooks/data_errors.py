"""A training or an evaluation that meets a broken image or annotation stops with the name of the file."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from tokennorm.engine.compat import built_loops
from tokennorm.registry import HOOKS


class DataError(RuntimeError):
    """An image or its annotations cannot be read; the text says which and why."""

    def __str__(self) -> str:
        # A worker process of a DataLoader hands its traceback on as the text, and the error itself stands last there.
        return super().__str__().rpartition('DataError: ')[2].rstrip()


@HOOKS.register_module()
class DataErrorHook(Hook):
    """Whatever goes wrong while a sample is read and transformed becomes a `DataError` with the name of its image.

    mmcv and OpenCV tell of an empty file or of a run-length mask that does not fit without saying where it is.
    """

    def before_run(self, runner: Runner) -> None:
        """Wraps the datasets; mmengine calls it once they are built, before any worker process starts."""
        for loop in built_loops(runner):
            for dataset in _innermost(loop.dataloader.dataset):
                dataset.prepare_data = partial(prepare_data, dataset)


def prepare_data(dataset: Any, index: int) -> Any:
    """The dataset's own `prepare_data`, with the image named in its errors.

    Raises:
        DataError: for any error.
    """
    try:
        return type(dataset).prepare_data(dataset, index)
    except Exception as error:
        sample = dataset.get_data_info(index)
        name = sample.get('img_path', f'sample {index}')
        number = f' (image id {sample["img_id"]})' if 'img_id' in sample else ''
        reason = ' '.join(f'{type(error).__name__}: {error}'.split())
        raise DataError(
            f'{name}{number} or its annotations cannot be read: {reason}. '
            '`python tools/check_dataset.py DIR` looks for such files in a whole folder'
        ) from error


def _innermost(dataset: Any) -> Iterator[Any]:
    """The datasets inside wrappers such as RepeatDataset ('dataset') and ConcatDataset ('datasets')."""
    if hasattr(dataset, 'datasets'):
        for inner in dataset.datasets:
            yield from _innermost(inner)
    elif hasattr(dataset, 'dataset'):
        yield from _innermost(dataset.dataset)
    elif hasattr(dataset, 'prepare_data'):
        yield dataset
