// Dynamic Token Normalization on a CPU: Algorithm 1 of the paper, forward and backward. `dtn_cpu.py` compiles and calls
// it.
//
// Letters: B images, H x W grid of tokens, C channels, N heads, T tokens, K taps of a filter. A window has
// pool x pool tokens, the last of which may be partial; with pool 1 it is a token.
//
// P of Eq. 6 is a filter along x, a filter along y, and a division by the sum of the weights that stay on the grid. A
// weight is a vector, so that heads may share a block. How the work is divided (constants in dtn_cpu_plan.h):
//
//     B images, H x W                                       channels, V to a block
//     +---------------------------+
//     | strip of rows: only large |   +-----------------+   task = image, strip, group of GROUP blocks; one thread
//     | images have more than one |-->|  tile  |  tile  |   tile = at most TILE columns of a task
//     +---------------------------+   | ====== |        |   step = R rows of a tile, for each block of the group in
//     |            ...            |   +-----------------+          turn, while their tokens are in the cache
//     +---------------------------+                         piece = PIECE columns of a step, between filter and result
//
// Rows that the filter along y still needs are kept in a ring per block. Work that needs no filter is divided into
// chunks of CHUNK rows of tokens. The division depends on the shapes only, and sums are added in a fixed order: the
// result does not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "dtn_cpu_block.h"

