"""The parameters of a block, or of a patch embedding, of mmdet's PVT and PVTv2."""

from torch import Tensor

_NAMES = {
    'projection.': 'proj.',
    'attn.attn.out_proj.': 'attn.proj.',
    'ffn.layers.0.': 'mlp.fc1.',
    'ffn.layers.1.': 'mlp.dwconv.',
    'ffn.layers.3.': 'mlp.fc2.',  # without the convolution
    'ffn.layers.4.': 'mlp.fc2.',
}


def from_mmdet_block(name: str, value: Tensor) -> dict[str, Tensor]:
    """Its queries, keys and values are one matrix, and its linear layers of the MLP convolutions of 1 x 1.

    Args:
        name: The parameter's name in the block or the patch embedding.
        value: The parameter.

    Returns:
        What it is under our names.
    """
    if 'attn.attn.in_proj_' in name:
        query, key_value = value.tensor_split([len(value) // 3])
        before, kind = name.split('attn.attn.in_proj_')
        return {f'{before}attn.q.{kind}': query, f'{before}attn.kv.{kind}': key_value}
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return {name: value.flatten(1) if name.endswith(('mlp.fc1.weight', 'mlp.fc2.weight')) else value}
