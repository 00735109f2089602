"""Bias tables and positions of checkpoints at other sizes, against an interpolation in float64."""

import pytest
import torch
from timm.layers.pos_embed_rel import resize_rel_pos_bias_table_simple

from tests.helpers.compare import assert_near
from tests.helpers.pvt import published_layout, small_pvt
from tests.helpers.swin import mmdets_model, small_swin
from tests.helpers.weights import randomize
from tests.reference import resized
from tokennorm.checkpoints import CheckpointError, load_pretrained
from tokennorm.checkpoints.resizing import resize_bias_table


def timms_table(table, window):
    return resize_rel_pos_bias_table_simple(table, (window, window), ((2 * window - 1) ** 2, table.shape[1]))


@pytest.mark.parametrize('window', [4, 9, 12])
def test_bias_tables_are_interpolated_for_each_head(window):
    table = torch.randn(13 * 13, 3)
    assert torch.equal(resize_bias_table(table, window), timms_table(table, window))
    assert resize_bias_table(table.half(), window).dtype == torch.half


def test_bias_tables_keep_their_window_or_must_be_square():
    table = torch.randn(13 * 13, 3)
    assert resize_bias_table(table, 7) is table
    for rows in (13 * 12, 12 * 12):
        with pytest.raises(ValueError, match=f'a bias table of {rows} rows does not belong to a square window'):
            resize_bias_table(torch.ones(rows, 3), 7)


def test_a_swin_of_another_window_takes_resized_tables(tmp_path):
    theirs = mmdets_model()
    torch.save(theirs.state_dict(), tmp_path / 'swin.pth')
    model = small_swin(window_size=5)
    report = load_pretrained(model, tmp_path / 'swin.pth')
    tables = [key for key in model.state_dict() if key.endswith('bias_table')]
    assert report.resized == tables
    assert len(tables) == 7
    for key in tables:
        table = theirs.state_dict()[key.replace('attn.', 'attn.w_msa.')]
        assert_near(key, model.state_dict()[key], timms_table(table, 5))
    torch.save(
        theirs.state_dict() | {tables[0].replace('attn.', 'attn.w_msa.'): torch.ones(156, 1)}, tmp_path / 'swin.pth'
    )
    with pytest.raises(CheckpointError, match=r'swin.pth: a bias table of 156 rows'):
        load_pretrained(model, tmp_path / 'swin.pth')


@pytest.mark.parametrize('out_type', ['featmap', 'cls_token'])
def test_a_pvt_for_another_image_size_takes_resized_positions(tmp_path, out_type):
    source = randomize(small_pvt(pretrain_img_size=64))
    published = published_layout(source)
    torch.save(published, tmp_path / 'pvt.pth')
    model = small_pvt(pretrain_img_size=(96, 160), out_type=out_type)
    report = load_pretrained(model, tmp_path / 'pvt.pth')
    assert report.resized == [f'stages.{i}.pos_embed' for i in range(4)]
    assert not set(report.loaded) & set(report.resized)
    for i, (side, shape) in enumerate(zip((16, 8, 4, 2), ((24, 40), (12, 20), (6, 10), (3, 5)), strict=True)):
        row = int(out_type == 'cls_token' and i == 3)
        rows = published[f'pos_embed{i + 1}']
        grid = rows[:, -side * side :].unflatten(1, (side, side))
        actual = model.stages[i].pos_embed.detach()
        assert torch.equal(actual[:, :row], rows[:, :row])
        assert_near(f'stage {i}', actual[:, row:], resized(grid[0], shape).flatten(0, 1)[None])


def test_positions_of_a_grid_that_is_not_square_are_not_guessed(tmp_path):
    torch.save(small_pvt(pretrain_img_size=(64, 96)).state_dict(), tmp_path / 'pvt.pth')
    load_pretrained(small_pvt(pretrain_img_size=(64, 96)), tmp_path / 'pvt.pth')
    with pytest.raises(CheckpointError, match=r'4 of another shape: stages.0.pos_embed \(\(1, 384, 8\)'):
        load_pretrained(small_pvt(pretrain_img_size=64), tmp_path / 'pvt.pth')
