"""Every config builds, variants differ only in norm, stem and initial weights, and norms are not decayed."""

import ast
import re
from copy import deepcopy

import pytest
import torch
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

from experiments.study.plan import Run, load_study
from tests.helpers.configs import ROOT, flatten, judged_model, resolve
from tokennorm.backbones.pvt import ARCHS as PVT_ARCHS
from tokennorm.backbones.pvt_v2 import ARCHS as PVT_V2_ARCHS

TESTED_ELSEWHERE = ('segmentation', 'timm', 'detectors', 'fine_tune')
CONFIGS = sorted(path for path in ROOT.glob('[!_]*/*.py') if path.parent.name not in TESTED_ELSEWHERE)
VARIANTS = [path for path in CONFIGS if re.search(r'-(dtn|dpn|h4458|local)', path.name) and path.parent.name != 'trial']
DETECTORS = [path for path in CONFIGS if path.parent.name not in ('imagenet', 'pretrain')]
NORM_AND_STEM = {'-(dtn|local)': 'model.backbone.token_norm_cfg.', '-dpn': 'model.backbone.stem_cfg.'}
COCO = [path for path in DETECTORS if path.parent.name not in ('demo', 'trial')]
ONE_GPU = [path for path in COCO if '_1xb2-accum8-' in path.name]
# One of each backbone, and of each detector, and a control; the slow tests build the others of `BUILT`.
QUICK = re.compile(
    r'(?!.*1xb2-accum8)'
    r'(pvt-mini-dtn|(retinanet_(pvt-t|pvtv2-b2|swin-t-p4-w7|vit-s)-dtn-dpn|retinanet_pvt-t)_|'
    r'^(pvt-tiny|pvtv2-b2|swin-tiny|vit-small)-dtn_|^pvt-tiny-h4458_|^swin-tiny-local_)'
)
# Their smaller sizes differ in nothing else.
LARGER = re.compile(r'pvt-(small|medium|large|[sml])[-_]|pvtv2-b[345]|swin-[sb]|vit-(b-|base-(?!star))')
# Configs for one GPU have the models of those for eight. A variant differs from its control in norm and stem only: of
# variants with Mask R-CNN and of larger ones the control is built, and another variant with the same norm and stem.
BUILT = [
    path
    for path in CONFIGS
    if path not in ONE_GPU and not (path in VARIANTS and re.search(rf'mask-rcnn|{LARGER.pattern}', path.name))
]
OF_PVT = re.compile(r'(^|_)pvt(?P<v2>v2)?-(tiny|small|medium|large|[tsml]|b\d)[-_]')  # without PVT-mini
PUBLISHED = {
    'tokennorm.PVT': 'https://github.com/whai362/PVT/releases/download/v2/pvt_{}.pth',
    'tokennorm.PVTv2': 'https://github.com/whai362/PVT/releases/download/v2/pvt_v2_{}.pth',
    'tokennorm.Swin': 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_{}_patch4_window7_224.pth',
    'tokennorm.ViT': 'https://dl.fbaipublicfiles.com/deit/deit_{}_patch16_224-',  # and a hash
}
# As deep as the pretraining's DTN blocks need, for tests that no width changes.
STAGES = dict(embed_dims=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_heads=[1, 2, 3, 4], mlp_ratios=[1, 1, 1, 1])
SMALL = {
    'tokennorm.PVT': STAGES | dict(sr_ratios=[8, 4, 2, 1]),
    'tokennorm.PVTv2': STAGES | dict(sr_ratios=[8, 4, 2, 1]),
    'tokennorm.Swin': STAGES,
    'tokennorm.ViT': dict(embed_dims=24, depth=12, num_heads=3, mlp_ratio=1),
}
# Arguments of a backbone that change the function of its weights.
FUNCTION_ARGUMENTS = ('type', 'arch', 'token_norm_cfg', 'token_norm_stages', 'stem_cfg', 'norm_cfg', 'l_dtn')
FUNCTION_ARGUMENTS += ('norm_placement', 'patch_size', 'window_size', 'in_channels', 'pretrain_img_size')
# AdamW's learning rate and weight decay, and the batches of warm-up.
HYPERPARAMETERS = dict(pvt=(1e-4, 1e-4, 500), pvt_v2=(1e-4, 1e-4, 500), swin=(1e-4, 0.05, 1000), vit=(1e-4, 0.1, 1000))
# Of the parameters of more than one dimension.
FREE_OF_DECAY = ('pos_embed', 'position', 'cls_token', 'bias_table')


