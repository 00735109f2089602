"""Comparison of initial weights: its table."""

from experiments.initial_weights.run import table


def test_table_has_mean_and_deviation_of_seeds():
    runs = [
        dict(data='cells', weights='PVT-mini, LN', seed=0, bbox_mAP=0.3, bbox_mAP_50=0.62, cpu_seconds=540),
        dict(data='cells', weights='PVT-mini, LN', seed=1, bbox_mAP=0.32, bbox_mAP_50=0.58, cpu_seconds=None),
        dict(
            data='nuclei', weights='PVT-mini, LN', seed=0, bbox_mAP=0.1, bbox_mAP_50=0.2, segm_mAP=0.25, cpu_seconds=60
        ),
    ]
    assert table(runs)[2:] == [
        '| cells | PVT-mini, LN | 31.0 ± 1.4 | 60.0 ± 2.8 |  | 2 | 9.0 |',
        '| nuclei | PVT-mini, LN | 10.0 | 20.0 | 25.0 | 1 | 1.0 |',
    ]
