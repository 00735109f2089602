"""The MLP of a transformer block."""

from torch import Tensor, nn


def hidden_dims(dims: int, mlp_ratio: float) -> int:
    """Channels between the two linear layers: `mlp_ratio` times `dims`, rounded down as in timm, at least 1."""
    return max(int(mlp_ratio * dims), 1)


class Mlp(nn.Module):
    """Linear, GELU, linear over the channels of each token."""

    def __init__(self, dims: int, mlp_ratio: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dims, hidden_dims(dims, mlp_ratio))
        self.act = nn.GELU()
        self.fc2 = nn.Linear(self.fc1.out_features, dims)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.fc2(self.act(self.fc1(x)))
