// Dynamic Token Normalization on a CPU: Algorithm 1 of the paper, forward and backward. `build.py` compiles it, and
// `kernel.py` calls it.
//
// Letters: B images, H x W grid of tokens, C channels, N heads, T tokens, K taps of a filter. A window has
// pool x pool tokens, the last of which may be partial; with pool 1 it is a token.
//
// P of Eq. 6 is a filter along x, a filter along y, and a division by the sum of the weights that stay on the grid. A
// weight is a vector, so that heads may share a block. How the work is divided (constants in plan.h):
//
//     B images, H x W windows                  C channels
//     +--------+--------+--------+             +---------+---------+---    task  = image, tile, group; one thread
//     |  tile  |  tile  |  tile  |             |  group  |  group  |       tile  = TILE columns
//     |        |        |        |             +-+-+-+-+-+-+-+-+-+-+---    group = GROUP blocks of V channels
//     |--------|        |        |             | | |block| | | | | |       step  = R rows of a tile, for each block of
//     |::::    | R rows |        |             +-+-+-+-+-+-+-+-+-+-+---            the group in turn, while their
//     |--------|        |        |                                                 tokens are in the cache
//     |        |        |        |             piece (::::) = PIECE columns of a step, between filter and result
//     +--------+--------+--------+
//
// Rows that the filter along y still needs are kept in a ring per block. Work that needs no filter is divided into
// chunks of CHUNK rows of tokens. The division depends on the shapes only, and sums are added in a fixed order: the
// result does not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "block.h"

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

// ---- The two passes

// Calls f(chunk, first token of a row, how many of its tokens are inside) for all rows of tokens, in any order.
template <class F>
void for_rows(const Call& c, const Grids& grids, F f) {
  run(c, c.batch * c.chunks(), [&](int64_t chunk, Scratch&) {
    const int64_t image = chunk / c.chunks(), top = chunk % c.chunks() * CHUNK;
    const Grid& grid = *grids.of_image[image];
    for (int64_t row = top; row < std::min(c.height, top + CHUNK); ++row)
      f(chunk, image * c.tokens() + row * c.width, row < grid.height ? grid.width : 0);
  });
}

// Runs what make(part, tile of the batch) returns for all parts: those of a group in turn, R rows at a time, where the
// tokens of a tile would leave the cache before the next block reads them. Elsewhere one after the other: their rings
// stay in a smaller cache.
template <bool POOLED, class Make>
void run_parts(const Call& c, const Grids& grids, Make make) {
  run(c, c.batch * c.tiles() * c.groups(), [&](int64_t task, Scratch& scratch) {
    const int64_t tile = task / c.groups(), image = tile / c.tiles(), index = tile % c.tiles();
    const Grid& grid = *grids.of_image[image];
    const int64_t first = task % c.groups() * GROUP, last = std::min(first + GROUP, c.blocks());
    const int64_t tiles = grid.blocks[first].x.taps > TILE ? 1 : (grid.columns + TILE - 1) / TILE;
    if (index >= tiles) return;
    const int left = index * grid.columns / tiles, right = (index + 1) * grid.columns / tiles;
    const bool in_turn = grid.rows * (right - left) * c.pool * c.pool >= TOGETHER;
    std::vector<std::invoke_result_t<Make, Part<POOLED>, int64_t>> parts;
    for (int64_t i = first; i < last;) {
      parts.clear();
      scratch.reset();
      do parts.push_back(make(Part<POOLED>{c, grid, grid.blocks[i++], scratch, image, left, right}, tile));
      while (in_turn && i < last);
      for (int row = 0; row < grid.rows; row += R)
        for (auto& part : parts) part.step(row);
      for (auto& part : parts) part.finish();
    }
  });
}