namespace {

// ---- Whole tokens

// Means and variances of Q neighboring tokens; adds what they differ from `first`, the image's first token, to `sums`.
template <int Q>
INLINE void token_statistics(const Call& c, const float* x, const float* first, vf* sums, float* mean, float* var) {
  const int channels = c.channels, blocks = c.blocks();
  const float share = 1.0f / channels;
  vf sum[Q] = {}, rest[Q] = {}, square[Q] = {};
  for (int i = 0; i < blocks; ++i) {
    const int lanes = std::min(V, channels - i * V);
    const vf level = load(first + i * V, lanes);
    vf all{};
    UNROLL
    for (int o = 0; o < Q; ++o) {
      const vf value = load(x + (int64_t)o * channels + i * V, lanes);
      sum[o] += value;
      all += value - level;
    }
    if (sums) sums[i] += all;
  }
  UNROLL
  for (int o = 0; o < Q; ++o) mean[o] = sum_lanes(sum[o]) * share;
  for (int i = 0; i < blocks; ++i) {
    const int lanes = std::min(V, channels - i * V);
    UNROLL
    for (int o = 0; o < Q; ++o) {
      vf centered = load(x + (int64_t)o * channels + i * V, lanes) - mean[o];
      if (lanes < V)
        for (int j = lanes; j < V; ++j) centered[j] = 0;
      rest[o] += centered;
      square[o] += centered * centered;
    }
  }
  UNROLL
  for (int o = 0; o < Q; ++o) {  // corrects the mean by what rounding left
    const float left = sum_lanes(rest[o]) * share;
    mean[o] += left;
    var[o] = std::max(0.0f, sum_lanes(square[o]) * share - left * left);
  }
}

// LayerNorm of one token, for tokens outside `valid`.
void layer_norm(const Call& c, const float* x, float mean, float var, float* y) {
  const float r = 1 / std::sqrt(var + (float)c.eps);
  for (int i = 0; i < c.channels; i += V) {
    const int lanes = std::min<int64_t>(V, c.channels - i);
    store(y + i, (load(x + i, lanes) - mean) * r * load(c.weight + i, lanes) + load(c.bias + i, lanes), lanes);
  }
}
void layer_norm_backward(const Call& c, const float* x, const float* grad_y, float mean, float var, float* grad_x,
                         float* grad_weight, float* grad_bias) {
  const float r = 1 / std::sqrt(var + (float)c.eps);
  vf level{}, slope{};
  for (int i = 0; i < c.channels; i += V) {
    const int lanes = std::min<int64_t>(V, c.channels - i);
    const vf g = load(grad_y + i, lanes), normed = (load(x + i, lanes) - mean) * r, e = g * load(c.weight + i, lanes);
    level += e;
    slope += e * normed;
    store(grad_weight + i, load(grad_weight + i, lanes) + g * normed, lanes);
    store(grad_bias + i, load(grad_bias + i, lanes) + g, lanes);
  }
  const float a = sum_lanes(level) / c.channels, b = sum_lanes(slope) / c.channels;
  for (int i = 0; i < c.channels; i += V) {
    const int lanes = std::min<int64_t>(V, c.channels - i);
    const vf normed = (load(x + i, lanes) - mean) * r;
    store(grad_x + i, (load(grad_y + i, lanes) * load(c.weight + i, lanes) - a - b * normed) * r, lanes);
  }
}

// ---- The two passes

// Calls f(image, strip, top, bottom of the strip, group, scratch) for all tasks, in any order.
template <class F>
void for_strips(const Call& c, const Grids& grids, F f) {
  const int64_t strips = c.strips(), groups = c.groups();
  run(c, c.batch * strips * groups, [&](int64_t task, Scratch& scratch) {
    const int64_t image = task / (strips * groups), strip = task / groups % strips, group = task % groups;
    const int64_t rows = grids.of_image[image]->rows;
    f(image, strip, (int)(strip * rows / strips), (int)((strip + 1) * rows / strips), group, scratch);
  });
}
// Calls f(image, chunk, first row, last row + 1) for all rows of tokens, in any order.
template <class F>
void for_chunks(const Call& c, F f) {
  run(c, c.batch * c.chunks(), [&](int64_t task, Scratch&) {
    const int64_t image = task / c.chunks(), chunk = task % c.chunks();
    f(image, chunk, chunk * CHUNK, std::min<int64_t>(c.height, (chunk + 1) * CHUNK));
  });
}
// Calls f(left, right) for tiles of like size, or for one where the filter is wider than a tile.
template <class F>
void for_tiles(int columns, int taps, F f) {
  const int tiles = taps > TILE ? 1 : (columns + TILE - 1) / TILE;
  for (int i = 0; i < tiles; ++i) f((int64_t)i * columns / tiles, (int64_t)(i + 1) * columns / tiles);
}

// Runs the blocks [first, last) of a group, made by make(block): in turn, R rows at a time, where the tokens of a tile
// would leave the cache before the next block reads them; else one after the other, whose rings stay in a smaller cache.
template <class Part, class Make>
void run_blocks(const Call& c, Box box, int64_t first, int64_t last, Scratch& scratch, Make make) {
  const bool in_turn = (box.bottom - box.top) * (box.right - box.left) * c.pool * c.pool >= TOGETHER;
  std::vector<Part> parts;
  for (int64_t i = first; i < last; ++i) {
    if (!in_turn || i == first) {
      parts.clear();
      scratch.reset();
    }
    parts.push_back(make(i));
    while (!in_turn && parts.back().step()) {}
  }
  for (bool more = in_turn; more;) {
    more = false;
    for (Part& part : parts) more |= part.step();
  }
}

template <bool POOLED>
void forward(const Call& c) {
  const Grids grids(c);
  std::vector<vf> sums(c.batch * c.chunks() * c.blocks(), vf{});
  for_chunks(c, [&](int64_t image, int64_t chunk, int64_t top, int64_t bottom) {
    const Grid& grid = *grids.of_image[image];
    const float* first = c.x + image * c.tokens() * c.channels;
    vf* chunk_sums = &sums[(image * c.chunks() + chunk) * c.blocks()];
    for (int64_t row = top; row < bottom; ++row) {
      const int64_t inside = row < grid.height ? grid.width : 0, t0 = image * c.tokens() + row * c.width;
      for (int64_t i = 0, step; i < c.width; i += step) {
        const float* x = c.x + (t0 + i) * c.channels;
        step = i + 4 <= inside ? 4 : 1;
        if (step == 4) token_statistics<4>(c, x, first, chunk_sums, c.mean() + t0 + i, c.var() + t0 + i);
        else token_statistics<1>(c, x, first, i < inside ? chunk_sums : nullptr, c.mean() + t0 + i, c.var() + t0 + i);
        if (i >= inside) layer_norm(c, x, c.mean()[t0 + i], c.var()[t0 + i], c.y + (t0 + i) * c.channels);
      }
    }
  });
  for (int64_t image = 0; image < c.batch; ++image)
    for (const Block& block : grids.of_image[image]->blocks) {
      vf sum{};
      for (int64_t chunk = 0; chunk < c.chunks(); ++chunk)
        sum += sums[(image * c.chunks() + chunk) * c.blocks() + block.first / V];
      const Grid& grid = *grids.of_image[image];
      const vf first = load(c.x + image * c.tokens() * c.channels + block.first, block.lanes);
      store(c.shift() + image * c.channels + block.first, first + sum / splat((float)grid.height * grid.width),
            block.lanes);
    }
  for_strips(c, grids, [&](int64_t image, int64_t, int top, int bottom, int64_t group, Scratch& scratch) {
    const Grid& grid = *grids.of_image[image];
    const int64_t first = group * GROUP, last = std::min(c.blocks(), first + GROUP);
    for_tiles(grid.columns, grid.blocks[first].x.taps, [&](int left, int right) {
      const Box box{top, bottom, left, right};
      run_blocks<Forward<POOLED>>(c, box, first, last, scratch, [&](int64_t i) {
        return Forward<POOLED>(c, grid, image, i, box, scratch);
      });
    });
  });
}

constexpr int WEIGHT = 0, BIAS = 1, MEAN = 2, VAR = 3, SQUARE = 4, X = 5, Y = 6, PARAMETERS = 7;

template <bool POOLED>
void backward(const Call& c) {
  const Grids grids(c);
  const int64_t strips = c.strips(), blocks = c.blocks();
  std::vector<vf> partial(c.batch * strips * blocks * PARAMETERS);  // gradients of one task and block
  for_strips(c, grids, [&](int64_t image, int64_t strip, int top, int bottom, int64_t group, Scratch& scratch) {
    const Grid& grid = *grids.of_image[image];
    const int64_t first = group * GROUP, last = std::min(blocks, first + GROUP);
    std::vector<Sums> sums;
    int high = 0;  // of the group: its blocks add to the tokens' sums in order, and therefore in step
    for (int64_t i = first; i < last; ++i) {
      sums.emplace_back(grid, grid.blocks[i]);
      high = std::max(high, grid.blocks[i].y.high);
    }
    for_tiles(grid.columns, grid.blocks[first].x.taps, [&](int left, int right) {
      const Box box{top, bottom, left, right};
      run_blocks<Backward<POOLED>>(c, box, first, last, scratch, [&](int64_t i) {
        return Backward<POOLED>(c, grid, image, i, box, scratch, std::max(0, top - high), sums[i - first]);
      });
    });
    for (int64_t i = first; i < last; ++i) {
      const Sums& s = sums[i - first];
      vf* p = &partial[((image * strips + strip) * blocks + i) * PARAMETERS];
      p[WEIGHT] = s.weight, p[BIAS] = s.bias, p[MEAN] = s.mean_own, p[VAR] = s.var_own;
      p[SQUARE] = p[X] = p[Y] = vf{};
      add_axis_gradient(grid.blocks[i].y, s.y_taps, s.y_dots, p[SQUARE], p[Y]);
      add_axis_gradient(grid.blocks[i].x, s.x_taps, s.x_dots, p[SQUARE], p[X]);
    }
  });

  // Through the tokens' own mean and variance; tokens outside `valid` have nothing else.
  std::vector<float> outside(c.valid ? 2 * c.batch * c.chunks() * c.channels : 0);  // gradients of weight and bias
  for_chunks(c, [&](int64_t image, int64_t chunk, int64_t top, int64_t bottom) {
    const Grid& grid = *grids.of_image[image];
    for (int64_t row = top; row < bottom; ++row)
      for (int64_t i = 0; i < c.width; ++i) {
        const int64_t t = image * c.tokens() + row * c.width + i;
        const float* x = c.x + t * c.channels;
        float* grad_x = c.grad_x + t * c.channels;
        if (row >= grid.height || i >= grid.width) {
          float* sums = &outside[2 * (image * c.chunks() + chunk) * c.channels];
          layer_norm_backward(c, x, c.grad_y + t * c.channels, c.mean()[t], c.var()[t], grad_x, sums,
                              sums + c.channels);
          continue;
        }
        v4 slopes{}, levels{};
        for (int64_t group = 0; group < c.groups(); ++group) {
          const float* sums = c.token_sums + (t * c.groups() + group) * 8;
          slopes += *(const v4_unaligned*)sums;
          levels += *(const v4_unaligned*)(sums + 4);
        }
        const float slope = (slopes[0] + slopes[1] + slopes[2] + slopes[3]) / c.channels;
        const float level = (levels[0] + levels[1] + levels[2] + levels[3]) / c.channels;
        const float* grad = c.grad_x + t * c.channels;
        for (int64_t k = 0; k < c.channels; k += V) {
          const int lanes = std::min<int64_t>(V, c.channels - k);
          store(grad_x + k, load(grad + k, lanes) - ((load(x + k, lanes) - c.mean()[t]) * slope + level), lanes);
        }
      }
  });

  std::vector<double> sums(PARAMETERS * c.channels);
  for (int64_t task = 0; task < c.batch * strips; ++task)
    for (const Block& block : grids.all[0]->blocks)
      for (int p = 0; p < PARAMETERS; ++p)
        for (int i = 0; i < block.lanes; ++i)
          sums[p * c.channels + block.first + i] += partial[(task * blocks + block.first / V) * PARAMETERS + p][i];
  for (size_t i = 0; i < outside.size(); ++i) sums[i / c.channels % 2 * c.channels + i % c.channels] += outside[i];
  const int64_t head_dim = c.channels / c.heads;
  for (int64_t head = 0; head < c.heads; ++head) {
    double mean = 0, var = 0, position[3] = {};
    for (int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i) {
      c.grad_weight[i] = sums[WEIGHT * c.channels + i];
      c.grad_bias[i] = sums[BIAS * c.channels + i];
      mean += sums[MEAN * c.channels + i] * c.weight[i];
      var += sums[VAR * c.channels + i] * c.weight[i] / 2;
      for (int p = 0; p < 3; ++p) position[p] += sums[(SQUARE + p) * c.channels + i];
    }
    const auto slope = [](double logit) {
      return 1 / ((1 + std::exp(-logit)) * (1 + std::exp(logit)));
    };
    if (c.mean_logit) c.grad_mean_logit[head] = mean * slope(c.mean_logit[head]);
    c.grad_var_logit[head] = var * slope(c.var_logit[head]);
    for (int p = 0; p < 3; ++p) c.grad_position[3 * head + p] = position[p];
  }
}

template <class F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) { return 1; }
}

}  // namespace

