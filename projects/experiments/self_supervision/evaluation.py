"""k-nearest-neighbors and linear classification of frozen features, as in the DINO paper."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader


@torch.no_grad()
def extract_features(backbone: nn.Module, loader: DataLoader) -> tuple[Tensor, Tensor]:
    """Features (N, C) and labels (N,) of all images of a loader, on the CPU."""
    backbone.eval()
    device = next(backbone.parameters()).device
    found = [(backbone(batch['inputs'].to(device))[-1].float().cpu(), batch['labels']) for batch in loader]
    features, labels = zip(*found, strict=True)
    return torch.cat(features), torch.cat(labels)


def knn_accuracy(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, labels: Tensor, k: int = 20, temperature: float = 0.07
) -> float:
    """Share of queries whose class has the most weight among the k nearest of the bank, by cosine similarity.

    Raises:
        ImportError: if lightly is not installed.
        ValueError: if the bank has fewer than k images.
    """
    try:
        from lightly.utils.benchmarking import knn_predict
    except ImportError as error:
        raise ImportError(f'{error}: k-NN needs lightly; run `pip install ".[dino]"`') from error
    if len(bank) < k:
        raise ValueError(f'k={k} must be at most the {len(bank)} images of the bank')
    bank = F.normalize(bank, dim=1).T.contiguous()
    classes = int(max(bank_labels.max(), labels.max())) + 1
    right = 0
    for part, answers in zip(F.normalize(queries, dim=1).split(500), labels.split(500), strict=True):
        guesses = knn_predict(part, bank, bank_labels, classes, k, temperature)[:, 0]
        right += int((guesses == answers).sum())
    return right / len(queries)


def linear_accuracy(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, labels: Tensor, weight_decay: float = 1e-3, steps: int = 100
) -> float:
    """Share of queries that a logistic regression on the standardized features of the bank classifies right.

    L-BFGS finds the same minimum for the same features; there is no augmentation and no learning rate to choose.
    """
    mean, std = bank.mean(dim=0), bank.std(dim=0).clamp(min=1e-6)
    bank, queries = (bank - mean) / std, (queries - mean) / std
    classifier = nn.Linear(bank.shape[1], int(max(bank_labels.max(), labels.max())) + 1)
    nn.init.zeros_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.LBFGS(classifier.parameters(), max_iter=steps, line_search_fn='strong_wolfe')

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(classifier(bank), bank_labels) + weight_decay / 2 * classifier.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        return (classifier(queries).argmax(dim=1) == labels).float().mean().item()
