"""Processor time of a training step with `CPUSpeedHook`, relative to one without, and the difference of the gradients.

    python benchmarks/cpu_speed.py --data FOLDER [--rounds 20] [--model trial]

The model is the one that `tokennorm train --data FOLDER` chooses. One process and one thread; each round takes the same
batch without and with the hook. A step is forward and backward pass, clipping, the check of the gradient and the
optimizer, without loading. Printed are medians, and the median of the ratios with their 10th and 90th percentile.
"""

import argparse
import math
import os
import tempfile
import time
from pathlib import Path

os.environ['CUDA_VISIBLE_DEVICES'] = ''

import numpy as np
import torch

from tokennorm.commands.importing import import_openmmlab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data', type=Path, required=True, help='a folder for `tokennorm train --data`')
    parser.add_argument('--model', default='trial', help='of `tokennorm train` (default: trial)')
    parser.add_argument('--rounds', type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    import_openmmlab()
    from tokennorm.engine.hooks.cpu_speed import CPUSpeedHook
    from tokennorm.engine.runner import build_runner
    from tokennorm.engine.training import plan_training
    from tokennorm.findings import Findings, judging
    from tokennorm.plan.options import TrainOptions

    with tempfile.TemporaryDirectory() as folder, judging(Findings()):
        plan, weights = plan_training(TrainOptions(data=args.data, model=args.model, out=folder, workers=0, seed=0))
        runner = build_runner(plan.cfg, ('train', 'val'), weights.checkpoint)
    model = runner.model
    model.init_weights()
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    model.train()
    hook = next(hook for hook in runner.hooks if isinstance(hook, CPUSpeedHook))
    batches = iter(runner.train_dataloader)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step(batch: dict, norm_type: float) -> tuple[float, torch.Tensor]:
        """Time in ms, and all gradients of one step, whose weights are then restored."""
        torch.manual_seed(0)  # of the sampler of regions
        before = [p.detach().clone() for p in parameters]
        start = time.process_time()
        data = model.data_preprocessor(batch, True)
        runner.optim_wrapper.zero_grad()
        model.parse_losses(model(**data, mode='loss'))[0].backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch.nn.utils.get_total_norm(gradients, norm_type)  # as NonFiniteHook does, before and now
        runner.optim_wrapper._clip_grad()
        runner.optim_wrapper.optimizer.step()
        taken = 1e3 * (time.process_time() - start)
        with torch.no_grad():
            for p, value in zip(parameters, before, strict=True):
                p.copy_(value)
        return taken, torch.cat([gradient.flatten() for gradient in gradients])

    times, differences = [], []
    for round_ in range(args.rounds + 2):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(runner.train_dataloader)
            batch = next(batches)
        without, gradient = step(batch, math.inf)
        hook.before_train(runner)
        with_hook, faster = step(batch, 2)
        hook.on_exit(runner)
        if round_ > 1:
            times.append((without, with_hook))
            differences.append(float((faster - gradient).norm() / gradient.norm()))
    ratios = [new / old for old, new in times]
    old, new = np.median(times, axis=0)
    low, middle, high = np.percentile(ratios, (10, 50, 90))
    print(f'without {old:.1f} ms, with {new:.1f} ms')
    print(f'ratio {middle:.3f} ({low:.3f} to {high:.3f}), {1 / middle:.2f} times faster')
    print(f'norm of the difference of the gradients / norm of the gradient: {max(differences):.1e} at most')


if __name__ == '__main__':
    main()
