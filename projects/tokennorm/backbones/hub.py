"""The backbones with `save_pretrained`, `from_pretrained` and `push_to_hub` of the Hugging Face Hub.

    >>> from tokennorm.backbones.hub import PVT
    >>> model = PVT(arch='tiny', token_norm_cfg=dict(type='DTN'))
    >>> model.push_to_hub('owner/pvt-tiny-dtn')
    >>> model = PVT.from_pretrained('owner/pvt-tiny-dtn')

The arguments of the constructor are saved with the weights. They must be JSON values, such as dicts and numbers.
`init_cfg=dict(type='Pretrained', checkpoint='hf-hub:owner/pvt-tiny-dtn')` loads the weights into a detector.
"""

from typing import Any

from huggingface_hub import PyTorchModelHubMixin

from tokennorm import backbones


class _Hub(PyTorchModelHubMixin, library_name='tokennorm', tags=['dynamic-token-normalization', 'dual-patchnorm']):
    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **kwargs: Any) -> Any:
        """Raises for weights that do not fit: an argument that is not a JSON value, such as a class, is not saved."""
        return super()._from_pretrained(strict=strict, **kwargs)


class PVT(backbones.PVT, _Hub):
    """`backbones.PVT`."""


class PVTv2(backbones.PVTv2, _Hub):
    """`backbones.PVTv2`."""


class Swin(backbones.Swin, _Hub):
    """`backbones.Swin`."""


class ViT(backbones.ViT, _Hub):
    """`backbones.ViT`."""