template <bool POOLED>
void forward(const Call& c) {
  const Grids grids(c);
  std::vector<vf> sums(c.batch * c.chunks() * c.blocks(), vf{});
  for_rows(c, grids, [&](int64_t chunk, int64_t token, int inside) {
    const float* first = c.x + chunk / c.chunks() * c.tokens() * c.channels;
    vf* chunk_sums = &sums[chunk * c.blocks()];
    for (int i = 0, step; i < c.width; i += step, token += step) {
      const float* x = c.x + token * c.channels;
      float *mean = c.mean() + token, *var = c.var() + token;
      step = i + 4 <= inside ? 4 : 1;
      if (step == 4) token_statistics<4>(c, x, first, chunk_sums, mean, var);
      else token_statistics<1>(c, x, first, i < inside ? chunk_sums : nullptr, mean, var);
      if (i < inside) continue;
      const float r = 1 / std::sqrt(*var + (float)c.eps);  // outside `valid`: LayerNorm
      for (int64_t k = 0; k < c.channels; k += V) {
        const int lanes = std::min<int64_t>(V, c.channels - k);
        const vf normed = (load(x + k, lanes) - *mean) * r;
        store(c.y + token * c.channels + k, normed * load(c.weight + k, lanes) + load(c.bias + k, lanes), lanes);
      }
    }
  });
  for (int64_t image = 0; image < c.batch; ++image) {
    const Grid& grid = *grids.of_image[image];
    for (const Block& block : grid.blocks) {
      vf sum{};
      for (int64_t chunk = image * c.chunks(); chunk < (image + 1) * c.chunks(); ++chunk)
        sum += sums[chunk * c.blocks() + block.first / V];
      const vf first = load(c.x + image * c.tokens() * c.channels + block.first, block.lanes);
      store(c.shift() + image * c.channels + block.first, first + sum / splat((float)grid.height * grid.width),
            block.lanes);
    }
  }
  run_parts<POOLED>(c, grids, [](const Part<POOLED>& part, int64_t) { return Forward<POOLED>{part}; });
}

template <bool POOLED>
void backward(const Call& c) {
  const Grids grids(c);
  const std::unique_ptr<float[]> token_sums(new float[c.batch * c.tokens() * c.groups() * 8]);
  std::vector<vf> tile_sums(c.batch * c.tiles() * c.blocks() * PARAMETERS, vf{});
  run_parts<POOLED>(c, grids, [&](const Part<POOLED>& part, int64_t tile) {
    const int64_t group = part.block.first / (GROUP * V);
    return Backward<POOLED>{part, &tile_sums[(tile * c.blocks() + part.block.first / V) * PARAMETERS],
                            &token_sums[(part.image * c.tokens() * c.groups() + group) * 8]};
  });

  // Through the tokens' own mean and variance; tokens outside `valid` have nothing else.
  std::vector<float> outside(c.valid ? 2 * c.batch * c.chunks() * c.channels : 0);  // gradients of weight and bias
  for_rows(c, grids, [&](int64_t chunk, int64_t token, int inside) {
    for (int i = 0; i < c.width; ++i, ++token) {
      const float *x = c.x + token * c.channels, mean = c.mean()[token];
      float* grad_x = c.grad_x + token * c.channels;
      v4 slopes{}, levels{};
      if (i < inside)
        for (int64_t group = 0; group < c.groups(); ++group) {
          const v4_unaligned* sums = (const v4_unaligned*)&token_sums[(token * c.groups() + group) * 8];
          slopes += sums[0];
          levels += sums[1];
        }
      else
        for (int64_t k = 0; k < c.channels; k += V) {
          const int lanes = std::min<int64_t>(V, c.channels - k);
          const float r = 1 / std::sqrt(c.var()[token] + (float)c.eps);
          float *grad_weight = &outside[2 * chunk * c.channels + k], *grad_bias = grad_weight + c.channels;
          const vf g = load(c.grad_y + token * c.channels + k, lanes), direct = g * load(c.weight + k, lanes) * r;
          const vf normed = (load(x + k, lanes) - mean) * r;
          store(grad_weight, load(grad_weight, lanes) + g * normed, lanes);
          store(grad_bias, load(grad_bias, lanes) + g, lanes);
          store(grad_x + k, direct, lanes);
          slopes += fold(direct * normed * r);
          levels += fold(direct);
        }
      const float slope = (slopes[0] + slopes[1] + slopes[2] + slopes[3]) / c.channels;
      const float level = (levels[0] + levels[1] + levels[2] + levels[3]) / c.channels;
      for (int64_t k = 0; k < c.channels; k += V) {
        const int lanes = std::min<int64_t>(V, c.channels - k);
        store(grad_x + k, load(grad_x + k, lanes) - ((load(x + k, lanes) - mean) * slope + level), lanes);
      }
    }
  });

  std::vector<double> sums(PARAMETERS * c.channels);
  for (int64_t tile = 0; tile < c.batch * c.tiles(); ++tile)
    for (int64_t i = 0; i < c.channels; ++i)
      for (int p = 0; p < PARAMETERS; ++p)
        sums[p * c.channels + i] += tile_sums[(tile * c.blocks() + i / V) * PARAMETERS + p][i % V];
  for (size_t i = 0; i < outside.size(); ++i) sums[i % (2 * c.channels)] += outside[i];
  static_assert(WEIGHT == 0 && BIAS == 1, "the order of `outside`");
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

// Bytes of `Call`, which `kernel.py` compares with its own.
int64_t dtn_call_size() { return sizeof(Call); }

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
