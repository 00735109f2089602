"""A network trained with LayerNorm continues with DTN."""

import pytest
import torch

from tests.helpers.backbones import FOUR_STAGES, THREE_BLOCKS
from tests.helpers.pvt import ARCH, published_layout
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.checkpoints import CheckpointError
from tokennorm.norms import DTN

LN_START = dict(type='DTN', init='layer_norm')
KINDS = [(PVT, ARCH, 1e-6), (PVTv2, ARCH, 1e-6), (Swin, FOUR_STAGES, 1e-5), (ViT, THREE_BLOCKS, 1e-6)]


@pytest.mark.parametrize(('kind', 'arch', 'eps'), KINDS, ids=lambda value: getattr(value, '__name__', ''))
def test_the_maps_are_those_of_layer_norm(kind, arch, eps, tmp_path):
    source = kind(arch).eval()
    torch.save(source.state_dict(), tmp_path / 'ln.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'ln.pth'))
    model = kind(arch, token_norm_cfg=LN_START, init_cfg=init_cfg).eval()
    model.init_weights()
    image = torch.randn(2, 3, 96, 128)
    for i, (actual, expected) in enumerate(zip(model(image), source(image), strict=True)):
        error = (actual - expected).abs().max() / expected.abs().max()
        assert 0 < error < 1e-3, f'stage {i}: {error:.1e}'


@pytest.mark.parametrize(('kind', 'arch', 'eps'), KINDS, ids=lambda value: getattr(value, '__name__', ''))
def test_dtn_from_layer_norm_weights_has_their_eps(kind, arch, eps):
    def eps_of(norm_cfg=None, **kwargs):
        model = kind(arch, token_norm_cfg=dict(type='DTN', **kwargs), norm_cfg=norm_cfg)
        return {module.eps for module in model.modules() if isinstance(module, DTN)}

    assert eps_of(init='layer_norm') == eps_of(init=0.9) == {eps}
    assert eps_of(init='layer_norm', norm_cfg=dict(type='LN', eps=1e-3)) == {1e-3}
    assert eps_of(init='layer_norm', eps=1e-4) == {1e-4}
    assert eps_of() == {1e-5}


@pytest.mark.parametrize(('init', 'expected'), [('layer_norm', 0.99966), (0.9, 0.9)])
def test_a_published_checkpoint_starts_dtn_with_its_lambda(init, expected, tmp_path):
    source = randomize(PVT(ARCH)).eval()
    torch.save(published_layout(source), tmp_path / 'pvt.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'pvt.pth'))
    model = PVT(ARCH, token_norm_cfg=dict(type='DTN', init=init), init_cfg=init_cfg).eval()
    model.init_weights()
    norms = [module for module in model.modules() if isinstance(module, DTN)]
    for logit in (logit for norm in norms for logit in (norm.mean_logit, norm.var_logit)):
        torch.testing.assert_close(logit.sigmoid(), torch.full_like(logit, expected), atol=5e-6, rtol=0)
    assert norms[0].position.tolist() == [[-1, 0, 0]]
    assert torch.equal(norms[0].weight, source.stages[0].blocks[0].norm1.weight)


def test_trained_lambdas_are_kept(tmp_path):
    source = PVT(ARCH, token_norm_cfg=LN_START)
    torch.nn.init.constant_(source.stages[0].blocks[0].norm1.mean_logit, 3.0)
    torch.save(source.state_dict(), tmp_path / 'dtn.pth')
    model = PVT(ARCH, token_norm_cfg=LN_START, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'dtn.pth')))
    model.init_weights()
    assert (model.stages[0].blocks[0].norm1.mean_logit == 3).all()
    state_dict = source.state_dict()
    del state_dict['stages.0.blocks.0.norm1.mean_logit']
    torch.save(state_dict, tmp_path / 'dtn.pth')
    with pytest.raises(CheckpointError, match=r'1 missing: stages.0.blocks.0.norm1.mean_logit'):
        model.init_weights()


@pytest.mark.parametrize('kind', ['RMSNorm', 'LN'])
def test_other_norms_are_not_taken_for_layer_norm(tmp_path, kind):
    """RMSNorm has no bias; nor has a LayerNorm's file that lost one."""
    state_dict = PVT(ARCH, token_norm_cfg=dict(type=kind)).state_dict()
    state_dict.pop('stages.0.blocks.0.norm1.bias', None)
    torch.save(state_dict, tmp_path / 'other.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'other.pth'))
    with pytest.raises(CheckpointError, match=r'missing: .*stages.0.blocks.0.norm1.bias'):
        PVT(ARCH, token_norm_cfg=LN_START, init_cfg=init_cfg).init_weights()
