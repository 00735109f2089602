"""What is image in a padded batch reaches the normalizers, and padding changes nothing that it need not."""

import warnings

import pytest
import torch
from torch import nn

from tests.helpers.backbones import FOUR_STAGES, THREE_BLOCKS
from tests.helpers.compare import assert_near
from tests.helpers.pvt import ARCH
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.images import padding
from tokennorm.images.padding import ImageArea, image_sizes_of, note_image_sizes, valid_tokens

SIZES = [(96, 64), (64, 128)]  # multiples of 32, so that every stage has whole cells alone as well


class NoAttention(nn.Module):
    """In place of an attention, through which hosts let padding in."""

    def forward(self, x, *args):
        return torch.zeros_like(x)


def backbone(kind, **kwargs):
    arch = {PVT: ARCH, PVTv2: ARCH, Swin: FOUR_STAGES, ViT: THREE_BLOCKS}[kind]
    if kind in (Swin, ViT):
        kwargs |= dict(window_size=2)
    return randomize(kind(arch, token_norm_cfg=dict(type='DTN', **kwargs.pop('norm', {})), **kwargs)).eval()


def batch(images, height=128, width=160):
    """Images in a padded batch, as a data preprocessor makes it."""
    padded = torch.zeros(len(images), 3, height, width)
    for i, image in enumerate(images):
        padded[i, :, : image.shape[1], : image.shape[2]] = image
    return note_image_sizes(padded, [image.shape[1:] for image in images])


def alone_and_in_a_batch(model):
    """The maps of each image alone, and the part of the padded batch's maps that is that image."""
    images = [torch.randn(3, *size) for size in SIZES]
    together = model(batch(images))
    for i, image in enumerate(images):
        for stage, alone in zip(model.out_indices, model(image[None]), strict=True):
            height, width = alone.shape[2:]
            yield f'image {i}, stage {stage}', together[model.out_indices.index(stage)][i, :, :height, :width], alone[0]


def test_a_batch_without_padding_is_left_alone():
    assert image_sizes_of(note_image_sizes(torch.zeros(2, 3, 8, 9), [(8, 9), (8, 9)])) is None
    assert valid_tokens(torch.zeros(2, 3, 8, 12), 4) is None
    batch = note_image_sizes(torch.zeros(1, 3, 8, 9), [(8, 4)])
    assert image_sizes_of(note_image_sizes(batch.half(), image_sizes_of(batch))).tolist() == [[8, 4]]
    assert image_sizes_of(note_image_sizes(batch, [(8, 9)])) is None, 'an older note'
    assert image_sizes_of(note_image_sizes(batch.half(), image_sizes_of(batch))) is None, 'copied without padding'
    with pytest.raises(ValueError, match='1 sizes for a batch of 2 images'):
        note_image_sizes(torch.zeros(2, 3, 8, 9), [(8, 9)])


def test_tokens_that_are_partly_padding_are_left_out():
    padded = note_image_sizes(torch.zeros(2, 3, 64, 64), [(50, 60), (3, 32)])
    assert valid_tokens(padded, 4).tolist() == [[12, 15], [1, 8]]
    assert valid_tokens(padded, (4, 16)).tolist() == [[12, 3], [1, 2]], 'height and width of a patch'


def test_tokens_that_the_backbone_pads_are_left_out():
    """75 x 101 pixels are 18 x 25 whole tokens of stride 4; the stem makes 19 x 26."""
    assert valid_tokens(torch.zeros(2, 3, 75, 101), 4).tolist() == [[18, 25]] * 2


@pytest.mark.parametrize('kind', [PVT, PVTv2, Swin, ViT])
def test_image_of_any_size_is_the_same_alone_and_in_a_batch(kind):
    """Whoever pads 126 x 127 pixels to the 128 x 128 of whole tokens: the backbone or the data preprocessor."""
    model = backbone(kind, pretrain_img_size=128) if kind in (PVT, ViT) else backbone(kind)
    image = torch.randn(1, 3, 126, 127)
    padded = note_image_sizes(nn.functional.pad(image, (0, 1, 0, 2)), [(126, 127)])
    for stage, (alone, noted) in enumerate(zip(model(image), model(padded), strict=True)):
        assert_near(f'stage {stage}', alone, noted)