extern "C" {

// float32 values of `token_sums` for a token.
int64_t dtn_token_sums(int64_t channels) {
  Call c{};
  c.channels = channels;
  return 8 * c.groups();
}

// Whether the kernel suits positions (N, 3) on a grid of rows x columns windows: sums of weights without overflow, and
// filters that are not as wide as a large grid.
int dtn_takes(const float* position, int64_t heads, int64_t rows, int64_t columns) {
  for (int64_t head = 0; head < heads; ++head) {
    const double a1 = position[3 * head], last = std::max(rows, columns) - 1;
    const double a = std::max(std::fabs(position[3 * head + 1]), std::fabs(position[3 * head + 2]));
    if (!std::isfinite(a1) || !std::isfinite(a)) return 0;
    const double peak = a1 < 0 ? std::min(a / (-2 * a1), last) : last;
    if (a1 * peak * peak + a * peak > HIGHEST) return 0;
  }
  if (rows * columns <= LARGE) return 1;
  const Offsets y(position, 2, 0, heads - 1, rows), x(position, 1, 0, heads - 1, columns);
  return y.taps() + x.taps() <= WIDEST * (rows + columns);
}

// 0, or 1 where memory ran out.
int dtn_forward(const Call* c) {
  return guarded([&] { c->pool > 1 ? forward<true>(*c) : forward<false>(*c); });
}
int dtn_backward(const Call* c) {
  return guarded([&] { c->pool > 1 ? backward<true>(*c) : backward<false>(*c); });
}

}  // extern "C"
