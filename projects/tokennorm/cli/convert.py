"""Converts a checkpoint of any known layout to TokenNorm's keys: a backbone for `init_cfg`, or a whole detector.

The file has what the config's backbone loads from SOURCE, with position embeddings and bias tables at its sizes, and
without the parameters that `init_cfg.allow_missing` lets stay initialized. All commands also accept SOURCE itself.

examples:
  tokennorm convert pvt_tiny.pth backbone.safetensors --config retinanet_pvt-t_fpn_1x_coco
  tokennorm convert retinanet_pvt-t detector.safetensors --detector --config retinanet_pvt-t_fpn_1x_coco
"""

from fnmatch import fnmatchcase
from pathlib import Path

from tokennorm.cli.command import Parser, command
from tokennorm.messages import UserError


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('source', help='file, URL, name on the Hugging Face Hub, or work directory of a training run')
    parser.add_argument('out', type=Path, help='file to write, .pth or .safetensors; it must not exist')
    parser.add_argument('--config', required=True, help='config file, or the name of a config, with the backbone')
    parser.add_argument('--detector', action='store_true', help='convert a whole detector, with neck and heads')
    args = parser.parse_args(argv)
    print(_convert(args.source, args.out, args.config, args.detector))


def _convert(source: str, out: Path, config: str, whole: bool) -> str:
    """Writes the converted checkpoint, and returns the loading report."""
    from mmengine import DefaultScope

    from tokennorm.checkpoints import Checkpoint, CheckpointError, convert_detector, load_pretrained
    from tokennorm.checkpoints.loading import parse_init_cfg
    from tokennorm.checkpoints.writing import to_bytes, write_new
    from tokennorm.config.build_errors import build_errors
    from tokennorm.config.reading import read_config
    from tokennorm.files import check_output_file
    from tokennorm.registry import MODELS
    from tokennorm.version import __version__

    if out.suffix not in ('.pth', '.safetensors'):
        raise UserError(f'OUT {out} must end in .pth or .safetensors')
    check_output_file(out)
    cfg = read_config(config).model.to_dict()
    init_cfg = dict(cfg['backbone'].pop('init_cfg', None) or {}, type='Pretrained', checkpoint=source)
    kept = cfg if whole else cfg['backbone']
    if whole:
        import mmdet.models  # noqa: F401 - registers its detectors
    with build_errors(), DefaultScope.overwrite_default_scope('mmdet' if whole else None):
        model = MODELS.build(kept)
    if not hasattr(model.backbone if whole else model, 'layouts'):
        raise CheckpointError(f'{cfg["backbone"]["type"]} in {config} loads its checkpoints as they are')
    if whole:
        content = Checkpoint.read(source)
        state_dict, report = convert_detector(model, content.state_dict, source)
        meta = dict(dataset_meta=dict(content.dataset_meta))
    else:
        checkpoint, allow_missing = parse_init_cfg(init_cfg)
        report = load_pretrained(model, checkpoint, allow_missing=allow_missing)
        left_out = {key for key in report.missing if any(fnmatchcase(key, pattern) for pattern in allow_missing)}
        state_dict = {key: value for key, value in model.state_dict().items() if key not in left_out}
        meta = dict(backbone=kept)
    meta |= dict(source=Path(report.source).name, layout=report.layout, tokennorm_version=__version__)
    write_new(out, to_bytes(dict(state_dict=state_dict, meta=meta), out.suffix))
    return f'{report}\n{out}: {len(state_dict)} tensors'
