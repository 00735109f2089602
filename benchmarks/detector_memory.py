"""Memory of one training step of detector configs, at 800 x 1333 pixels.

    python benchmarks/detector_memory.py CONFIG... [--batch-size 2] [--objects 20] [--device cuda]

Counted are what torch allocates during the forward and backward pass, and the parameters, their gradients and AdamW's
two moments. On a CPU the attention and the norms are other kernels than on a GPU, and what cuDNN asks for beside is not
there: an estimate for a GPU, no measurement.
"""

import argparse
from pathlib import Path

import mmdet.utils
from measuring import peak_mebibytes, print_table
from mmdet.testing import demo_mm_inputs
from mmengine import Config
from mmengine.registry import MODELS, init_default_scope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('configs', nargs='+', type=Path)
    parser.add_argument('--batch-size', type=int, default=2)
    parser.add_argument('--objects', type=int, default=20, help='in each image')
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    args = parser.parse_args()
    mmdet.utils.register_all_modules(init_default_scope=False)
    init_default_scope('mmdet')
    rows = []
    for path in args.configs:
        cfg = Config.fromfile(path)
        cfg.model.backbone.init_cfg = None
        model = MODELS.build(cfg.model).to(args.device).train()
        batch = demo_mm_inputs(
            args.batch_size,
            image_shapes=[(3, 800, 1333)] * args.batch_size,
            num_items=[args.objects] * args.batch_size,
            num_classes=80,
            with_mask=cfg.model.data_preprocessor.get('pad_mask', False),
            device=args.device,
        )
        batch = model.data_preprocessor(batch, training=True)

        def step(model=model, batch=batch) -> None:
            losses = model(**batch, mode='loss')
            model.parse_losses(losses)[0].backward()
            model.zero_grad(set_to_none=False)

        passes = peak_mebibytes(step, args.device) / 1024
        trained = sum(4 * p.numel() for p in model.parameters() if p.requires_grad) / 2**30
        rows.append(
            {
                'config': path.stem,
                'passes, GiB': f'{passes:.2f}',
                'weights, gradients, moments, GiB': f'{4 * trained:.2f}',
                'sum, GiB': f'{passes + 4 * trained:.2f}',
            }
        )
    print_table(rows)


if __name__ == '__main__':
    main()
