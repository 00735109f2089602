"""Checkpoints of every layout: recognized, loaded with equal outputs, and each key accounted for."""

from functools import partial

import pytest
import torch
from mmdet.models.backbones.pvt import PyramidVisionTransformer as MMDetPVT
from mmpretrain.models.backbones import SwinTransformer as MMPretrainSwin
from torch import nn

from tests.helpers import pvt as pvt
from tests.helpers import pvt_v2 as pvt_v2
from tests.helpers import swin as swin
from tests.helpers import vit as vit
from tests.helpers.compare import assert_near
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT, Swin, ViT
from tokennorm.checkpoints import CheckpointError, load_pretrained


def run(model, image):
    model.eval()  # some of the hosts' return None
    return [out.detach() for out in model(image)]


def renamed(make, rename, unexpected=(), **kwargs):
    """Random weights of ours under other names, a model to fill, its outputs, and the keys that it does not use."""
    source = randomize(make(**kwargs))
    return rename(source), make(**kwargs), lambda x: run(source, x), list(unexpected)


def filled_from(theirs, ours, outputs=None, unused=()):
    """The same of a model of another library; `unused` are ends of keys."""
    unexpected = [key for key in theirs.state_dict() if key.endswith(tuple(unused))]
    return theirs.state_dict(), ours, outputs or (lambda x: run(theirs, x)), unexpected


HEAD = ['head.weight', 'head.bias']
LN_OF_MMDET = dict(norm_cfg=dict(type='LN', eps=1e-6))
INDEX = 'relative_position_index'
BOTH = dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed'))


def pvt_of_its_authors():
    unexpected = ['cls_token', 'norm.weight', 'norm.bias', *HEAD]
    return renamed(pvt.small_pvt, pvt.published_layout, unexpected, pretrain_img_size=64)


def pvt_of_mmdet():
    row = dict(num_layers=pvt.ARCH['depths'], num_heads=[1, 2, 5, 8], mlp_ratios=pvt.ARCH['mlp_ratios'])
    theirs = randomize(MMDetPVT(embed_dims=8, pretrain_img_size=64, drop_path_rate=0.0, **row))
    return filled_from(theirs, pvt.small_pvt(pretrain_img_size=64, **LN_OF_MMDET))


def pvt_of_ours():
    """A classifier's weights in a detector's backbone."""
    kwargs = dict(BOTH, pretrain_img_size=64)
    source, featmap = randomize(pvt.small_pvt(out_type='cls_token', **kwargs)), pvt.small_pvt(**kwargs)
    kept = {key: v for key, v in source.state_dict().items() if key in featmap.state_dict()}
    featmap.load_state_dict(kept | {'stages.3.pos_embed': source.stages[3].pos_embed[:, 1:]})
    unexpected = ['stages.3.cls_token', 'norm.weight', 'norm.bias']
    return source.state_dict(), pvt.small_pvt(**kwargs), lambda x: run(featmap, x), unexpected


def pvt_v2_of_timm():
    theirs = pvt_v2.timms_model()
    maps = partial(theirs.forward_intermediates, intermediates_only=True)
    return filled_from(theirs, pvt_v2.small_pvt_v2(), maps, HEAD)


def pvt_v2_of_mmdet():
    return filled_from(pvt_v2.mmdets_model(), pvt_v2.small_pvt_v2(**LN_OF_MMDET))


def swin_of_timm():
    theirs = swin.timms_model()

    def vector(x):
        return [theirs.forward_head(theirs.forward_features(x), pre_logits=True)]

    return filled_from(theirs, swin.small_swin(out_type='avg_featmap'), vector, ['head.fc.weight', 'head.fc.bias'])


def swin_of_mmdet():
    return filled_from(swin.mmdets_model(), swin.small_swin(), unused=[INDEX])


def swin_of_mmpretrain():
    row = dict(embed_dims=8, depths=swin.ARCH['depths'], num_heads=swin.ARCH['num_heads'])
    theirs = randomize(MMPretrainSwin(row, drop_path_rate=0.0))
    ours = swin.small_swin(out_type='avg_featmap')
    return filled_from(theirs, ours, lambda x: [theirs(x)[0].mean((2, 3))], [INDEX, 'attn_mask'])


def vit_of_timm():
    theirs = vit.timms_model()
    return filled_from(theirs, vit.classifier(), lambda x: [theirs.forward_features(x)[:, 0]], HEAD)


def vit_of_the_dtn_authors():
    kwargs = dict(token_norm_cfg=dict(type='DTN', form='published'), l_dtn=3)
    source = randomize(vit.classifier(**kwargs))
    for block in source.blocks:
        nn.init.zeros_(block.attn.qkv.bias)
    content = vit.dtn_authors_layout(source)
    unexpected = [key for key in content if key.startswith('head.') or key.endswith('pos_proj.bias')]
    return content, vit.classifier(**kwargs), lambda x: run(source, x), unexpected


