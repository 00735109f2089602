"""Swin: equal to the published backbone and classifier, mmdet's and timm's, and what is its own."""

import pytest
import torch

from tests.helpers.compare import assert_near
from tests.helpers.swin import ARCH, mmdets_model, published_layout, small_swin, timms_model
from tests.helpers.weights import randomize
from tokennorm.backbones.swin import attend_with_bias
from tokennorm.checkpoints import from_published_swin, load_pretrained


@pytest.mark.parametrize('size', [(224, 224), (448, 224)])
def test_equals_timms_classifier_with_the_same_weights(size):
    """At sizes whose maps windows divide. At 224 timm shifts nothing in the last stage, at 448 x 224 its rows alone."""
    theirs = timms_model(img_size=size)
    ours = small_swin(out_type='avg_featmap').eval()
    ours.load_state_dict(from_published_swin(theirs.state_dict(), 'avg_featmap'), strict=True)
    image = torch.randn(2, 3, *size)
    expected = theirs.forward_head(theirs.forward_features(image), pre_logits=True)
    assert_near('vector', ours(image)[0], expected)
    always_shifted = small_swin()
    always_shifted.load_state_dict(from_published_swin(theirs.state_dict()))
    assert not torch.allclose(always_shifted.eval()(image)[3].mean((2, 3)), expected, rtol=1e-2)


@pytest.mark.parametrize('assign', [True, False])
def test_weights_fill_a_model_from_the_meta_device(assign):
    source = small_swin().eval()
    with torch.device('meta'):
        model = small_swin().eval()
    if not assign:
        model.to_empty(device='cpu')
    model.load_state_dict(source.state_dict(), assign=assign)
    image = torch.randn(1, 3, 64, 96)
    for actual, expected in zip(model(image), source(image), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize('size', [(224, 224), (448, 224), (161, 223)])
def test_equals_mmdets_with_the_same_weights(size):
    theirs = mmdets_model()
    ours = small_swin().eval()
    ours.load_state_dict(from_published_swin(theirs.state_dict()), strict=True)
    image = torch.randn(2, 3, *size)
    for stage, (actual, expected) in enumerate(zip(ours(image), theirs(image), strict=True)):
        assert_near(f'stage {stage}', actual, expected)


def test_gradients_equal_mmdets():
    theirs = mmdets_model()
    ours = small_swin()
    ours.load_state_dict(from_published_swin(theirs.state_dict()))
    image = torch.randn(2, 3, 96, 64)
    for model in (ours, theirs):
        sum(out.square().mean() for out in model(image)).backward()
    expected = from_published_swin({name: p.grad for name, p in theirs.named_parameters()})
    for name, p in ours.named_parameters():
        assert_near(name, p.grad, expected[name], 'backward')


@pytest.mark.parametrize('num_masks', [1, 3])
def test_attention_with_bias_is_the_same_without_gradient(num_masks):
    q, k, v = torch.randn(3, 6, 2, 5, 4)
    bias = torch.randn(num_masks, 2, 5, 5)
    bias[:, :, 0, 1:] = -torch.inf
    logits = torch.einsum('mntd,mnsd->mnts', q, k) / 2 + torch.stack([bias[m % num_masks] for m in range(6)])
    expected = torch.einsum('mnts,mnsd->mntd', logits.softmax(-1), v)
    for needs_grad in (False, True):
        assert_near('out', attend_with_bias(q, k, v, bias.requires_grad_(needs_grad)), expected)
    assert attend_with_bias(*(t.bfloat16() for t in (q, k, v, bias.detach()))).dtype == torch.bfloat16


def test_initial_bias_tables():
    model = small_swin(arch=dict(ARCH, embed_dims=[16, 32, 64, 128]))
    assert 0.015 < model.stages[3].blocks[0].attn.relative_position_bias_table.std() < 0.025


def test_last_norm_of_classifier_or_last_output_norm(tmp_path):
    source = randomize(small_swin())
    for classifier, norm in ((True, 'norm.weight'), (False, 'norm3.weight')):
        published = published_layout(source, classifier)
        model = small_swin(out_type='avg_featmap')
        torch.save(published, tmp_path / 'swin.pth')
        left_out = load_pretrained(model, tmp_path / 'swin.pth').unexpected
        assert torch.equal(model.stages[3].norm.weight, published[norm])
        assert [key for key in left_out if 'norm' in key] == (
            [] if classifier else [f'norm{i}.{kind}' for i in range(3) for kind in ('weight', 'bias')]
        )
    mmpretrains = {
        key: v for key, v in mmdets_model().state_dict().items() if key[:5] not in ('norm0', 'norm1', 'norm2')
    }
    assert set(from_published_swin(mmpretrains, 'avg_featmap')) == set(model.state_dict())


def test_classifier_and_detection_checkpoints_convert_both_ways():
    classifier, detection = randomize(small_swin(out_type='avg_featmap')), randomize(small_swin())
    converted = from_published_swin(classifier.state_dict())
    detection_norms = {f'stages.{i}.norm.{key}' for i in range(4) for key in ('weight', 'bias')}
    assert set(converted) == set(detection.state_dict())
    for name, value in converted.items():
        if name in detection_norms:
            assert torch.equal(value, torch.full_like(value, name.endswith('weight')))
        else:
            assert torch.equal(value, classifier.state_dict()[name])
    back = from_published_swin(detection.state_dict(), 'avg_featmap')
    assert set(back) == set(classifier.state_dict())
    assert all(torch.equal(value, detection.state_dict()[name]) for name, value in back.items())
    for model, out_type in ((classifier, 'avg_featmap'), (detection, 'featmap')):
        same = from_published_swin(model.state_dict(), out_type)
        assert all(torch.equal(value, same[name]) for name, value in model.state_dict().items())
