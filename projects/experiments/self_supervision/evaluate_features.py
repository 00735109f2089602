"""k-NN and linear accuracy of frozen features: `python evaluate_features.py CONFIG CHECKPOINT [CHECKPOINT ...]`

The config is one of the folder `configs` here. The first row is the backbone with its initial weights, for comparison.
"""

import argparse

from torch.utils.data import DataLoader, Subset

from tokennorm.base.messages import user_errors
from tokennorm.cli.arguments import ConfigOptions
from tokennorm.cli.command import command


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config of the pretraining, with `evaluation`')
    parser.add_argument('checkpoints', nargs='*', metavar='CHECKPOINT', help='checkpoints, or work directories')
    parser.add_argument('--every', type=int, default=1, metavar='N', help='use every Nth image of both folders only')
    parser.add_argument('--device', default='cpu', help='cpu or cuda')
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions, help='entries of the config, key=value')
    args = parser.parse_args(argv)
    from mmengine.runner import set_random_seed

    from experiments.self_supervision.evaluation import extract_features, knn_accuracy, linear_accuracy
    from tokennorm.checkpoints import load_pretrained
    from tokennorm.config.open_config import check_options, merge_options, read_config
    from tokennorm.layers.building import resolve_type

    cfg = read_config(args.config)
    options = args.cfg_options or {}
    check_options(cfg, {key: value for key, value in options.items() if not key.startswith('evaluation.')})
    merge_options(cfg, options)
    with user_errors(ImportError, ValueError, RuntimeError, OSError):
        loaders = [
            build_loader(cfg.evaluation[part], cfg.evaluation.batch_size, args.every) for part in ('bank', 'queries')
        ]
        print(f'{len(loaders[0].dataset)} images in the bank, {len(loaders[1].dataset)} queries', flush=True)
        for checkpoint in [None, *args.checkpoints]:
            set_random_seed(0)
            cls, kwargs = resolve_type(cfg.model.backbone, 'backbone')
            backbone = cls(**kwargs)
            if checkpoint is not None:
                load_pretrained(backbone, checkpoint)
            backbone.to(args.device)
            features = [tensor for loader in loaders for tensor in extract_features(backbone, loader)]
            knn = knn_accuracy(*features, k=cfg.evaluation.k, temperature=cfg.evaluation.temperature)
            linear = linear_accuracy(*features)
            print(f'{checkpoint or "initial weights"}: k-NN {knn:.2%}, linear {linear:.2%}', flush=True)


def build_loader(dataset: dict, batch_size: int, every: int) -> DataLoader:
    """Every Nth image of a dataset."""
    from tokennorm.registry import DATASETS

    kwargs = dict(dataset)
    images = DATASETS.get(kwargs.pop('type'))(**kwargs)
    return DataLoader(Subset(images, range(0, len(images), every)), batch_size)


if __name__ == '__main__':
    main()
