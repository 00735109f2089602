"""The nearest name is offered, and none that is far."""

from tokennorm.names import did_you_mean


def test_the_nearest_name():
    known = ['tiny', 'small', 'DTN', 'LayerNorm']
    assert did_you_mean('tinny', known) == ' (did you mean tiny?)'
    assert did_you_mean('DNT', [*known, 'DyT']) == did_you_mean('dtn', known) == ' (did you mean DTN?)'
    assert did_you_mean('layernorm', known) == ' (did you mean LayerNorm?)'
    assert did_you_mean('resnet50', known) == ''
    assert did_you_mean(3, known) == did_you_mean(None, known) == ''
    assert did_you_mean('tinny', known, cutoff=0.95) == ''
