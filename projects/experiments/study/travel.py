"""The sum of the learning rates of a schedule, which bounds how far Adam moves a logit of lambda.

    python projects/experiments/study/travel.py

Adam moves a parameter by at most about its learning rate per step. So a multiplier of the rate of lambda and P matters
in a short schedule, and in a long one the common rate reaches the same values.
"""

import math
from pathlib import Path

import mmengine.optim
import torch
from mmengine.config import Config

from experiments.study.plan import Study, load_study

CONFIGS = Path(__file__).parents[3] / 'configs'
IMAGENET, COCO = 1_281_167, 117_266  # training images; of COCO, those with objects


def sum_of_rates(cfg: Config, images: int, lr: float | None = None) -> tuple[int, float]:
    """Returns the number of steps of a training run and the sum of the learning rates of all of them.

    Args:
        cfg: A training config with an epoch-based schedule. Its batch is `auto_scale_lr.base_batch_size` if it has one,
            the total of all GPUs, and otherwise `train_dataloader.batch_size`.
        images: Training images.
        lr: Learning rate; None is the config's.
    """
    batch = cfg.get('auto_scale_lr', {}).get('base_batch_size') or cfg.train_dataloader.batch_size
    length, epochs = math.ceil(images / batch), cfg.train_cfg.max_epochs
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=lr or cfg.optim_wrapper.optimizer.lr)
    schedulers = []
    for entry in cfg.param_scheduler:
        arguments = {key: value for key, value in entry.items() if key not in ('type', '_scope_')}
        kind = getattr(mmengine.optim, entry.type)
        if arguments.pop('convert_to_iter_based', False):
            schedulers.append(kind.build_iter_from_epoch(optimizer, **arguments, epoch_length=length))
        else:
            schedulers.append(kind(optimizer, **arguments))
    optimizer.step()
    total = 0.0
    for epoch in range(epochs):
        step = epoch * length
        if any(not one.by_epoch and one.end > step for one in schedulers):
            for _ in range(length):
                total += optimizer.param_groups[0]['lr']
                for one in schedulers:
                    if not one.by_epoch:
                        one.step()
        else:
            total += length * optimizer.param_groups[0]['lr']
        for one in schedulers:
            if one.by_epoch:
                one.step()
    return epochs * length, total


def table(real: Study, evidence: Study, longer: Study) -> list[tuple[str, int, float]]:
    """Title, steps and sum of the rates of the schedules that the pages compare."""
    imagenet = Config.fromfile(CONFIGS / 'imagenet' / 'pvt-tiny-dtn_8xb128_in1k.py')
    rows = {
        'this study, 40 classes, 10 epochs': (_stage(real, 'pvt_mini'), 9_600, None),
        'this study, 200 classes, 4 epochs': (_stage(evidence, 'pvt_mini'), 99_998, None),
        'this study, 200 classes, 16 epochs': (_stage(longer, 'pvt_mini'), 99_998, None),
        'COCO, `1x`: 12 epochs, 1e-4': (
            Config.fromfile(CONFIGS / 'pvt' / 'retinanet_pvt-t-dtn_fpn_1x_coco.py'),
            COCO,
            None,
        ),
        'ImageNet, 300 epochs, 5e-4': (imagenet, IMAGENET, 5e-4),
        'ImageNet, 300 epochs, 1e-3': (imagenet, IMAGENET, 1e-3),
    }
    return [(title, *sum_of_rates(*arguments)) for title, arguments in rows.items()]


def _stage(study: Study, name: str) -> Config:
    return study.run_config(next(study.runs_of(study.stages[name])))


if __name__ == '__main__':
    plans = Path(__file__).parent / 'configs'
    for title, steps, total in table(*(load_study(plans / f'{name}.py') for name in ('real', 'evidence', 'longer'))):
        print(f'{title}: {steps:,} steps, {total:.2f}')
