"""Processor time of a training step with `CPUSpeedHook`, relative to one without, and the difference of the gradients.

    python benchmarks/cpu_speed.py --data FOLDER [--rounds 20] [--model trial] [--batch-size 1] [--amp]

The model is the one that `tokennorm train --data FOLDER` chooses. One process and one thread; each round takes the same
batch without and with the hook, twice, and times the second step. A step is forward and backward pass, clipping, the
check of the gradient and the optimizer, without loading. Printed are medians, and the median of the ratios with their
10th and 90th percentile. With `--amp`, backbone and neck also compute in bfloat16, with and without the hook, and
ratios are relative to float32 with the hook.
"""

import argparse
import math
import os
import tempfile
import time
from pathlib import Path
from types import MethodType

os.environ['CUDA_VISIBLE_DEVICES'] = ''

import numpy as np
import torch

from tokennorm.commands.importing import import_openmmlab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data', type=Path, required=True, help='a folder for `tokennorm train --data`')
    parser.add_argument('--model', default='trial', help='of `tokennorm train` (default: trial)')
    parser.add_argument('--rounds', type=int, default=20)
    parser.add_argument('--batch-size', type=int, help='of `tokennorm train`')
    parser.add_argument('--amp', action='store_true', help='also in bfloat16')
    args = parser.parse_args()
    torch.set_num_threads(1)
    import_openmmlab()
    from tokennorm.engine.hooks.cpu_speed import CPUSpeedHook
    from tokennorm.engine.mixed_precision import _extract_feat
    from tokennorm.engine.runner import build_runner
    from tokennorm.engine.training import plan_training
    from tokennorm.findings import Findings, judging
    from tokennorm.plan.options import TrainOptions

    options = dict(data=args.data, model=args.model, batch_size=args.batch_size, workers=0, seed=0)
    with tempfile.TemporaryDirectory() as folder, judging(Findings()):
        plan, weights = plan_training(TrainOptions(out=folder, **options))
        runner = build_runner(plan.cfg, ('train', 'val'), weights.checkpoint)
    model = runner.model
    model.init_weights()
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    model.train()
    hook = next(hook for hook in runner.hooks if isinstance(hook, CPUSpeedHook))
    batches = iter(runner.train_dataloader)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step(batch: dict, norm_type: float | None) -> tuple[float, torch.Tensor]:
        """Time in ms, and all gradients of one step, whose weights are then restored."""
        torch.manual_seed(0)  # of the sampler of regions
        before = [p.detach().clone() for p in parameters]
        start = time.process_time()
        data = model.data_preprocessor(batch, True)
        runner.optim_wrapper.zero_grad()
        model.parse_losses(model(**data, mode='loss'))[0].backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        if norm_type:  # as NonFiniteHook did; now it takes the norm that clipping computes
            torch.nn.utils.get_total_norm(gradients, norm_type)
        runner.optim_wrapper._clip_grad()
        runner.optim_wrapper.optimizer.step()
        taken = 1e3 * (time.process_time() - start)
        with torch.no_grad():
            for p, value in zip(parameters, before, strict=True):
                p.copy_(value)
        return taken, torch.cat([gradient.flatten() for gradient in gradients])

    def steps(batch: dict, with_hook: bool, dtype: torch.dtype | None = None) -> tuple[float, torch.Tensor]:
        """Two steps, the first of which is not timed."""
        model._feature_dtype = dtype
        if with_hook:
            hook.before_train(runner)
        norm_type = None if with_hook else math.inf
        step(batch, norm_type)
        result = step(batch, norm_type)
        hook.on_exit(runner)
        return result

    model.extract_feat = MethodType(_extract_feat, model)  # as FeatureAmpOptimWrapper, which refuses a CPU
    times, differences = [], []
    for round_ in range(args.rounds + 2):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(runner.train_dataloader)
            batch = next(batches)
        (without, gradient), (with_hook, faster) = steps(batch, False), steps(batch, True)
        taken = [without, with_hook]
        if args.amp:
            taken += [steps(batch, hooked, torch.bfloat16)[0] for hooked in (False, True)]
        if round_ > 1:
            times.append(taken)
            differences.append(float((faster - gradient).norm() / gradient.norm()))
    medians, relative_to = np.median(times, axis=0), 1 if args.amp else 0
    names = ['without', 'with', 'bfloat16 without', 'bfloat16 with'][: len(medians)]
    for i, (name, median) in enumerate(zip(names, medians, strict=True)):
        ratios = [taken[i] / taken[relative_to] for taken in times]
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        print(f'{name}: {median:.1f} ms, relative to {names[relative_to]} {middle:.3f} ({low:.3f} to {high:.3f})')
    print(f'norm of the difference of the gradients / norm of the gradient: {max(differences):.1e} at most')


if __name__ == '__main__':
    main()
