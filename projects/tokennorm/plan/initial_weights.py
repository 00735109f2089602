"""`--init`: the weights that a training run starts from."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tokennorm.base.messages import UserError
from tokennorm.base.published import published_detector
from tokennorm.checkpoints.locating import PACKAGED
from tokennorm.checkpoints.safe_reading import Checkpoint, describe_entries
from tokennorm.config.tree import walk
from tokennorm.plan.changes import Plan
from tokennorm.plan.options import TrainOptions

_WEIGHTS = ('load_from', 'model.backbone.init_cfg')  # of `--cfg-options`: they replace the default of `--init`
# Entries of a backbone that decide which weights fit it.
_NORM_AND_STEM = tuple(f'model.backbone.{key}' for key in ('token_norm_cfg', 'stem_cfg'))


class InitialWeights(NamedTuple):
    """A description, and the checkpoint that has been read."""

    description: str = ''
    checkpoint: Checkpoint | None = None


def use_initial_weights(plan: Plan, options: TrainOptions) -> InitialWeights:
    """Sets `load_from` and the backbone's `init_cfg` by `--init`.

    Without `--init`, a run on `--data` starts from the published COCO detector, or else from the weights that the
    config names for its backbone. Other runs start as their config says.
    """
    cfg, init = plan.cfg, options.init
    backbone = cfg.model.get('backbone') or {}
    init_cfg, published = backbone.get('init_cfg'), published_detector(Path(cfg.filename).stem)
    weights = init_cfg.get('checkpoint') if isinstance(init_cfg, Mapping) else None
    if init is None:
        if options.data is None or cfg.get('load_from') or plan.users(*_WEIGHTS):
            return InitialWeights()
        if changed := plan.users(*_NORM_AND_STEM):
            raise UserError(
                f'--cfg-options {changed[0]} changes the model, and the weights of its config may not fit it. Choose '
                'them with --init (none, FILE, coco or imagenet), or name a config with this norm and stem'
            )
        init = 'coco' if published else 'imagenet' if weights else 'none'
    if init == 'coco':
        if published is None:
            raise UserError(
                f'--init coco: there is no published COCO detector of {Path(cfg.filename).stem}; '
                '`tokennorm weights` lists those that there are'
            )
        cfg.load_from = published.url
        return InitialWeights(f'Initial weights: the COCO detector {published.name}, {published.url}')
    if init == 'imagenet' and not weights:
        raise UserError(
            '--init imagenet: this config names no weights of its backbone (model.backbone.init_cfg); '
            'use --init FILE or --init none'
        )
    cfg.load_from = None
    if init == 'imagenet':
        terms = f' ({PACKAGED[weights].terms})' if weights in PACKAGED else ''
        return InitialWeights(f'Initial weights: the backbone, {weights}{terms}')
    if init == 'none':
        loads = backbone.get('pretrained') or isinstance(init_cfg, list)  # its class loads weights
        random = not (options.resume or (loads and options.init is None))
        if options.freeze is not None and options.freeze >= 0 and random:
            raise UserError(f'--freeze {options.freeze}: the frozen stages would stay random; use --init')
        trained = dict(frozen_stages=-1, norm_eval=False)  # --freeze and --cfg-options come later
        for _, part in walk(cfg.model):  # the backbone, and the shared head of a C4 detector
            if 'checkpoint' in (part.get('init_cfg') or {}):
                part['init_cfg'] = None
                part.update({key: trained[key] for key in trained if key in part})
        return InitialWeights('Initial weights: none, random initialization')
    checkpoint = Checkpoint.read(init)
    entries = describe_entries(checkpoint.content)
    read = f' ({entries})' if entries else ''
    if checkpoint.is_detector:
        cfg.load_from = checkpoint.source
        return InitialWeights(f'Initial weights: the detector {init}{read}', checkpoint)
    backbone['init_cfg'] = dict(type='Pretrained', checkpoint=str(init))
    if not str(backbone.get('type')).startswith('tokennorm.'):  # these find the prefix by themselves
        keys = checkpoint.state_dict
        known = ('backbone.', 'encoder_q.', 'encoder.')
        prefix = next((prefix for prefix in known if any(key.startswith(prefix) for key in keys)), '')
        backbone['init_cfg'] |= dict(prefix=prefix) if prefix else {}
    return InitialWeights(f'Initial weights: the backbone, {init}{read}', checkpoint)