def name_of(path):
    return str(path.relative_to(ROOT))


def cases(paths, quick=None):
    """Parameters of a test: all but `quick` are slow, and without it the larger sizes."""

    def marks(name):
        return () if (quick.search(name) if quick else not LARGER.search(name)) else pytest.mark.slow

    return [pytest.param(path, id=name_of(path), marks=marks(path.name)) for path in paths]


def control_of(path):
    return path.with_name(re.sub('-(dtn|dpn|h4458|local)', '', path.name))


def has_dtns_heads(path):
    match = OF_PVT.search(path.name)
    return match is not None and not match['v2'] and re.search('-(dtn|h4458)', path.name) is not None


@pytest.fixture(scope='module', params=cases(BUILT, QUICK))
def built(request):
    """Path of a config, and its model on the meta device."""
    with torch.device('meta'):
        return request.param, judged_model(resolve(request.param))


def test_builds_a_backbone_of_ours_with_the_norms_of_its_name(built):
    path, model = built
    backbone = model.backbone
    kinds = {type(module).__name__ for module in backbone.modules()}
    assert type(backbone).__module__.startswith('tokennorm.')
    assert ('DTN' in kinds, 'DualPatchEmbed' in kinds) == ('-dtn' in path.name, '-dpn' in path.name)
    assert ('LocalLayerNorm' in kinds) == ('-local' in path.name)


@pytest.mark.parametrize('path', cases(DETECTORS))
def test_heads_count_the_classes_of_the_dataset(path):
    cfg = resolve(path)
    dataset = cfg.train_dataloader.dataset
    classes = len(dataset.metainfo['classes']) if 'metainfo' in dataset else 80
    counts = {value for key, value in flatten(cfg.model.to_dict()).items() if key.endswith('num_classes')}
    assert counts == {classes}


@pytest.mark.parametrize('path', cases(VARIANTS))
def test_variants_differ_only_in_norm_stem_and_initial_weights(path):
    variant = flatten(resolve(path).to_dict())
    control = flatten(resolve(control_of(path)).to_dict())
    different = {key for key in variant | control if variant.get(key) != control.get(key)}
    different -= {'work_dir', 'model.backbone.init_cfg.checkpoint'}
    # The LayerNorm detector has the eps of mmdet's COCO weights. A test below compares variants with their pretraining.
    different = {key for key in different if not key.startswith('model.backbone.norm_cfg')}
    for part, prefix in NORM_AND_STEM.items():
        of_part = {key for key in different if key.startswith(prefix)}
        assert bool(of_part) == (re.search(part, path.name) is not None)
        different -= of_part
    if has_dtns_heads(path):
        arch = 'model.backbone.arch'
        assert variant[arch] == f'{control[arch]}-dtn'  # the heads of the DTN authors' code
        different -= {arch}
    if '-release' in path.name:
        different -= {'optim_wrapper.paramwise_cfg.custom_keys.position.decay_mult'}  # P has weight decay
    if '-local' in path.name:
        rate = 'optim_wrapper.paramwise_cfg.custom_keys..depthwise.lr_mult'
        assert variant[rate] == 20
        different -= {rate}
    assert different == set()
    if '-dtn' in path.name:
        assert variant['model.backbone.token_norm_cfg.type'] == 'DTN'
    if '-local' in path.name:
        assert variant['model.backbone.token_norm_cfg.type'] == 'LocalLayerNorm'
    if '-dpn' in path.name:
        assert variant['model.backbone.stem_cfg.type'] == 'DualPatchEmbed'


@pytest.mark.parametrize('path', cases(path for path in CONFIGS if OF_PVT.search(path.name)))
def test_each_pvt_config_states_its_heads(path):
    arch = resolve(path).model.backbone.arch
    heads = {**PVT_ARCHS, **PVT_V2_ARCHS}[arch]['num_heads']
    assert heads == ((4, 4, 5, 8) if has_dtns_heads(path) else (1, 2, 5, 8))
    if re.search('-(dtn|h4458)', path.name):
        assert str(heads) in ast.get_docstring(ast.parse(path.read_text()))


