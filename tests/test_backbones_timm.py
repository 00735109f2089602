"""timm's models as backbones: their maps, their weights, and both techniques in a detector."""

import pytest
import timm
import torch
from mmdet.utils import register_all_modules
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS

from tests.conftest import assert_near
from tokennorm.backbones import TimmBackbone
from tokennorm.checkpoints import CheckpointError
from tokennorm.norms import DTN
from tokennorm.stems import DualPatchEmbed

VIT_ARGS = dict(embed_dim=16, depth=3, num_heads=4, dynamic_img_size=True, dynamic_img_pad=True)
SWIN_ARGS = dict(embed_dim=16, depths=(2, 2), num_heads=(2, 4), strict_img_size=False)
CASES = {
    # name in timm: arguments, image, (channels, stride, side) of each map
    'pvt_v2_b0': (dict(timm_args=dict(depths=(1,) * 4)), (66, 100), [(32, 4), (64, 8), (160, 16), (256, 32)]),
    'vit_tiny_patch16_224': (dict(out_indices=(0, 1), timm_args=VIT_ARGS), (66, 100), [(16, 16), (16, 16)]),
    'swin_tiny_patch4_window7_224': (dict(out_indices=(0, 1), timm_args=SWIN_ARGS), (68, 100), [(16, 4), (32, 8)]),
}


@pytest.mark.parametrize('name', CASES)
def test_maps_are_timms_and_a_start_from_layer_norm_keeps_them(name, tmp_path):
    args, size, info = CASES[name]
    theirs = timm.create_model(name, **args['timm_args']).eval()
    torch.save(theirs.state_dict(), tmp_path / 'timm.pth')
    args = dict(args, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'timm.pth')))
    plain, dtn = TimmBackbone(name, **args), TimmBackbone(name, dict(type='DTN', start='layer_norm'), **args)
    x = torch.randn(2, 3, *size)
    indices = list(args.get('out_indices', range(4)))
    expected = theirs.forward_intermediates(x, indices=indices, intermediates_only=True)
    for backbone in (plain, dtn):
        backbone.init_weights()
        backbone.eval()
    assert [(entry['num_chs'], entry['reduction']) for entry in dtn.feature_info] == info
    for got, start, want, (channels, stride) in zip(plain(x), dtn(x), expected, info, strict=True):
        assert want.shape == (2, channels, -(-size[0] // stride), -(-size[1] // stride))
        assert_near('map', got, want)
        assert (start - want).abs().max() <= 1e-3 * want.abs().max()

    for p in dtn.parameters():
        torch.nn.init.normal_(p)
    torch.save(dict(state_dict={f'backbone.{k}': v for k, v in dtn.state_dict().items()}), tmp_path / 'ours.pth')
    again = TimmBackbone(
        name,
        dict(type='DTN', start='layer_norm'),
        **dict(args, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'ours.pth'))),
    )
    again.init_weights()
    assert [k for k, v in again.state_dict().items() if not torch.equal(v, dtn.state_dict()[k])] == []


@pytest.mark.parametrize('name', CASES)
def test_both_techniques_train(name):
    args, size, _ = CASES[name]
    backbone = TimmBackbone(name, dict(type='DTN'), dict(type='DualPatchEmbed'), **args)
    sum(out.square().mean() for out in backbone(torch.randn(1, 3, *size))).backward()
    new = [m for m in backbone.modules() if isinstance(m, DTN | DualPatchEmbed)]
    assert sum(isinstance(m, DualPatchEmbed) for m in new) == 1
    assert len(new) > 4
    assert all(p.grad is not None for module in new for p in module.parameters())


def test_a_checkpoint_that_is_not_the_models_raises(tmp_path):
    file = str(tmp_path / 'timm.pth')
    init_cfg = dict(type='Pretrained', checkpoint=file)
    torch.save(timm.create_model('vit_tiny_patch16_224', **dict(VIT_ARGS, depth=4)).state_dict(), file)
    with pytest.raises(CheckpointError, match=r'unexpected: net\.model\.blocks\.3'):
        TimmBackbone('vit_tiny_patch16_224', out_indices=(2,), timm_args=VIT_ARGS, init_cfg=init_cfg).init_weights()
    torch.save(timm.create_model('vit_tiny_patch16_224', **VIT_ARGS).state_dict(), file)
    for options, missing in [
        (dict(token_norm_cfg=dict(type='DTN')), 'mean_logit'),
        (dict(stem_cfg=dict(type='DualPatchEmbed')), 'stem'),
    ]:
        backbone = TimmBackbone(
            'vit_tiny_patch16_224', out_indices=(2,), timm_args=VIT_ARGS, init_cfg=init_cfg, **options
        )
        with pytest.raises(CheckpointError, match=f'missing: .*{missing}'):
            backbone.init_weights()


def test_what_timm_does_not_have_raises():
    with pytest.raises(ValueError, match="model_name='pvt_v9' must be one of timm"):
        TimmBackbone('pvt_v9')
    with pytest.raises(ValueError, match='has no LayerNorm'):
        TimmBackbone('levit_128s', dict(type='DTN'), out_indices=(0, 1))


def test_a_retinanet_trains_on_it():
    register_all_modules(init_default_scope=False)
    cfg = Config.fromfile('configs/demo/retinanet_pvt-mini_fpn_shapes.py').model
    cfg.backbone = dict(
        type='tokennorm.TimmBackbone',
        model_name='pvt_v2_b0',
        token_norm_cfg=dict(type='DTN'),
        stem_cfg=dict(type='DualPatchEmbed'),
        timm_args=dict(depths=(1,) * 4),
    )
    cfg.neck.in_channels = [32, 64, 160, 256]
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg)
    outs = model(torch.randn(1, 3, 64, 96), mode='tensor')
    sum(level.square().mean() for branch in outs for level in branch).backward()
    assert [name for name, p in model.backbone.named_parameters() if p.grad is None] == []
