"""Time and peak memory of PVT-T, PVTv2-B1, Swin-T and ViT-S here (LayerNorm, plain stem), in timm and in OpenMMLab.

    python benchmarks/backbones.py [--device cuda] [--size 480 640] [--batch-size 2] [--rounds 15] [--threads 1]
                                    [--clock cpu] [--only PVT]

The models take turns within a round, and the medians over the rounds are printed. They run in float32 and without
stochastic depth, and return the feature maps of strides 4 to 32. TokenNorm's backbones and mmdet's Swin normalize each
feature map. The ViTs return the last one, of stride 16; each block has global attention. OpenMMLab is mmdet, and
mmpretrain for the ViT. timm does not have the first version of PVT. Peak memory is the memory that torch allocates
during one pass, in addition to the model and its gradients. docs/speed.md has `--clock cpu`, alone and with
`--size 480 640 --rounds 9`.
"""

import argparse
from functools import partial

import timm
import torch
from measuring import CLOCKS, milliseconds, peak_mebibytes
from mmdet.models.backbones import PyramidVisionTransformer, PyramidVisionTransformerV2, SwinTransformer
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn

from tokennorm.backbones import PVT, PVTv2, Swin, ViT


def build_models(size: tuple[int, int]) -> dict[str, dict[str, nn.Module]]:
    """For each architecture, ours, timm's and OpenMMLab's."""
    swin = partial(timm.create_model, 'swin_tiny_patch4_window7_224', img_size=size, always_partition=True)
    vit = partial(timm.create_model, 'vit_small_patch16_224', img_size=size)
    depths = [2, 2, 2, 2]
    return {
        'PVT-T': dict(
            ours=PVT('tiny', drop_path_rate=0.0),
            openmmlab=PyramidVisionTransformer(num_layers=depths, drop_path_rate=0.0),
        ),
        'PVTv2-B1': dict(
            ours=PVTv2('b1', drop_path_rate=0.0),
            timm=timm.create_model('pvt_v2_b1', features_only=True),
            openmmlab=PyramidVisionTransformerV2(embed_dims=64, num_layers=depths, drop_path_rate=0.0),
        ),
        'Swin-T': dict(
            ours=Swin('tiny', drop_path_rate=0.0),
            timm=swin(features_only=True, drop_path_rate=0.0),
            openmmlab=SwinTransformer(drop_path_rate=0.0),
        ),
        'ViT-S': dict(
            ours=ViT('small', drop_path_rate=0.0, global_indices=range(12), pretrain_img_size=size),
            timm=vit(features_only=True, out_indices=[11]),
            openmmlab=VisionTransformer('deit-small', img_size=size, out_type='featmap'),
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
    parser.add_argument('--only', default='', help='architectures whose name contains this')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    name = torch.cuda.get_device_name(args.device) if args.device == 'cuda' else f'{args.threads} CPU thread(s)'
    height, width = args.size
    print(f'torch {torch.__version__}, timm {timm.__version__}, {name}, {args.batch_size} x 3 x {height} x {width}\n')
    print('| | | ours | timm | OpenMMLab | ours / the faster other |')
    print('|---|---|---|---|---|---|')
    image = torch.randn(args.batch_size, 3, height, width, device=args.device)
    for arch, models in build_models((height, width)).items():
        if args.only not in arch:
            continue
        for model in models.values():
            model.to(args.device).train()
        for mode in (forward, forward_backward):
            runs = {host: partial(mode, model, image) for host, model in models.items()}
            times = milliseconds(runs, args.device, args.clock, seconds=float('inf'), rounds=args.rounds)
            peaks = {host: peak_mebibytes(run, args.device) for host, run in runs.items()}
            hosts = ('ours', 'timm', 'openmmlab')
            cells = [f'{times[host]:.1f} ms, {peaks[host]:.0f} MiB' if host in runs else '-' for host in hosts]
            ratio = times['ours'] / min(time for host, time in times.items() if host != 'ours')
            print('|', ' | '.join([arch, mode.__name__.replace('_', ' + '), *cells, f'{ratio:.2f}']), '|', flush=True)


if __name__ == '__main__':
    main()