def pretraining_of(path):
    """The config of the pretraining command in a variant's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    config, gpus = re.search(r'    tools/dist_train.sh (\S+) (\d+)$', docstring, re.MULTILINE).groups()
    assert f'_{gpus}xb' in config
    return ROOT.parent / config


@pytest.mark.parametrize('path', cases(COCO))
def test_initial_weights_fit_the_detector(path):
    """LayerNorm baselines load the authors' weights, variants what the command in their docstring trains."""
    backbone = resolve(path).model.backbone
    checkpoint = backbone.init_cfg.checkpoint
    if path not in VARIANTS:
        assert checkpoint.startswith(PUBLISHED[backbone.type].format(backbone.arch))
        assert checkpoint.endswith('.pth')
        return
    pretraining = resolve(pretraining_of(path))
    assert checkpoint == f'work_dirs/{pretraining_of(path).stem}/epoch_{pretraining.train_cfg.max_epochs}.pth'
    for key in FUNCTION_ARGUMENTS:
        assert backbone.get(key) == pretraining.model.backbone.get(key), key


def layers_of(path):
    """The layers of a config's backbone by name, each with its arguments."""
    cfg = resolve(path)
    with torch.device('meta'), DefaultScope.overwrite_default_scope(cfg.default_scope):
        modules = MODELS.build(dict(cfg.model.backbone, init_cfg=None)).named_modules()
    return {name: f'{type(m).__name__}({m.extra_repr()})' for name, m in modules if not list(m.children())}


@pytest.mark.parametrize('path', cases((path for path in BUILT if path in COCO and path in VARIANTS), QUICK))
def test_a_detector_computes_what_its_pretraining_computed(path):
    """Every layer that both have is built with the same arguments: eps, heads, pools, kernels, channels."""
    detector, pretraining = layers_of(path), layers_of(pretraining_of(path))
    common = {name for name in detector.keys() & pretraining.keys() if not name.endswith('drop_path')}
    if 'swin' in path.name:  # its classifier has no norm after the first stages
        common -= {f'stages.{stage}.norm' for stage in range(3)}
    assert len(common) > 50
    assert {name: detector[name] for name in common} == {name: pretraining[name] for name in common}


@pytest.mark.parametrize('norm', ['', '-dtn', '-local'])
def test_trial_detectors_compute_what_pvt_mini_computed(norm):
    pretraining = layers_of(ROOT / f'pretrain/pvt-mini{norm}_1xb128_tiny-imagenet.py')
    for detector in ('retinanet', 'mask-rcnn'):
        layers = layers_of(ROOT / f'trial/{detector}_pvt-mini{norm}_fpn.py')
        common = layers.keys() & pretraining.keys()
        assert len(common) > 50
        assert {name: layers[name] for name in common} == {name: pretraining[name] for name in common}


@pytest.mark.parametrize(('norm', 'arm'), [('', 'LN'), ('-dtn', 'DTN'), ('-local', 'local')])
def test_pvt_mini_is_pretrained_as_in_the_study(norm, arm):
    """All but the pipelines, which resize images of other sizes here."""
    study = load_study(ROOT.parent / 'projects/experiments/study/configs/evidence.py')
    theirs = flatten(study.run_config(Run('pvt_mini', arm, 10)).to_dict())
    ours = flatten(resolve(ROOT / f'pretrain/pvt-mini{norm}_1xb128_tiny-imagenet.py').to_dict())
    different = {key for key in ours | theirs if str(ours.get(key)) != str(theirs.get(key))}
    of_a_run = {'work_dir', 'max_epochs', 'model.backbone.init_cfg', 'custom_imports'}
    of_a_run |= {key for key in different if key.startswith(('default_hooks.checkpoint.', 'randomness.'))}
    assert {key for key in different - of_a_run if not key.endswith('pipeline')} == set()


