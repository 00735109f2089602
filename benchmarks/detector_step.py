"""Time and peak memory of a training step of detectors, or of a prediction, and the share of the time that DTN takes.

    python benchmarks/detector_step.py CONFIG... [--predict] [--size 480 640] [--batch-size 1] [--clock cpu] [--amp]

The detectors take turns within a round. The medians over the rounds are printed, and their ratios to those of the first
config. A step is forward and backward pass, without data loading and optimizer, with random weights. A
prediction is the forward pass with decoding; random weights leave nothing to non-maximum suppression.
Memory is what torch allocates during the step, in addition to weights and gradients. The share of DTN is that of its
forward and backward function in torch's profiler.
"""

import argparse
import contextlib
from collections.abc import Callable
from copy import deepcopy

import mmdet.utils
import torch
from measuring import CLOCKS, milliseconds, peak_mebibytes, print_table
from mmdet.testing import demo_mm_inputs
from mmengine.registry import MODELS, init_default_scope
from torch.optim import SGD
from torch.profiler import ProfilerActivity, profile

from tokennorm.config.open_config import read_config
from tokennorm.config.tree import class_counts
from tokennorm.engine.mixed_precision import FeatureAmpOptimWrapper
from tokennorm.registry.compat import make_ssd_predict

NO_SCALING = dict(enabled=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('configs', nargs='+', help='paths or names, such as mmdet::pvt/retinanet_pvt-t_fpn_1x_coco')
    parser.add_argument('--size', type=int, nargs=2, default=(480, 640), metavar=('HEIGHT', 'WIDTH'))
    parser.add_argument('--batch-size', type=int, default=1)
    parser.add_argument('--objects', type=int, default=10, help='in each image')
    parser.add_argument('--predict', action='store_true', help='predictions instead of training steps')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--threads', type=int, default=1, help='of the CPU')
    parser.add_argument('--clock', default='wall', choices=sorted(CLOCKS), help='cpu: of this process alone')
    parser.add_argument('--amp', action='store_true', help='features in bfloat16, as with `tokennorm train --amp`')
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    mmdet.utils.register_all_modules()
    make_ssd_predict()
    steps = {name: training_step(name, args) for name in args.configs}
    times = milliseconds(steps, args.device, args.clock, seconds=float('inf'), rounds=args.rounds)
    memory = {name: peak_mebibytes(step, args.device) for name, step in steps.items()}
    first = args.configs[0]
    print_table(
        [
            {
                'config': name,
                'ms': f'{times[name]:.0f}',
                'ratio': f'{times[name] / times[first]:.3f}',
                'peak MiB': f'{memory[name]:.0f}',
                'ratio ': f'{memory[name] / memory[first]:.2f}',
                'DTN': f'{dtn_share(step):.1%}' if args.device == 'cpu' else '-',
            }
            for name, step in steps.items()
        ]
    )


def training_step(name: str, args: argparse.Namespace) -> Callable[[], None]:
    """Forward and backward pass, or prediction, of the detector of a config."""
    cfg = read_config(name)
    init_default_scope('mmdet')
    torch.manual_seed(0)
    cfg.model.backbone.init_cfg = None
    model = MODELS.build(cfg.model).to(args.device).train()
    batch = demo_mm_inputs(
        args.batch_size,
        image_shapes=[(3, *args.size)] * args.batch_size,
        num_items=[args.objects] * args.batch_size,
        num_classes=min(count for _, count in class_counts(cfg.model)),
        with_mask=cfg.model.data_preprocessor.get('pad_mask', False) or 'loss_mask' in cfg.model.get('bbox_head', {}),
        device=args.device,
    )
    batch = model.data_preprocessor(batch, training=True)

    precision = contextlib.nullcontext
    if args.amp:
        optimizer = SGD(model.parameters(), 0.1)  # takes no step
        precision = FeatureAmpOptimWrapper(dtype='bfloat16', loss_scale=NO_SCALING, optimizer=optimizer).optim_context

    @torch.no_grad()
    def predict() -> None:
        model(**batch, mode='predict')

    if args.predict:
        model.eval()
        return predict

    def step() -> None:
        samples = deepcopy(batch['data_samples'])  # RTMDet-Ins changes their masks
        with precision(model):
            losses = model(batch['inputs'], samples, mode='loss')
        model.parse_losses(losses)[0].backward()
        model.zero_grad(set_to_none=False)

    return step


def dtn_share(step: Callable[[], None]) -> float:
    """The share of DTN's forward and backward function in the processor time of a step."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    events = profiler.key_averages()
    dtn = sum(event.cpu_time_total for event in events if event.key in ('CpuDTN', 'CpuDTNBackward'))
    return dtn / sum(event.self_cpu_time_total for event in events)


if __name__ == '__main__':
    main()
