"""Slow transcriptions, in float64 and with loops, of operators that mmcv computes on an accelerator only."""

import math

import numpy as np


def bilinear(image, y, x):
    """Value of `image` (H, W) at a place; 0 more than one pixel outside."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    top = image[y0, x0] * (1 - (x - x0)) + image[y0, x1] * (x - x0)
    bottom = image[y1, x0] * (1 - (x - x0)) + image[y1, x1] * (x - x0)
    return top * (1 - (y - y0)) + bottom * (y - y0)


def roi_align(features, rois, size, scale, ratio, mode, aligned):
    output = np.zeros((len(rois), features.shape[1], *size))
    for k, (image, *box) in enumerate(rois):
        x1, y1, x2, y2 = (v * scale - 0.5 * aligned for v in box)
        height, width = (s if aligned else max(s, 1) for s in (y2 - y1, x2 - x1))
        rows, columns = (ratio or math.ceil(side / count) for side, count in ((height, size[0]), (width, size[1])))
        for index in np.ndindex(features.shape[1], *size):
            c, i, j = index
            samples = [
                bilinear(
                    features[int(image), c],
                    y1 + (i + (a + 0.5) / rows) * height / size[0],
                    x1 + (j + (b + 0.5) / columns) * width / size[1],
                )
                for a in range(rows)
                for b in range(columns)
            ]
            output[k, c, i, j] = max(samples) if mode == 'max' else sum(samples) / len(samples)
    return output


def deform_roi_pool(features, rois, offset, size, scale, ratio, gamma):
    """Each bin is RoIAlign's, moved by gamma x the RoI's side x its offset."""
    output = np.zeros((len(rois), features.shape[1], *size))
    for k, i, j in np.ndindex(len(rois), *size):
        image, x1, y1, x2, y2 = rois[k]
        dx, dy = gamma * offset[k, 0, i, j] * (x2 - x1), gamma * offset[k, 1, i, j] * (y2 - y1)
        moved = np.array([[image, x1 + dx, y1 + dy, x2 + dx, y2 + dy]])
        output[k, :, i, j] = roi_align(features, moved, size, scale, ratio, 'avg', True)[0, :, i, j]
    return output


def roi_pool(features, rois, size, scale):
    output = np.zeros((len(rois), features.shape[1], *size))
    where = np.full(output.shape, -1)
    height, width = features.shape[2:]
    for k, (image, x1, y1, x2, y2) in enumerate(rois):
        box_height, box_width = (y2 + 1 - y1) * scale, (x2 + 1 - x1) * scale
        if box_height <= 0 or box_width <= 0:
            continue
        for c, i, j in np.ndindex(features.shape[1], *size):
            top, left = (int(min(max(math.floor(v), 0), n)) for v, n in (
                (i * box_height / size[0] + y1 * scale, height), (j * box_width / size[1] + x1 * scale, width)
            ))  # fmt: skip
            bottom, right = (int(min(max(math.ceil(v), 0), n)) for v, n in (
                ((i + 1) * box_height / size[0] + y1 * scale, height),
                ((j + 1) * box_width / size[1] + x1 * scale, width),
            ))  # fmt: skip
            best = -np.inf
            for y in range(top, bottom):
                for x in range(left, right):
                    if features[int(image), c, y, x] > best:
                        best = output[k, c, i, j] = features[int(image), c, y, x]
                        where[k, c, i, j] = y * width + x
    return output, where


def carafe(features, masks, kernel, groups, scale):
    n, channels, height, width = features.shape
    output = np.zeros((n, channels, height * scale, width * scale))
    for image, c, y, x in np.ndindex(output.shape):
        group = c // (channels // groups)
        for i, j in np.ndindex(kernel, kernel):
            row, column = y // scale + i - kernel // 2, x // scale + j - kernel // 2
            if 0 <= row < height and 0 <= column < width:
                mask = masks[image, (group * kernel + i) * kernel + j, y, x]
                output[image, c, y, x] += features[image, c, row, column] * mask
    return output


def line_nms(lanes, scores, thresh, top_k):
    order = np.argsort(-scores, kind='stable')
    kept, parents = [], np.zeros(len(lanes), int)
    removed = set()
    for position, a in enumerate(order):
        if a in removed:
            continue
        kept.append(a)
        for b in order[position + 1 :]:
            starts = [int(lanes[lane, 2] * 71 + 0.5) for lane in (a, b)]
            ends = [start + int(lanes[lane, 4]) - 1 for start, lane in zip(starts, (a, b), strict=True)]
            start, end = max(starts), min(*ends, 71)
            if end < start:
                continue
            distance = np.abs(lanes[a, 5 + start : 6 + end] - lanes[b, 5 + start : 6 + end]).sum()
            if distance < thresh * (end - start + 1):
                removed.add(b)
                parents[b] = len(kept)
        parents[a] = len(kept)
        if len(kept) == top_k:
            break
    return kept, parents


def deformable_attention(value, shapes, locations, weights):
    """value (N, keys, heads, D), locations (N, Q, heads, levels, points, 2), weights without the last axis."""
    n, _, heads, channels = value.shape
    queries = locations.shape[1]
    output = np.zeros((n, queries, heads, channels))
    for image, query, head, level, point in np.ndindex(weights.shape):
        height, width = shapes[level]
        start = sum(h * w for h, w in shapes[:level])
        image_map = value[image, start : start + height * width, head].reshape(height, width, channels)
        x, y = locations[image, query, head, level, point] * (width, height) - 0.5
        for row, column in np.ndindex(2, 2):
            i, j = math.floor(y) + row, math.floor(x) + column
            if 0 <= i < height and 0 <= j < width:
                part = (1 - abs(y - i)) * (1 - abs(x - j))
                output[image, query, head] += weights[image, query, head, level, point] * part * image_map[i, j]
    return output.reshape(n, queries, -1)


def riroi_align(features, rois, size, scale, samples, orientations, clockwise):
    channels = features.shape[1] // orientations
    output = np.zeros((len(rois), features.shape[1], *size))
    for k, (image, x, y, w, h, theta) in enumerate(rois):
        width, height = max(w * scale, 1), max(h * scale, 1)
        rows, columns = (samples or math.ceil(side / n) for side, n in ((height, size[0]), (width, size[1])))
        turns = theta * orientations / (2 * math.pi)
        first, part = math.floor(turns), turns - math.floor(turns)
        angle = -theta if clockwise else theta
        for c, o, i, j in np.ndindex(channels, orientations, *size):
            total = 0
            for a in range(rows):
                for b in range(columns):
                    v = (i + (a + 0.5) / rows) * height / size[0] - height / 2
                    u = (j + (b + 0.5) / columns) * width / size[1] - width / 2
                    place = v * math.cos(angle) - u * math.sin(angle) + y * scale
                    place = place, v * math.sin(angle) + u * math.cos(angle) + x * scale
                    for orientation, weight in ((o - first, 1 - part), (o - first + 1, part)):
                        image_map = features[int(image), c * orientations + orientation % orientations]
                        total += weight * bilinear(image_map, *place)
            output[k, c * orientations + o, i, j] = total / (rows * columns)
    return output


def border_align(features, boxes, pool_size):
    n, channels = len(features), features.shape[1] // 4
    output = np.zeros((n, channels, boxes.shape[1], 4))
    for image, c, k in np.ndindex(output.shape[:3]):
        x1, y1, x2, y2 = boxes[image, k]
        for side in range(4):
            values = []
            for step in range(pool_size + 1):
                dx, dy = (x2 - x1) * step / pool_size, (y2 - y1) * step / pool_size
                y, x = ((y1, x1 + dx), (y1 + dy, x1), (y2, x2 - dx), (y2 - dy, x2))[side]
                values.append(bilinear(features[image, side * channels + c], y, x))
            output[image, c, k, side] = max(values)
    return output


def prroi_pool(features, rois, size, scale, steps):
    """The mean of many samples per bin, of the interpolation with 0 outside of the image."""
    padded = np.pad(features, ((0, 0), (0, 0), (9, 9), (9, 9)))
    output = np.zeros((len(rois), features.shape[1], *size))
    for k, (image, *box) in enumerate(rois):
        x1, y1, x2, y2 = (v * scale for v in box)
        if x2 <= x1 or y2 <= y1:
            continue
        hats = []
        for low, high, count, pixels in ((y1, y2, size[0], padded.shape[2]), (x1, x2, size[1], padded.shape[3])):
            places = low + (np.arange(count * steps) + 0.5) * (high - low) / count / steps
            hats.append(np.maximum(0, 1 - np.abs(places[:, None] + 9 - np.arange(pixels))))
        samples = hats[0] @ padded[int(image)] @ hats[1].T
        output[k] = samples.reshape(-1, size[0], steps, size[1], steps).mean((2, 4))
    return output


def correlation(a, b, kernel_size=1, max_displacement=1, stride=1, padding=0, dilation=1, dilation_patch=1):
    kernel, stride, padding, dilation, patch_step = (
        (v, v) if isinstance(v, int) else v for v in (kernel_size, stride, padding, dilation, dilation_patch)
    )
    n, _, height, width = a.shape
    patch = 2 * max_displacement + 1
    out = [
        (side + 2 * p - (k - 1) * d - 1) // s + 1
        for side, p, k, d, s in zip((height, width), padding, kernel, dilation, stride, strict=True)
    ]
    output = np.zeros((n, patch, patch, *out))
    for image, p, q, h, w in np.ndindex(output.shape):
        for i, j in np.ndindex(*kernel):
            y, x = h * stride[0] - padding[0] + i * dilation[0], w * stride[1] - padding[1] + j * dilation[1]
            v, u = y + (p - max_displacement) * patch_step[0], x + (q - max_displacement) * patch_step[1]
            if 0 <= y < height and 0 <= x < width and 0 <= v < height and 0 <= u < width:
                output[image, p, q, h, w] += (a[image, :, y, x] * b[image, :, v, u]).sum()
    return output
