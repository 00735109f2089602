"""Figures of the report."""

import html
import re
from types import SimpleNamespace

import numpy as np

from tokennorm.evaluation.analysis import evaluate
from tokennorm.report.figures import draw_precision_recall, pick_confusions
from tokennorm.report.page import curve_figures


def test_confusions_of_many_classes_are_summed():
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 4, (31, 31))
    matrix[[2, 17]] += 50  # the two classes with the most errors
    matrix[5, 5] = 9999  # right ones
    evaluation = SimpleNamespace(confusion=matrix, classes=[SimpleNamespace(name=f'c{i}') for i in range(30)])
    names, counts = pick_confusions(evaluation, most=2)
    assert names == ['c2', 'c17', 'other classes', 'background']
    assert counts.sum() == matrix.sum()
    assert counts[0].tolist()[:2] == matrix[2, [2, 17]].tolist()
    assert counts[0, 3] == matrix[2, 30]
    assert counts[0, 2] == matrix[2, :30].sum() - matrix[2, [2, 17]].sum()
    names, counts = pick_confusions(evaluation, most=30)
    assert names[-2:] == ['c29', 'background']
    assert (counts == matrix).all()


def test_ap_is_from_0_to_100_in_figures(report):
    _, truth, detections, _ = report
    evaluation = evaluate(truth, detections['bbox'])
    legend = draw_precision_recall(evaluation)
    for result in evaluation.classes:
        assert f'>{result.name} ({100 * result.ap50:.1f})<' in legend
    mean = np.mean([result.ap50 for result in evaluation.classes])
    assert f'>mean of all classes ({100 * mean:.1f})<' in legend
    curve = curve_figures({'': {'coco/bbox_mAP': {1: 0.2, 2: 0.4}}}, 'epoch')['AP on the validation set']
    assert '>40<' in curve


def test_names_are_shown_as_they_are(report):
    _, truth, detections, _ = report
    names = ['_cat', 'dog $ {cow', r'$\x$ & <b>']
    categories = [dict(one, name=name) for one, name in zip(truth['categories'], names, strict=True)]
    legend = draw_precision_recall(evaluate(truth | dict(categories=categories), detections['bbox']))
    for name in names:
        assert f'{html.escape(name)} (' in legend


def test_names_in_every_script_are_in_the_legend_and_not_in_the_figure(report, recwarn):
    _, truth, detections, _ = report
    names = ['红色 グリーン', '고양이 กขค', 'قطة']
    categories = [dict(one, name=name) for one, name in zip(truth['categories'], names, strict=True)]
    figure = draw_precision_recall(evaluate(truth | dict(categories=categories), detections['bbox']))
    legend, _, svg = figure.partition('<svg')
    assert [name for name in names if f'<bdi>{name} (' in legend] == names
    assert not any(letter in svg for letter in ''.join(names).replace(' ', ''))
    assert not [one for one in recwarn if 'Glyph' in str(one.message)]


def test_the_legend_has_the_colors_of_the_lines(report):
    runs = {'_a': {'loss': {1: 1.0, 2: 0.5}}, 'b <x>': {'loss': {1: 2.0, 2: 1.5}}}
    legend, _, svg = curve_figures(runs, 'epoch')['Training loss'].partition('<svg')
    found = re.findall(r'<span><i style="border-color: (#\w{6})"></i><bdi>(.*?)</bdi></span>', legend)
    assert [label for _, label in found] == ['_a', 'b &lt;x&gt;']
    assert all(f'stroke: {color}' in svg for color, _ in found)
    assert found[0][0] != found[1][0]
    alone = curve_figures({'': runs['_a']}, 'epoch')['Training loss']
    assert alone.startswith('<svg')  # nothing to tell apart
