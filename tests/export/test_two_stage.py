"""Second stages that can be exported."""

import pytest
from mmdet.models.roi_heads import DoubleHeadRoIHead, DynamicRoIHead, MaskScoringRoIHead, PointRendRoIHead

from tests.helpers.exporting import (
    build,
    config,
)
from tokennorm.base.messages import UserError
from tokennorm.export.two_stage import check_roi_head


def test_a_second_stage_that_predicts_in_its_own_way_is_refused():
    roi_head = build(config('mask-rcnn')).roi_head
    own = {MaskScoringRoIHead: 'predict_mask', PointRendRoIHead: 'predict_mask', DoubleHeadRoIHead: '_bbox_forward'}
    for kind, method in own.items():
        roi_head.__class__ = kind
        text = f'{kind.__name__} cannot be exported: it computes its result in its own way; .* with its {method}$'
        with pytest.raises(UserError, match=text):
            check_roi_head(roi_head)
    roi_head.__class__ = DynamicRoIHead  # another training only
    check_roi_head(roi_head)
