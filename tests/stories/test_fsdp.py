"""FSDP2 and distributed checkpoints in plain PyTorch with DTN, as in docs/guides/distributed.md: two gloo processes."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import distributed as torch_dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.helpers.processes import end, in_processes, start
from tokennorm.backbones import ViT
from tokennorm.norms import DTN

ARCH = dict(embed_dims=24, depth=3, num_heads=3, mlp_ratio=2)


def sharded(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def loss_of(model, images):
    return sum(out.square().mean() for out in model(images))


def in_each_process(rank, folder):
    start(rank, folder)
    torch.manual_seed(0)
    whole = ViT(ARCH, patch_size=8, pretrain_img_size=32, token_norm_cfg=dict(type='DTN'), l_dtn=2)
    assert sum(isinstance(module, DTN) for module in whole.modules()) == 4
    images = torch.randn(2, 3, 32, 48)
    model = sharded(copy.deepcopy(whole))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of(model, images[rank : rank + 1]).backward()
    (sum(loss_of(whole, image[None]) for image in images) / 2).backward()
    expected = dict(whole.named_parameters())
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor), name
        torch.testing.assert_close(parameter.grad.full_tensor(), expected[name].grad, msg=lambda m, n=name: f'{n}: {m}')
    stored = sum(parameter.to_local().numel() for parameter in model.parameters())
    assert stored < 0.6 * sum(parameter.numel() for parameter in whole.parameters())

    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save(dict(model=weights, optimizer=moments), checkpoint_id=f'{folder}/checkpoint')
    again = sharded(copy.deepcopy(whole))
    other = torch.optim.AdamW(again.parameters(), lr=1e-2)
    weights, moments = get_state_dict(again, other)
    dcp.load(dict(model=weights, optimizer=moments), checkpoint_id=f'{folder}/checkpoint')
    set_state_dict(again, other, model_state_dict=weights, optim_state_dict=moments)
    for net, steps in ((model, optimizer), (again, other)):  # a step shows the moments as well
        steps.zero_grad()
        loss_of(net, images[rank : rank + 1]).backward()
        steps.step()
    for (name, parameter), loaded in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(parameter.to_local(), loaded.to_local()), name
        assert not torch.equal(parameter.full_tensor(), expected[name]), name
    torch_dist.barrier()
    end()


@pytest.mark.slow
def test_two_processes_share_gradients_and_resume_from_dcp(tmp_path):
    in_processes(in_each_process, tmp_path)
