"""tools/analysis.py hands on what it is given."""

from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG


def test_analysis_counts_operations(capsys):
    tool('analysis')(['flops', CONFIG, '--shape', '128', '128'])
    assert capsys.readouterr().out == '0.151 G multiply-adds, 2.08 M parameters\n'
