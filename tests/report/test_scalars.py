"""Scalars of a work directory: one curve per name, over several starts."""

from tests.helpers.scalars import write_scalars
from tokennorm.report.scalars import read_scalars


def test_a_resumed_run_is_one_curve(tmp_path):
    first = [
        dict(loss=3.0, lr=0.1, time=1.0, iter=10, step=10),
        {'ap': 0.1, 'time': 9.0, 'step': 1},
        dict(loss=9.0, lr=0.1, time=1.0, iter=20, step=20),
        dict(loss=9.0, lr=0.1, time=1.0, iter=25, step=25),
        {'ap': 0.9, 'time': 9.0, 'step': 2},
    ]
    second = [dict(loss=2.0, lr=0.2, time=2.0, iter=20, step=20), {'ap': 0.2, 'time': 9.0, 'step': 2}]
    write_scalars(tmp_path, '20260101_000000', first)
    write_scalars(tmp_path, '20260102_000000', second)
    assert read_scalars(tmp_path) == dict(
        loss={10: 3.0, 20: 2.0}, lr={10: 0.1, 20: 0.2}, time={10: 1.0, 20: 2.0}, ap={1: 0.1, 2: 0.2}
    )


def test_a_new_run_replaces_a_longer_one_in_the_same_directory(tmp_path):
    write_scalars(tmp_path, '20260101_000000', [dict(loss=float(i), iter=i, step=i) for i in (10, 20, 30)])
    write_scalars(tmp_path, '20260102_000000', [dict(loss=0.5, iter=10, step=10)])
    assert read_scalars(tmp_path)['loss'] == {10: 0.5}


def test_the_last_line_of_a_killed_run_is_skipped(tmp_path):
    path = write_scalars(tmp_path, '20260101_000000', [dict(loss=1.0, iter=1, step=1)])
    with path.open('a') as file:
        file.write('{"loss": 0.5, "st')
    assert read_scalars(tmp_path) == dict(loss={1: 1.0})
    assert read_scalars(tmp_path / 'nowhere') == {}
