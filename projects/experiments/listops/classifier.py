"""Classifier of sequences, for the value of a ListOps expression."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from experiments.listops.grammar import CLASSIFY, DIGITS, PADDING, VOCABULARY
from tokennorm.registry import MODELS


@MODELS.register_module()
class ListOpsClassifier(BaseModel):
    """An encoder with a class token and two linear layers, as in Long Range Arena.

    Args:
        encoder: 'transformer', 'bigbird' or 'reformer', of Hugging Face transformers.
        token_norm_cfg: The norms of the encoder's blocks, e.g. `dict(type='DTN')`.
        max_length: Tokens of an expression, at most.
        embed_dims: Width.
        depth: Number of blocks.
        num_heads: Heads of the attention and of the norms.
        mlp_ratio: Width of the MLPs relative to `embed_dims`.
        dropout: Rate in the encoder.
        positions: 'learned', or 'sinusoidal' as in Long Range Arena.
        data_preprocessor: As in every model of mmengine.

    Raises:
        ImportError: if transformers is not installed.
    """

    def __init__(
        self,
        encoder: str = 'transformer',
        token_norm_cfg: Mapping[str, Any] | None = None,
        max_length: int = 1999,
        embed_dims: int = 512,
        depth: int = 6,
        num_heads: int = 8,
        mlp_ratio: float = 4,
        dropout: float = 0.1,
        positions: Literal['learned', 'sinusoidal'] = 'learned',
        data_preprocessor: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(data_preprocessor)
        try:
            from experiments.listops.encoders import build_encoder
        except ImportError as error:
            raise ImportError(f'{error}: run `pip install -r requirements/listops.txt`') from error
        self.max_length = max_length
        self.encoder, self.padded_length = build_encoder(
            encoder,
            token_norm_cfg or dict(type='LN'),
            vocabulary=len(VOCABULARY),
            max_length=max_length + 1,  # the class token
            embed_dims=embed_dims,
            depth=depth,
            num_heads=num_heads,
            mlp_ratio=mlp_ratio,
            dropout=dropout,
            positions=positions,
        )
        width, hidden = self.encoder.config.hidden_size * (1 + (encoder == 'reformer')), round(embed_dims * mlp_ratio)
        self.head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, len(DIGITS)))

    def forward(self, inputs: list[Tensor], labels: list[Tensor], mode: str = 'tensor') -> Any:
        """Sequences of different lengths, each (T,), to their logits (B, 10), or as mmengine's `mode` says.

        Raises:
            ValueError: for a sequence of more than `max_length` tokens.
        """
        logits = self.head(self.features(inputs))
        if mode == 'loss':
            return dict(loss=F.cross_entropy(logits, torch.stack(labels)))
        if mode == 'predict':
            return [dict(pred_score=score, gt_label=label[None]) for score, label in zip(logits, labels, strict=True)]
        return logits

    def features(self, inputs: list[Tensor]) -> Tensor:
        """The class token after the encoder, (B, C)."""
        longest = max(map(len, inputs))
        if longest > self.max_length:
            raise ValueError(f'an expression has {longest} tokens: max_length={self.max_length} must be at least that')
        tokens = pad_sequence(
            [F.pad(sequence, (1, 0), value=VOCABULARY.index(CLASSIFY)) for sequence in inputs],
            batch_first=True,
            padding_value=VOCABULARY.index(PADDING),
        )
        tokens = F.pad(tokens, (0, max(self.padded_length - tokens.shape[1], 0)), value=VOCABULARY.index(PADDING))
        mask = (tokens != VOCABULARY.index(PADDING)).long()
        return self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state[:, 0]
