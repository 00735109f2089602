"""Encoders of Hugging Face transformers, with the norms of their blocks replaced.

The norms are where each library model has them: before the layers in the Transformer and in Reformer, after the
residual connections in BigBird.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    BigBirdConfig,
    BigBirdModel,
    ReformerConfig,
    ReformerModel,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
)

from tokennorm import replace_norms

BLOCK = 64  # of BigBird's attention, in tokens
BUCKETS = 10  # of Reformer's hashes, and its chunks, as in Long Range Arena


def build_encoder(
    name: str,
    token_norm_cfg: Mapping[str, Any],
    vocabulary: int,
    max_length: int,
    embed_dims: int,
    depth: int,
    num_heads: int,
    mlp_ratio: float,
    dropout: float,
    positions: Literal['learned', 'sinusoidal'] = 'learned',
) -> tuple[nn.Module, int]:
    """Builds an encoder whose blocks have the given norms, with a class token first.

    Args:
        name: 'transformer', 'bigbird' or 'reformer'.
        token_norm_cfg: The norms of all blocks. Tokens after the end of a sequence, by the attention mask, do not
            count in their statistics. The class token is normalized as by LayerNorm.
        vocabulary: Number of different tokens.
        max_length: Tokens of a sequence, at most.
        embed_dims, depth, num_heads, mlp_ratio, dropout: As in vision transformers.
        positions: 'learned' is the library's. 'sinusoidal' is Long Range Arena's: fixed sines and cosines, and token
            embeddings of variance 1.

    Returns:
        The encoder, and the length that every batch must be padded to: 0 is the longest sequence of the batch.

    Raises:
        ValueError: for another name, and for other positions.
    """
    if name not in _ENCODERS:
        raise ValueError(f'encoder={name!r} must be one of {", ".join(_ENCODERS)}')
    if positions not in ('learned', 'sinusoidal'):
        raise ValueError(f"positions={positions!r} must be 'learned' or 'sinusoidal'")
    build, norms = _ENCODERS[name]
    multiple = BUCKETS if name == 'reformer' else BLOCK
    padded = math.ceil(max_length / multiple) * multiple
    encoder = build(
        vocab_size=vocabulary,
        hidden_size=embed_dims,
        num_attention_heads=num_heads,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        layer_norm_eps=1e-6,  # as in Long Range Arena
        hidden_dropout=dropout,
        attention_dropout=dropout,
        max_position_embeddings=padded + 1,  # RoBERTa counts positions from 1
        depth=depth,
        mlp_dims=round(embed_dims * mlp_ratio),
    )
    if positions == 'sinusoidal':
        _use_sinusoids(encoder.embeddings)
    replace_norms(encoder, token_norm_cfg, include=norms, num_heads=num_heads, grid='sequence', num_prefix_tokens=1)
    return encoder, 0 if name == 'transformer' else padded


@torch.no_grad()
def _use_sinusoids(embeddings: nn.Module) -> None:
    """Long Range Arena's position and token embeddings, in those of one of the library's models."""
    table = getattr(embeddings.position_embeddings, 'embedding', embeddings.position_embeddings)
    rows, dims = table.weight.shape
    first = 0 if table.padding_idx is None else table.padding_idx + 1  # RoBERTa counts positions from 1
    angles = (torch.arange(rows) - first)[:, None] * 10000 ** (-torch.arange(0, dims, 2) / dims)
    table.weight.copy_(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)).requires_grad_(False)
    embeddings.word_embeddings.weight.normal_()


def _bert_like(
    config: Callable[..., Any],
    model: Callable[..., nn.Module],
    depth: int,
    mlp_dims: int,
    hidden_dropout: float,
    attention_dropout: float,
    **kwargs: Any,
) -> nn.Module:
    cfg = config(
        num_hidden_layers=depth,
        intermediate_size=mlp_dims,
        hidden_dropout_prob=hidden_dropout,
        attention_probs_dropout_prob=attention_dropout,
        sep_token_id=None,
        **kwargs,
    )
    return model(cfg, add_pooling_layer=False)


def _reformer(
    depth: int,
    mlp_dims: int,
    hidden_size: int,
    num_attention_heads: int,
    hidden_dropout: float,
    attention_dropout: float,
    max_position_embeddings: int,
    **kwargs: Any,
) -> nn.Module:
    cfg = ReformerConfig(
        attn_layers=['lsh'] * depth,
        feed_forward_size=mlp_dims,
        hidden_size=hidden_size,
        num_attention_heads=num_attention_heads,
        attention_head_size=hidden_size // num_attention_heads,
        hidden_dropout_prob=hidden_dropout,
        lsh_attention_probs_dropout_prob=attention_dropout,
        lsh_attn_chunk_length=max_position_embeddings // BUCKETS,
        num_buckets=BUCKETS,
        num_hashes=1,
        max_position_embeddings=max_position_embeddings,
        axial_pos_embds=False,
        is_decoder=False,
        use_cache=False,
        **kwargs,
    )
    return ReformerModel(cfg)


_ENCODERS: dict[str, tuple[Callable[..., nn.Module], str]] = dict(
    transformer=(
        partial(_bert_like, RobertaPreLayerNormConfig, RobertaPreLayerNormModel),
        'encoder.layer.*.LayerNorm',
    ),
    bigbird=(partial(_bert_like, BigBirdConfig, BigBirdModel, block_size=BLOCK), 'encoder.layer.*.LayerNorm'),
    reformer=(_reformer, 'encoder.layers.*.layer_norm'),
)
