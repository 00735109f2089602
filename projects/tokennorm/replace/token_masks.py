"""Padding masks of sequences among the arguments of a module."""

import inspect
from typing import NamedTuple

from torch import Tensor, nn

MASKS = dict(  # arguments of a sequence, and whether True hides a token
    attention_mask=False, decoder_attention_mask=False, src_key_padding_mask=True, tgt_key_padding_mask=True
)
OF_DECODERS = {'decoder_attention_mask', 'tgt_key_padding_mask'}


class Mask(NamedTuple):
    """An argument of the current forward pass that hides padding."""

    name: str
    owner: str  # class of the module that was called with it
    values: Tensor | None  # (B, T); None for the masks of an encoder and a decoder


def lengths_of(mask: Tensor, hides: bool = False) -> Tensor:
    """Number of tokens in each sequence of a padding mask (B, T), (B,).

    True, or another number than 0, is a token; with `hides`, as in torch's masks, it is padding. In a mask that is
    added to the scores of an attention 0 is a token and a negative number is padding.
    """
    is_added = mask.is_floating_point() and not bool((mask > 0).any())
    is_token = mask >= 0 if is_added else mask.bool() ^ hides
    if bool((is_token[:, 1:] & ~is_token[:, :-1]).any()):
        raise ValueError("the mask hides tokens before others: pad sequences at their end, padding_side='right'")
    return is_token.sum(dim=1)


def mask_arguments_of(module: nn.Module) -> dict[str, int | None]:
    """Padding masks among the arguments of a module, and their positions; None for keywords only."""
    parameters = inspect.signature(module.forward).parameters
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = {name: i if parameters[name].kind in positional else None for i, name in enumerate(parameters)}
    return {name: places[name] for name in MASKS if name in places}
