"""Hours of ImageNet pretraining on 1 to 64 GPUs, from steps that were measured on one.

    python benchmarks/scaling.py [--local 300] [--between 25]

`STEPS` are the rows of docs/speed.md#gpus. All GPUs keep the batch of one, and each step ends with an all-reduce of
float32 gradients that overlaps nothing: 2 (n - 1) / n of their bytes per GPU at the bandwidth that is assumed here. The
loader of images is taken as fast enough.
"""

import argparse

from measuring import print_table

CARD, DATE, BATCH = 'NVIDIA H200, PyTorch 2.11, bfloat16', '2026-11-27', 64
STEPS = {  # milliseconds of a training step on one GPU, and millions of parameters
    'PVT-T, LayerNorm': (34, 13.2),
    'PVT-T, DTN, eager, pooled': (87, 13.2),
    'PVT-T, DTN, eager, not pooled': (146, 13.2),
    'Swin-T, LayerNorm': (67, 28.3),
    'Swin-T, DTN, eager, pooled': (206, 28.3),
    'Swin-T, DTN, eager, not pooled': (275, 28.3),
}
IMAGES, EPOCHS = 1_281_167, 300
GPUS_PER_MACHINE = 8


def images_per_second(step: float, parameters: float, gpus: int, local: float, between: float) -> float:
    """Images per second of all GPUs: `step` in ms, `parameters` in millions, bandwidths in GB/s per GPU."""
    bandwidth = local if gpus <= GPUS_PER_MACHINE else between
    reduction = 1e3 * 2 * (gpus - 1) / gpus * 4e6 * parameters / (bandwidth * 1e9)
    return 1e3 * gpus * BATCH / (step + reduction)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--local', type=float, default=300, help='GB/s per GPU in a machine; default: NVLink')
    parser.add_argument('--between', type=float, default=25, help='GB/s per GPU between machines; default: 200 Gbit/s')
    args = parser.parse_args()
    print(f'Steps of {CARD}, {BATCH} images of 224 x 224, {DATE}; hours of {EPOCHS} epochs of {IMAGES:,} images.\n')
    rows = []
    for name, step in STEPS.items():
        row = {'backbone, norm': name}
        for gpus in (1, 8, 64):
            rate = images_per_second(*step, gpus, args.local, args.between)
            row |= {
                f'images/s, {gpus} GPU': f'{rate:,.0f}',
                f'hours, {gpus} GPU': f'{IMAGES * EPOCHS / rate / 3600:.0f}',
            }
        rows.append(row)
    print_table(rows)


if __name__ == '__main__':
    main()