own = partial(partial, renamed, rename=lambda source: source.state_dict())
CASES = {
    'its authors': {
        'PVT': pvt_of_its_authors,
        'PVTv2': partial(renamed, pvt_v2.small_pvt_v2, pvt_v2.published_layout, HEAD),
        'Swin': partial(
            renamed,
            swin.small_swin,
            partial(swin.published_layout, classifier=False),
            [f'layers.0.blocks.0.attn.{INDEX}'],
        ),
    },
    'mmdet': {'PVT': pvt_of_mmdet, 'PVTv2': pvt_v2_of_mmdet},
    'mmdet or mmpretrain': {'Swin of mmdet': swin_of_mmdet, 'Swin of mmpretrain': swin_of_mmpretrain},
    'timm': {'PVTv2': pvt_v2_of_timm, 'Swin': swin_of_timm},
    'DeiT, timm or TokenNorm': {'ViT of timm': vit_of_timm, 'ViT': own(vit.classifier, l_dtn=3, **BOTH)},
    'mmpretrain': {'ViT': lambda: filled_from(vit.mmpretrains_model(), vit.classifier())},
    'the DTN authors': {'ViT': vit_of_the_dtn_authors},
    'TokenNorm': {
        'PVT': pvt_of_ours,
        'PVTv2': own(pvt_v2.small_pvt_v2, token_norm_cfg=dict(type='DTN')),
        'Swin': own(swin.small_swin, token_norm_cfg=dict(type='DTN')),
    },
}


def every(slow):
    """All cases; all but the first of each layout may be slow."""
    return [
        pytest.param(layout, case, id=f'{name}, {layout}', marks=pytest.mark.slow if slow and i else ())
        for layout, of in CASES.items()
        for i, (name, case) in enumerate(of.items())
    ]


@pytest.mark.parametrize(('layout', 'case'), every(slow=False))
def test_it_is_recognized_and_gives_equal_outputs(tmp_path, layout, case):
    """In a checkpoint of a runner; the next test loads the same without its prefix."""
    content, model, theirs, unexpected = case()
    path = tmp_path / 'epoch_1.pth'
    content = {f'backbone.{key}': value for key, value in content.items()} | {'neck.weight': torch.ones(1)}
    unexpected = [f'backbone.{key}' for key in unexpected] + ['neck.weight']
    torch.save(dict(state_dict=content, meta=dict(epoch=1)), path)
    report = load_pretrained(model, path)
    assert (report.layout, report.source, report.model) == (layout, str(path), type(model).__name__)
    assert report.unexpected == unexpected
    assert report.resized == []
    assert report.missing == [key for key in model.state_dict() if 'the DTN' in layout and key.endswith('qkv.bias')]
    accounted = report.loaded + report.missing
    assert sorted(accounted) == sorted(model.state_dict())
    size = (224, 224) if isinstance(model, Swin) else (32, 32) if isinstance(model, ViT) else (64, 64)
    image = torch.randn(2, 3, *size)
    with torch.no_grad():
        for i, (actual, expected) in enumerate(zip(run(model, image), theirs(image), strict=True)):
            assert_near(f'output {i}', actual, expected)


@pytest.mark.parametrize(('layout', 'case'), every(slow=True))
def test_the_report_is_true(tmp_path, layout, case):
    """What it calls unexpected changes nothing in the model, and all that it calls filled follows the file."""
    content, model, _, _ = case()
    path = tmp_path / 'some.pth'
    torch.save(content, path)
    report = load_pretrained(model, path)
    assert report.layout == layout
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.save({key: v + 1 if key in report.unexpected else v for key, v in content.items()}, path)
    load_pretrained(model, path)
    assert [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])] == []
    torch.save({key: v if key in report.unexpected else v + 1 for key, v in content.items()}, path)
    load_pretrained(model, path)
    same = [key for key, value in model.state_dict().items() if torch.equal(value, before[key])]
    assert same == report.missing
    torch.save(content | {'layer1.weight': torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match='layer1'):
        load_pretrained(model, path)


def test_a_subclass_takes_the_layouts_of_its_backbone(tmp_path):
    class OwnPVT(PVT):
        pass

    source = pvt.small_pvt()
    torch.save(source.state_dict(), tmp_path / 'pvt.pth')
    report = load_pretrained(OwnPVT(pvt.ARCH), tmp_path / 'pvt.pth')
    assert sorted(report.loaded) == sorted(source.state_dict())