@pytest.mark.parametrize(
    'path', [p for p in COCO if re.search('retinanet.*-dtn-dpn_', p.name) and QUICK.search(p.name)]
)
def test_a_detector_takes_all_that_its_pretraining_made(path, tmp_path):
    """Both with a small architecture of the backbone, which they share."""
    backbones = []
    for cfg in (resolve(pretraining_of(path)), resolve(path)):
        small = cfg.model.backbone | dict(arch=SMALL[cfg.model.backbone.type])
        if backbones:
            small['init_cfg'] = dict(cfg.model.backbone.init_cfg, checkpoint=str(tmp_path / 'epoch_300.pth'))
        with DefaultScope.overwrite_default_scope(cfg.default_scope):
            backbones.append(MODELS.build(small))
    classifier, backbone = backbones
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.uniform_()
    weights = {f'backbone.{name}': value for name, value in classifier.state_dict().items()}
    torch.save(dict(state_dict=weights | {'head.fc.weight': torch.ones(3, 3)}), tmp_path / 'epoch_300.pth')
    backbone.init_weights()
    made = classifier.state_dict()
    for name, value in backbone.state_dict().items():
        if cfg.model.backbone.type == 'tokennorm.Swin' and re.match(r'stages\.\d\.norm\.', name):
            expected = torch.full_like(value, name.endswith('weight'))  # a classifier has none of them
        elif name.endswith(('rel_pos_h', 'rel_pos_w')):
            expected = torch.zeros_like(value)  # neither has it these
        elif name.endswith('pos_embed'):
            expected = made[name][:, -value.shape[1] :]  # without the class token's
        else:
            expected = made[name]
        torch.testing.assert_close(value, expected, rtol=0, atol=0, msg=name)


def test_norms_positions_and_lambdas_get_no_weight_decay(built):
    path, model = built
    cfg = resolve(path)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        groups = build_optim_wrapper(model, deepcopy(cfg.optim_wrapper)).optimizer.param_groups
    decay = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    names = [name for name, _ in model.named_parameters()]
    for key in cfg.optim_wrapper.paramwise_cfg.get('custom_keys', {}):
        assert any(key in name for name in names), f'custom_keys: {key} matches no parameter'
    decayed = {name for name, p in model.named_parameters() if decay.get(id(p), 0) > 0}
    if '-release' in path.name:
        decayed -= {name for name in decayed if name.endswith('.position')}  # a test of the ablations has these
    parts = ['norm', 'pos_embed', 'cls_token', 'mean_logit', 'var_logit', 'position', 'bias_table', '.gn.', '.bn']
    if path not in COCO:
        parts.append('bias')  # which the published detectors do decay
    of_norms = {name for name in decayed if any(part in name for part in parts)}
    assert {name for name in of_norms if not name.endswith('.depthwise')} == set()  # LocalLayerNorm's kernels decay
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in trained.items() if p.ndim > 1 and name not in decayed} == {
        name for name in trained if name.endswith(FREE_OF_DECAY)
    }
    base = cfg.optim_wrapper.optimizer.weight_decay
    assert {decay[id(p)] for name, p in trained.items() if name in decayed} == {base}


@pytest.mark.parametrize('path', cases(COCO))
def test_hyperparameters_are_those_of_the_backbone_s_authors(path):
    cfg = resolve(path)
    lr, weight_decay, warm_up = HYPERPARAMETERS[path.parent.name]
    optimizer = cfg.optim_wrapper.optimizer
    images, epochs, milestones = 2, 12, [8, 11]
    if re.search('pvtv2-b[45]_', path.name):
        images, lr = 1, lr / 1.4
    if '3x' in path.name:
        epochs, milestones = 36, [27, 33]
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', lr, weight_decay)
    assert (cfg.train_dataloader.batch_size, cfg.train_cfg.max_epochs) == (images, epochs)
    warm_up_cfg, steps = cfg.param_scheduler
    batches_a_step = cfg.optim_wrapper.get('accumulative_counts', 1)
    assert (warm_up_cfg.end, warm_up_cfg.by_epoch) == (warm_up * batches_a_step, False)
    assert (steps.milestones, steps.end, steps.by_epoch) == (milestones, epochs, True)
    assert cfg.auto_scale_lr.base_batch_size * batches_a_step == 8 * images


@pytest.mark.parametrize('path', cases(ONE_GPU))
def test_on_one_gpu_a_step_sees_as_many_images_as_on_eight(path):
    one = flatten(resolve(path).to_dict())
    eight = flatten(resolve(path.with_name(path.name.replace('_1xb2-accum8-', '_'))).to_dict())
    different = {key for key in one | eight if one.get(key) != eight.get(key)}
    assert different == {
        'model.backbone.with_cp',
        'optim_wrapper.accumulative_counts',
        'param_scheduler',
        'auto_scale_lr.base_batch_size',
    }
    assert one['train_dataloader.batch_size'] * one['optim_wrapper.accumulative_counts'] == 16
