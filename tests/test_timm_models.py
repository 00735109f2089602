"""Entry points of timm."""

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2

import tokennorm.timm_models
from tokennorm.backbones import PVT, ViT
from tokennorm.norms import DTN


@pytest.mark.parametrize(
    ('name', 'reference'),
    [
        ('pvt_mini_dtn', PVT('mini', token_norm_cfg=dict(type='DTN'), out_type='cls_token')),
        ('vit_tiny_dpn', ViT('tiny', stem_cfg=dict(type='DualPatchEmbed'), out_type='cls_token')),
    ],
)
def test_timm_creates_the_classifier(name, reference):
    model = timm.create_model(name, num_classes=5, drop_path_rate=0.0).eval()
    reference.load_state_dict(model.backbone.state_dict())
    image = torch.randn(2, 3, 224, 224)
    assert torch.equal(model(image), model.head(reference.eval()(image)[-1]))
    assert timm.data.resolve_data_config({}, model=model)['input_size'] == (3, 224, 224)


def test_every_model_is_listed_and_dtn_has_its_heads():
    names = [
        f'{family}_{variant}' for family in tokennorm.timm_models._FAMILIES for variant in ('dtn', 'dpn', 'dtn_dpn')
    ]
    assert set(names) <= set(timm.list_models())
    with torch.device('meta'):
        model = timm.create_model('pvt_tiny_dtn')
        assert timm.create_model('pvt_tiny_dpn').backbone.stages[0].blocks[0].attn.num_heads == 1
        for name in ('pvtv2_b2_dtn', 'swin_tiny_dtn_dpn', 'vit_small_star_dtn'):
            assert any(isinstance(module, DTN) for module in timm.create_model(name).modules())
    assert model.backbone.stages[0].blocks[0].norm1.num_heads == 4
    assert sum(p.numel() for p in model.parameters()) == 13229548  # as the ImageNet config
    with pytest.raises(ValueError, match='pvt_tiny_dtn: pretrained=True must be False'):
        timm.create_model('pvt_tiny_dtn', pretrained=True)


def test_the_arguments_of_timm_s_training_script():
    """Its train.py passes all of these, most of them None; timm drops those."""
    nones = dict.fromkeys(['drop_path_rate', 'drop_block_rate', 'global_pool', 'bn_momentum', 'bn_eps'])
    others = dict(pretrained=False, scriptable=False, checkpoint_path='', in_chans=1, num_classes=4, img_size=64)
    model = timm.create_model('pvt_mini_dtn', drop_rate=0.9, **nones, **others)
    assert model.get_classifier().out_features == 4
    image = torch.randn(1, 1, 64, 64)
    assert model.head_drop.p == 0.9
    assert not torch.equal(model(image), model(image))
    assert torch.equal(model.eval()(image), model(image))
    with pytest.raises(ValueError, match="pvt_mini_dtn: PVT has no argument 'features_only'"):
        timm.create_model('pvt_mini_dtn', features_only=True)


def test_timm_s_optimizer_decays_no_positions():
    model = timm.create_model('pvt_mini_dtn')
    optimizer = create_optimizer_v2(model, opt='adamw', lr=1e-3, weight_decay=0.05)
    decayed = {id(p) for group in optimizer.param_groups if group['weight_decay'] > 0 for p in group['params']}
    names = [name for name, p in model.named_parameters() if id(p) in decayed]
    assert not [name for name in names if name.endswith(('position', 'pos_embed', 'cls_token', 'logit'))]
    assert 'backbone.stages.0.blocks.0.mlp.fc1.weight' in names


def test_layer_decay_of_timm_follows_the_depth():
    model = timm.create_model('pvt_mini_dtn', img_size=64)
    groups = create_optimizer_v2(model, opt='adamw', lr=1.0, layer_decay=0.5).param_groups
    scales = {id(p): group['lr_scale'] for group in groups for p in group['params']}
    depths = {name: model.backbone.get_layer_depth(name, 'backbone.') for name, _ in model.named_parameters()}
    for name, p in model.named_parameters():
        depth, count = depths[name]
        assert scales[id(p)] == 0.5 ** (count - 1 - depth), name


def test_the_head_is_replaced_as_timm_s():
    model = timm.create_model('pvt_mini_dtn', img_size=64).eval()
    features = model.forward_features(image := torch.randn(1, 3, 64, 64))
    model.reset_classifier(7)
    assert (model.num_classes, model(image).shape) == (7, (1, 7))
    assert torch.equal(model.forward_head(features), model(image))
    model.reset_classifier(0)
    assert torch.equal(model(image), features)
    with pytest.raises(ValueError, match="global_pool='avg' must be None"):
        model.reset_classifier(7, 'avg')
