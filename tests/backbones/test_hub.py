"""Backbones on the Hugging Face Hub: saved with their arguments."""

import pytest
import torch

from tests.helpers.backbones import BACKBONES
from tokennorm.backbones import hub
from tokennorm.norms import DTN


@pytest.mark.parametrize('cls', BACKBONES)
def test_a_backbone_is_saved_with_its_arguments(cls, tmp_path):
    arguments = BACKBONES[cls] | dict(token_norm_cfg=dict(type='DTN', eps=1e-3), stem_cfg=dict(type='DualPatchEmbed'))
    model = getattr(hub, cls.__name__)(**arguments).eval()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert isinstance(loaded, cls)
    assert next(module for module in loaded.modules() if isinstance(module, DTN)).eps == 1e-3
    image = torch.randn(1, 3, 64, 64)
    for a, b in zip(model(image), loaded.eval()(image), strict=True):
        assert torch.equal(a, b)


def test_a_norm_that_cannot_be_saved_is_not_lost_silently(tmp_path):
    hub.PVT(arch='mini', token_norm_cfg=dict(type=DTN)).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match='Unexpected key'):
        hub.PVT.from_pretrained(tmp_path)