@pytest.mark.parametrize(
    ('kind', 'pool'), [(kind, pool) for kind in (PVT, PVTv2, Swin) for pool in (1, (4, 2, 1, 1))] + [(ViT, 1), (ViT, 2)]
)
def test_without_attention_an_image_is_as_alone(kind, pool):
    """Norms and stems. Convolutions over tokens (PVTv2) and resized positions (PVT, ViT) are left out as well."""
    model = backbone(kind, norm=dict(pool=pool))
    for module in model.modules():
        if hasattr(module, 'attn'):
            module.attn = NoAttention()
        if isinstance(module, nn.Conv2d) and module.groups > 1:
            nn.init.zeros_(module.weight)
        if hasattr(module, 'pos_embed'):
            nn.init.zeros_(module.pos_embed)
    if kind is PVTv2:
        model.out_indices = (0,)  # its later stems overlap, and see tokens beyond the image
    for name, actual, alone in alone_and_in_a_batch(model):
        assert_near(name, actual, alone)


@pytest.mark.parametrize('kind', [Swin, ViT])
def test_windows_inside_the_image_are_unchanged_by_padding(kind):
    """Attention included. Shifted windows, windows across the edge and attention to all tokens let padding in."""
    kwargs = dict(global_indices=()) if kind is ViT else {}
    model = backbone(kind, out_indices=(0, 1, 2), **kwargs)
    if kind is ViT:
        nn.init.zeros_(model.pos_embed)
    for name, actual, alone in alone_and_in_a_batch(model):
        assert_near(name, actual, alone)


def test_a_class_token_behind_dtn_sees_it_too():
    model = backbone(ViT, out_type='cls_token', l_dtn=2)
    padded = batch([torch.randn(3, *size) for size in SIZES])
    assert (model(padded)[0] - model(padded.clone())[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ('kind', 'arch', 'kwargs'), [(PVT, ARCH, {}), (ViT, THREE_BLOCKS, dict(l_dtn=2))], ids=['PVT', 'ViT']
)
def test_no_part_of_a_sequence_with_a_class_token_is_the_image(kind, arch, kwargs):
    """Instance norms, which stand behind the class token's joining here, see all of it."""
    norms = dict(token_norm_cfg=dict(type='LN'), norm_cfg=dict(type='IN'))
    model = randomize(kind(arch, out_type='cls_token', **norms, **kwargs)).eval()
    padded = batch([torch.randn(3, *size) for size in SIZES])
    assert torch.equal(model(padded)[0], model(padded.clone())[0])


@pytest.mark.parametrize('kind', [PVT, PVTv2, Swin, ViT])
def test_the_note_is_what_keeps_padding_out(kind):
    model = backbone(kind)
    padded = batch([torch.randn(3, *size) for size in SIZES])
    noted, plain = model(padded)[0], model(padded.clone())[0]
    assert (noted - plain).abs().max() > 1e-2 * plain.abs().max()
    published = backbone(kind, norm=dict(form='published'))
    assert torch.equal(published(padded)[0], published(padded.clone())[0])


@pytest.mark.parametrize('kind', [PVT, PVTv2, Swin, ViT])
def test_recomputed_blocks_see_it_too(kind):
    model = backbone(kind, drop_path_rate=0.0).train()
    padded = batch([torch.randn(3, *size) for size in SIZES])
    expected = model(padded)[-1]
    for module in model.modules():
        if hasattr(module, 'with_cp'):
            module.with_cp = True
    assert torch.equal(model(padded)[-1], expected)


def test_lost_image_sizes_are_reported_once(monkeypatch):
    monkeypatch.setattr(padding._LastNote, 'warned', False)
    monkeypatch.setattr(padding._LastNote, 'batch_shape', None)

    def padded():
        return note_image_sizes(torch.zeros(2, 3, 64, 96), [(64, 96), (40, 96)])

    with warnings.catch_warnings():
        warnings.simplefilter('error')
        valid_tokens(padded(), 4)
        assert valid_tokens(torch.zeros(2, 3, 64, 96), 4) is None, 'the note above was read: a batch of its own'
        padded()
        assert valid_tokens(torch.zeros(2, 3, 32, 96), 4) is None, 'another size'
        note_image_sizes(torch.zeros(1, 3, 64, 96), [(64, 96)]).half()
    lost = padded()[:1].half()
    with pytest.warns(UserWarning, match='64 x 96 pixels now counts as image.* note_image_sizes'):
        assert valid_tokens(lost, 4) is None
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert valid_tokens(padded().clone(), 4) is None, 'once per process'


def test_an_exported_graph_is_not_fixed_to_a_batch_without_padding():
    """Not even where the example notes the sizes as numbers, which need no masks."""

    class Masked(nn.Module):
        def forward(self, images, sizes):
            area = ImageArea(32)
            sizes.pairs, images.image_sizes = [(64, 96)], sizes
            area.start(self, (images,))
            return area.masked(images)

    images, sizes = torch.ones(1, 3, 64, 96), torch.tensor([[64, 96]])
    program = torch.export.export(Masked(), (images, sizes), strict=False).module()
    assert program(images, torch.tensor([[32, 96]])).sum() == 3 * 32 * 96
