"""Time and peak memory of PVTv2-b1 and Swin-T here (LayerNorm, plain stem), in timm and in mmdet.

    python benchmarks/backbones.py [--device cuda] [--size 480 640] [--batch-size 2] [--rounds 15] [--threads 1]
                                    [--clock cpu]

The three take turns within a round, and the medians over the rounds are printed. All return the maps of strides 4 to
32, ours and mmdet's Swin behind a norm each, in float32 and without stochastic depth. Peak memory is what torch
allocates during one pass, beside the model and its gradients.
"""

import argparse
from functools import partial

import timm
import torch
from measuring import CLOCKS, milliseconds, peak_mebibytes
from mmdet.models.backbones import PyramidVisionTransformerV2, SwinTransformer
from torch import Tensor, nn

from tokennorm.backbones import PVTv2, Swin


def build_models(size: tuple[int, int]) -> dict[str, dict[str, nn.Module]]:
    """For each architecture, ours, timm's and mmdet's."""
    swin = partial(timm.create_model, 'swin_tiny_patch4_window7_224', img_size=size, always_partition=True)
    return {
        'PVTv2-b1': dict(
            ours=PVTv2('b1', drop_path_rate=0.0),
            timm=timm.create_model('pvt_v2_b1', features_only=True),
            mmdet=PyramidVisionTransformerV2(embed_dims=64, num_layers=[2, 2, 2, 2], drop_path_rate=0.0),
        ),
        'Swin-T': dict(
            ours=Swin('tiny', drop_path_rate=0.0),
            timm=swin(features_only=True, drop_path_rate=0.0),
            mmdet=SwinTransformer(drop_path_rate=0.0),
        ),
    }


def forward(model: nn.Module, image: Tensor) -> None:
    with torch.no_grad():
        model(image)


def forward_backward(model: nn.Module, image: Tensor) -> None:
    sum(out.mean() for out in model(image)).backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--size', type=int, nargs=2, default=(224, 224), metavar=('HEIGHT', 'WIDTH'))
    parser.add_argument('--batch-size', type=int, default=1)
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--threads', type=int, default=1, help='of the CPU')
    parser.add_argument('--clock', default='wall', choices=sorted(CLOCKS), help='cpu: of this process alone')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    name = torch.cuda.get_device_name(args.device) if args.device == 'cuda' else f'{args.threads} CPU thread(s)'
    height, width = args.size
    print(f'torch {torch.__version__}, timm {timm.__version__}, {name}, {args.batch_size} x 3 x {height} x {width}\n')
    print('| | | ours | timm | mmdet | ours / faster of the two |')
    print('|---|---|---|---|---|---|')
    image = torch.randn(args.batch_size, 3, height, width, device=args.device)
    for arch, models in build_models((height, width)).items():
        for model in models.values():
            model.to(args.device).train()
        for mode in (forward, forward_backward):
            runs = {host: partial(mode, model, image) for host, model in models.items()}
            times = milliseconds(runs, args.device, args.clock, seconds=float('inf'), rounds=args.rounds)
            peaks = {host: peak_mebibytes(run, args.device) for host, run in runs.items()}
            cells = [f'{times[host]:.1f} ms, {peaks[host]:.0f} MiB' for host in runs]
            ratio = times['ours'] / min(times['timm'], times['mmdet'])
            print('|', ' | '.join([arch, mode.__name__.replace('_', ' + '), *cells, f'{ratio:.2f}']), '|', flush=True)


if __name__ == '__main__':
    main()
