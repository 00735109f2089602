"""Model cards: their figures are those of the report, and their program is that of the export page."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.helpers.commands import tool
from tokennorm.report.card import Card, numpy_lines, report_of, write_card

GUIDE = Path(__file__).resolve().parents[2] / 'docs' / 'guides' / 'export.md'
REPORT = dict(
    title='raccoon',
    config_name='retinanet_x',
    training='Trained on 150 images for 12 epochs, in 9.5 min',
    checkpoint='best.pth',
    data=dict(images=49, objects=53),
    results=dict(
        bbox=dict(
            summary=dict(mAP=0.5934, mAP_50=0.971, mAP_75=-1), best=dict(threshold=0.7239, precision=0.96, recall=0.88)
        )
    ),
)
METADATA = dict(color='RGB', use='images: float32\nsizes: int64', resize=dict(scale=[640, 400], keep_ratio=True))


def test_a_card_has_the_figures_of_the_report(tmp_path):
    card = Card(tmp_path / 'mine.pth', ['raccoon', 'cat'], license='MIT', report=REPORT)
    text = write_card(card).read_text()
    for line in (
        '2: raccoon, cat',
        'COCO AP, from 0 to 100, on 49 validation images with 53 objects:',
        '| box AP | box AP50 | box AP75 |',
        '| 59.3 | 97.1 | - |',
        '- Data: raccoon',
        '- Config: retinanet_x',
        '- Trained on 150 images for 12 epochs, in 9.5 min',
        '- Best F1 at a score of 0.724: precision 96.0, recall 88.0',
        'tokennorm predict mine.pth photo.jpg',
    ):
        assert f'\n{line}\n' in text, line
    assert yaml.safe_load(text.split('---')[1]) == dict(
        library_name='tokennorm', pipeline_tag='object-detection', license='mit'
    )


def test_without_a_report_a_card_claims_nothing(tmp_path):
    text = write_card(Card(tmp_path / 'mine.pth', ())).read_text()
    assert text.count('Not stated.') == 2
    assert 'Not measured.' in text
    assert 'Weights: not stated' in text
    assert yaml.safe_load(text.split('---')[1]) == dict(library_name='tokennorm')


def test_a_card_replaces_no_other_readme(tmp_path):
    (tmp_path / 'README.md').write_text('# My project')
    assert write_card(Card(tmp_path / 'a.onnx', ['x'])).name == 'a.README.md'
    assert (tmp_path / 'README.md').read_text() == '# My project'
    (tmp_path / 'README.md').unlink()
    assert [write_card(Card(tmp_path / name, ['x'])).name for name in ('a.pth', 'a.pth', 'b.pth')] == [
        'README.md',
        'README.md',
        'b.README.md',
    ]


def test_the_program_of_a_card_is_that_of_the_export_page(tmp_path):
    guide = re.search(r"```python\n([^`]*'detector\.onnx'.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    card = Card(tmp_path / 'detector.onnx', ['x'], metadata=METADATA, measured='This file: 59.30.')
    assert numpy_lines(card) == guide
    text = write_card(card).read_text()
    assert guide in text
    assert '- sizes: int64\n' in text
    assert 'This file: 59.30.' in text
    for rule, line in ((None, 'size = height, width'), (dict(scale=[64, 40], keep_ratio=False), 'size = resize[')):
        program = numpy_lines(Card(tmp_path / 'detector.onnx', ['x'], metadata=METADATA | dict(resize=rule)))
        assert line in program
        compile(program, 'card', 'exec')


@pytest.mark.parametrize('content', ['', '{}', json.dumps(REPORT | dict(checkpoint='epoch_3.pth'))])
def test_a_report_of_another_checkpoint_is_not_used(tmp_path, content):
    (tmp_path / 'report.json').write_text(content)
    assert report_of(tmp_path / 'best.pth') is None
    (tmp_path / 'report.json').write_text(json.dumps(REPORT))
    assert report_of(tmp_path / 'best.pth') == REPORT


def test_publish_writes_a_card(demo_trained, tmp_path, capsys):
    tool('publish')([str(demo_trained), str(tmp_path / 'mine.pth'), '--license', 'CC0-1.0'])
    text = (tmp_path / 'README.md').read_text()
    numbers = json.loads((demo_trained / 'report.json').read_text())
    assert f'| {100 * numbers["results"]["bbox"]["summary"]["mAP"]:.1f} |' in text
    assert '4: disk, square, triangle, star' in text
    assert 'Weights: CC0-1.0.' in text
    assert 'model card: ' in capsys.readouterr().out
