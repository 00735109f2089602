"""Which tensors a tensor was made from: autograd knows it, whatever a conversion does."""

from torch import Tensor


def tracked(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, of which `origins` finds those of floating point again."""
    return {key: value.detach().requires_grad_(value.is_floating_point()) for key, value in state_dict.items()}


def origins(value: Tensor, sources: dict[str, Tensor]) -> set[str]:
    """The keys of those of the tracked `sources` that `value` is or was computed from under `torch.enable_grad`."""
    found, nodes, seen = {id(value)}, [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            found.add(id(getattr(node, 'variable', None)))
    return {key for key, source in sources.items() if id(source) in found}
