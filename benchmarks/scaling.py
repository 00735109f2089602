"""Memory and time of a training step of ImageNet configs on 8 to 64 GPUs, estimated on paper: nothing is measured.

    python benchmarks/scaling.py CONFIG... [--peak 312] [--efficiency 0.3] [--local 300] [--between 25]

Activations are what autograd saves in a forward pass of two images on this CPU, in float32: on a GPU some kernels save
other tensors. The total batch is the config's on every number of GPUs. A step takes the operations of a forward pass
three times, and then an all-reduce of float32 gradients that overlaps nothing: 2 (n - 1) / n of their bytes per GPU.
"""

import argparse
from pathlib import Path

import mmpretrain.utils
import torch
import yaml
from measuring import print_table
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
GPUS_PER_MACHINE = 8


def saved_bytes(model: nn.Module, images: torch.Tensor) -> int:
    """Bytes of the tensors that autograd saves in a forward pass, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage  # held, so that no later tensor gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(images)
    del out
    return sum(storage.nbytes() for storage in kept.values())


def milliseconds_of_step(
    operations: float,
    parameters: int,
    images: int,
    gpus: int,
    peak: float,
    efficiency: float,
    local: float,
    between: float,
) -> tuple[float, float]:
    """Time of the passes and of the all-reduce.

    Args:
        operations: Multiply-adds of a forward pass of one image.
        parameters: Trained ones.
        images: Of one GPU.
        gpus: All.
        peak: TFLOP/s of a GPU; a multiply-add is two.
        efficiency: Part of the peak that is reached.
        local: GB/s that a GPU sends to others in its machine.
        between: GB/s that a GPU sends to other machines.
    """
    passes = 3 * 2 * operations * images / (peak * 1e12 * efficiency)
    bandwidth = local if gpus <= GPUS_PER_MACHINE else between
    reduction = 2 * (gpus - 1) / gpus * 4 * parameters / (bandwidth * 1e9)
    return 1e3 * passes, 1e3 * reduction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('configs', nargs='+', type=Path)
    parser.add_argument('--peak', type=float, default=312, help='TFLOP/s; default: bfloat16 on an A100')
    parser.add_argument('--efficiency', type=float, default=0.3, help='part of the peak; assumed')
    parser.add_argument(
        '--local', type=float, default=300, help='GB/s per GPU in a machine; default: NVLink of an A100'
    )
    parser.add_argument('--between', type=float, default=25, help='GB/s per GPU between machines; default: 200 Gbit/s')
    args = parser.parse_args()
    mmpretrain.utils.register_all_modules(init_default_scope=False)
    metafile = yaml.safe_load((ROOT / 'configs' / 'imagenet' / 'metafile.yml').read_text())
    counts = {model['Name']: model['Metadata'] for model in metafile['Models']}
    rows = []
    for path in args.configs:
        cfg = Config.fromfile(path)
        total = cfg.auto_scale_lr.base_batch_size
        with DefaultScope.overwrite_default_scope(cfg.default_scope):
            backbone = MODELS.build(cfg.model.backbone).train()
        per_image = saved_bytes(backbone, torch.rand(2, 3, 224, 224)) / 2
        count = counts[path.stem]
        for gpus in (8, 16, 32, 64):
            images = total // gpus
            passes, reduction = milliseconds_of_step(
                count['FLOPs'], count['Parameters'], images, gpus, args.peak, args.efficiency, args.local, args.between
            )
            rows.append(
                {
                    'config': path.stem,
                    'GPUs': str(gpus),
                    'images per GPU': str(images),
                    'activations, GiB': f'{per_image * images / 2**30:.1f}',
                    'weights, gradients, moments, GiB': f'{16 * count["Parameters"] / 2**30:.2f}',
                    'passes, ms': f'{passes:.0f}',
                    'all-reduce, ms': f'{reduction:.1f}',
                    'images/s': f'{float(f"{1e3 * total / (passes + reduction):.2g}"):.0f}',
                }
            )
    print_table(rows)


if __name__ == '__main__':
    main()
