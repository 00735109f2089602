"""The backbones with `save_pretrained`, `from_pretrained` and `push_to_hub` of the Hugging Face Hub.

    >>> from tokennorm.backbones.hub import PVT
    >>> model = PVT(arch='tiny', token_norm_cfg=dict(type='DTN'))
    >>> model.push_to_hub('owner/pvt-tiny-dtn')
    >>> model = PVT.from_pretrained('owner/pvt-tiny-dtn')

The arguments of the constructor are saved with the weights. They must be JSON values, such as dicts and numbers.
`init_cfg=dict(type='Pretrained', checkpoint='hf-hub:owner/pvt-tiny-dtn')` loads the weights into a detector.
"""

from huggingface_hub import PyTorchModelHubMixin

from tokennorm import backbones

_ABOUT = dict(library_name='tokennorm', tags=['dynamic-token-normalization', 'dual-patchnorm'])


class PVT(backbones.PVT, PyTorchModelHubMixin, **_ABOUT):
    """`backbones.PVT`."""


class PVTv2(backbones.PVTv2, PyTorchModelHubMixin, **_ABOUT):
    """`backbones.PVTv2`."""


class Swin(backbones.Swin, PyTorchModelHubMixin, **_ABOUT):
    """`backbones.Swin`."""


class ViT(backbones.ViT, PyTorchModelHubMixin, **_ABOUT):
    """`backbones.ViT`."""
