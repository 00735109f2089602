// The filters of Eq. 6 and their gradients, for one image, one block of channels and one tile of columns.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan.h"

namespace {

struct Moments {  // of x and x * x, or their gradients
  vf first, second;

  INLINE vf& operator[](int i) { return i ? second : first; }
  INLINE const vf& operator[](int i) const { return i ? second : first; }
};

struct Ring {  // rows of windows, of which the last `span` are kept
  Scratch& scratch;
  const int taps, size, columns;  // of the filter along y; rows and columns of the grid
  // The width is odd: rows of a power of two would share their cache sets.
  const int span = std::min(taps + R - 1, size), width = (columns + R) | 1;
  Moments *data = take<Moments>(scratch, (size_t)span * width), *off_grid = zeros<Moments>(scratch, width);
  const Moments** rows = take<const Moments*>(scratch, taps + R - 1);

  Moments* row(int y) { return data + (size_t)(y % span) * width; }
  // The rows from `from` on that R results need; those below `to` are known.
  const Moments* const* rows_from(int from, int to) {
    for (int j = 0; j < taps + R - 1; ++j) rows[j] = from + j >= 0 && from + j < to ? row(from + j) : off_grid;
    return rows;
  }
};

struct Taps {
  int from, to;
};  // those that reach the grid from at least one of R neighbors, the first being `at`
INLINE Taps reaching(int at, int low, int taps, int size) {
  return {std::max(0, -at - low - R + 1), std::min(taps, size - at - low)};
}

// R neighboring results of a filter. Each input is read once: the loads would take longer than the arithmetic.
// On the way back `at` gives gradients of results, and the gradients of the weights, from the R inputs `own`, are
// added to `weight_gradient`. Q moments at a time: what they need fits into x86's registers.
template <bool BACK, class At>
INLINE void filter(At at, const vf* weight, Taps taps, Moments* result, const Moments* own = nullptr,
                   vf* weight_gradient = nullptr) {
  constexpr int Q = BACK && V < 16 ? 1 : 2;
  UNROLL
  for (int first = 0; first < 2; first += Q) {
    vf sum[Q][R] = {}, x[Q][R], own_x[Q][R];
    UNROLL
    for (int o = 0; o < R; ++o)
      UNROLL
      for (int q = 0; q < Q; ++q) {
        if (o < R - 1) x[q][o] = at(taps.from + o)[first + q];
        if (BACK) own_x[q][o] = own[o][first + q];
      }
    for (int d = taps.from; d < taps.to; ++d) {
      const vf w = weight[d];
      vf products[Q] = {};
      UNROLL
      for (int q = 0; q < Q; ++q) x[q][R - 1] = at(d + R - 1)[first + q];
      UNROLL
      for (int o = 0; o < R; ++o)
        UNROLL
        for (int q = 0; q < Q; ++q) {
          sum[q][o] += w * x[q][o];
          if (BACK) products[q] += own_x[q][o] * x[q][o];
        }
      if (BACK) weight_gradient[d] += Q == 1 ? products[0] : products[0] + products[Q - 1];
      UNROLL
      for (int q = 0; q < Q; ++q)
        UNROLL
        for (int o = 0; o < R - 1; ++o) x[q][o] = x[q][o + 1];
    }
    UNROLL
    for (int o = 0; o < R; ++o)
      UNROLL
      for (int q = 0; q < Q; ++q) result[o][first + q] = sum[q][o];
  }
}

// What both passes need for one tile and block. POOLED is pool > 1.
template <bool POOLED>
struct Part {
  const Call& c;
  const Grid& grid;
  const Block& block;
  Scratch& scratch;
  const int64_t image;
  const int left, right;  // columns of windows of the tile

  const int lanes = block.lanes;
  const vf shift = load(c.shift() + image * c.channels + block.first, lanes);
  const int64_t offset = image * c.tokens() * c.channels + block.first;  // of the image's first element in this block
  const float *x = c.x + offset, *means = c.mean() + image * c.tokens(), *vars = c.var() + image * c.tokens();
  Moments* line = take<Moments>(scratch, right - left + 2 * block.x.taps + R);  // a row of windows
  int done = 0;                                                                // rows that were filtered along x

  // Calls f(index of the token in the image) for the tokens of a window; returns how many there are.
  template <class F>
  INLINE int for_tokens(int row, int column, F f) const {
    if constexpr (!POOLED) {
      f((int64_t)row * c.width + column);
      return 1;
    }
    const int pool = c.pool, end = std::min((row + 1) * pool, grid.height),
              side = std::min((column + 1) * pool, grid.width);
    for (int i = row * pool; i < end; ++i)
      for (int j = column * pool; j < side; ++j) f((int64_t)i * c.width + j);
    return (end - row * pool) * (side - column * pool);
  }

  // Mean of a window less the shift, and its square.
  INLINE Moments window(int row, int column) const {
    const int64_t channels = c.channels, ahead = c.pool * c.width * channels;
    const vf shift = this->shift;
    const int lanes = this->lanes;
    vf mean{};
    const int count = for_tokens(row, column, [&](int64_t t) FORCED {
      if (POOLED) __builtin_prefetch(x + t * channels + ahead);
      mean += load(x + t * channels, lanes) - shift;
    });
    if (count > 1) mean /= splat(count);
    return {mean, mean * mean};
  }

  // The filter along x of windows [from, to) of a row.
  void filter_row(int row, int from, int to, Moments* result) const {
    const Axis& axis = block.x;
    const int first = from + axis.low, end = to + R - 1 + axis.high, inside = std::min(end, grid.columns);
    std::fill(line, line + std::max(0, -first), Moments{});
    for (int i = std::max(0, first); i < inside; ++i) line[i - first] = window(row, i);
    std::fill(line + (inside - first), line + (end - first), Moments{});
    const float* following = x + ((int64_t)(row + 1) * c.width + from) * c.channels;  // the tokens below
    for (int i = 0; i < to - from; i += R) {
      if constexpr (!POOLED) {
        UNROLL
        for (int o = 0; o < R; ++o) __builtin_prefetch(following + (i + o) * c.channels);
      }
      filter<false>([&](int j) FORCED -> const Moments& { return line[i + j]; }, axis.weight.data(),
                    reaching(from + i, axis.low, axis.taps, grid.columns), result + i);
    }
  }

  // The filter along y of PIECE windows of R rows. Not inline: the compiler would run out of registers.
  __attribute__((noinline)) void filter_piece(const Moments* const* rows, int start, int length, Taps taps,
                                              Moments (*result)[R]) const {
    for (int i = 0; i < length; ++i)
      filter<false>([&](int j) FORCED -> const Moments& { return rows[j][start + i]; }, block.y.weight.data(), taps,
                    result[i]);
  }

  // P's two results of a window, from the filters': mean of x - shift, and variance.
  INLINE Moments statistics(const Moments& filtered, vf scale) const {
    const vf mean = filtered.first * scale;
    const vf var = rounded(filtered.second * scale) - rounded(mean * mean);
    return {mean, var < 0 ? vf{} : var};  // keeps a NaN, of squares that overflow
  }
};

template <bool POOLED>
struct Forward : Part<POOLED> {
  using P = Part<POOLED>;
  using P::block, P::c, P::done, P::grid, P::left, P::right, P::scratch, P::x;
  Ring ring{scratch, block.y.taps, grid.rows, right - left};

  // Results of R rows.
  void step(int row) {
    const vf mean_own = block.mean_own, var_own = block.var_own, weight = block.weight, bias = block.bias;
    const vf eps = splat(c.eps), shift = this->shift;
    const float *means = this->means, *vars = this->vars;
    const int64_t channels = c.channels, ahead = R * c.pool * c.width * channels;
    const int lanes = this->lanes, width = right - left;
    float* y = c.y + this->offset;
    for (; done < std::min(grid.rows, row + R + block.y.high); ++done) P::filter_row(done, left, right, ring.row(done));
    const Moments* const* rows = ring.rows_from(row + block.y.low, done);
    const Taps taps = reaching(row, block.y.low, block.y.taps, grid.rows);
    for (int start = 0; start < width; start += PIECE) {
      Moments filtered[PIECE][R];
      const int length = std::min(PIECE, width - start);
      P::filter_piece(rows, start, length, taps, filtered);
      for (int o = 0; o < std::min(R, grid.rows - row); ++o) {
        const vf y_scale = block.y.scale[row + o], *x_scale = &block.x.scale[left + start];
        for (int i = 0; i < length; ++i) {
          const Moments s = P::statistics(filtered[i][o], x_scale[i] * y_scale);
          const vf mean = block.mean_inter * (s.first + shift), var = block.var_inter * s.second + eps;
          P::for_tokens(row + o, left + start + i, [&](int64_t t) FORCED {
            __builtin_prefetch(y + t * channels + ahead, 1);
            const vf centered = load(x + t * channels, lanes) - (mean_own * means[t] + mean);
            store(y + t * channels, centered * (rsqrt(var_own * vars[t] + var) * weight) + bias, lanes);
          });
        }
      }
    }
  }
  void finish() {}
};

enum { WEIGHT, BIAS, MEAN, VAR, SQUARE, X, Y, PARAMETERS };  // of `sums`; the last three are a1, a2, a3

template <bool POOLED>
struct Backward : Part<POOLED> {
  using P = Part<POOLED>;
  using P::block, P::c, P::done, P::grid, P::image, P::left, P::right, P::scratch, P::x;
  vf* sums;           // (PARAMETERS): gradients of the tile, some without the factors that all tokens share
  float* token_sums;  // (T, groups, 8) of the image: what the tokens' own statistics need, slope and level as v4

  const bool is_first = block.first % (GROUP * V) == 0;  // of its group, whose blocks add to `token_sums` in turn
  // Columns whose statistics the tile's windows enter.
  const int from = std::max(0, left - block.x.high), to = std::min(grid.columns, right - block.x.low);
  const int width = to - from + block.x.taps + 2 * R;  // of a row of `after_y`
  int next = 0;                                        // row of gradients
  Ring moments{scratch, block.y.taps, grid.rows, to - from}, gradients{scratch, block.y.taps, grid.rows, to - from};
  Moments* after_y = zeros<Moments>(scratch, R * width);  // R rows of gradients, zero off the grid
  vf *y_taps = zeros<vf>(scratch, block.y.taps), *x_taps = zeros<vf>(scratch, block.x.taps);  // the weights' gradients
  vf *step_y_taps = take<vf>(scratch, block.y.taps), *step_x_taps = take<vf>(scratch, block.x.taps);  // those of a step
  vf *y_dots = zeros<vf>(scratch, grid.rows), *x_dots = zeros<vf>(scratch, grid.columns);  // gradient times result

  // Gradients of the two filtered moments of `length` windows of a row, with e and f of their tokens:
  //   e = grad_y r,  so that d mean = -e weight,  and  f = e (x - mean) r^2,  so that d var = -f weight / 2.
  // For the tile's own windows also adds to the sums and writes the tokens' direct gradient, e weight, and what their
  // own statistics need.
  void window_gradients(int row, int column, int length, Moments (*filtered)[R], Moments* gradients) const {
    const vf mean_own = block.mean_own, var_own = block.var_own, weight = block.weight, eps = splat(c.eps),
             shift = this->shift;
    const vf mean_share = block.mean_inter * weight, var_share = block.var_inter * weight * -0.5f;
    const vf level_share = mean_own * weight, slope_share = var_own * weight;
    const vf y_scale = block.y.scale[row], *x_scale = &block.x.scale[column];
    const float *means = this->means, *vars = this->vars, *grad_y = c.grad_y + this->offset;
    float *grad_x = c.grad_x + this->offset, *token_sums = this->token_sums;
    const int64_t channels = c.channels, ahead = R * c.pool * c.width * channels, stride = 8 * c.groups();
    const int lanes = this->lanes;
    const bool is_first = this->is_first;
    const vf mean_inter = block.mean_inter, var_inter = block.var_inter;
    // Without pooling 1 / standard deviation, else the windows' part of the variance. Short loops overlap better.
    vf roots[PIECE];
    for (int i = 0; i < length; ++i) {
      const Moments s = filtered[i][0] = P::statistics(filtered[i][0], x_scale[i] * y_scale);
      roots[i] = var_inter * s.second + eps;
    }
    if constexpr (!POOLED)
      for (int i = 0; i < length; ++i) roots[i] = rsqrt(var_own * vars[(int64_t)row * c.width + column + i] + roots[i]);
    vf weight_sum{}, bias_sum{}, mean_sum{}, var_sum{}, dots{};
    for (int i = 0; i < length; ++i) {
      const bool own = column + i >= left && column + i < right;
      const vf scale = x_scale[i] * y_scale;
      const Moments s = filtered[i][0];
      const vf mean = mean_inter * (s.first + shift);
      vf e_sum{}, f_sum{};
      P::for_tokens(row, column + i, [&](int64_t t) FORCED {
        __builtin_prefetch(grad_y + t * channels + ahead);
        __builtin_prefetch(grad_x + t * channels + ahead, 1);
        const vf r = POOLED ? rsqrt(var_own * vars[t] + roots[i]) : roots[i], g = load(grad_y + t * channels, lanes);
        const vf centered = load(x + t * channels, lanes) - (mean_own * means[t] + mean);
        const vf e = g * r, product = e * centered, f = product * (r * r);
        e_sum += e;
        f_sum += f;
        if (!own) return;
        bias_sum += g;
        weight_sum += product;
        mean_sum += e * (s.first + (shift - means[t]));
        var_sum += f * (s.second - vars[t]);
        store(grad_x + t * channels, e * weight, lanes);
        v4_unaligned* token = (v4_unaligned*)(token_sums + t * stride);
        const v4 slope = fold(f * slope_share), level = fold(e * level_share);
        token[0] = is_first ? slope : token[0] + slope;
        token[1] = is_first ? level : token[1] + level;
      });
      const vf second = f_sum * var_share, through_mean = -e_sum * mean_share, cross = second * s.first;
      gradients[i] = {(through_mean - 2.0f * cross) * scale, second * scale};
      if (own) {
        const vf dot = (through_mean - cross) * s.first + second * s.second;
        dots += dot;
        x_dots[column + i] += dot;
      }
    }
    sums[WEIGHT] += weight_sum;
    sums[BIAS] += bias_sum;
    sums[MEAN] += mean_sum;
    sums[VAR] += var_sum;
    y_dots[row] += dots;
  }

  // Back along x: `gradients` are those of a row after the filter along y, from column left - high on. Adds to the
  // tokens' gradients and to the taps'.
  void back_along_x(int row, const Moments* gradients) const {
    const Axis& axis = block.x;
    const int64_t channels = c.channels;
    const int lanes = this->lanes;
    float* grad_x = c.grad_x + this->offset;
    for (int i = left; i < right; i += R) {
      const int own = std::min(R, right - i);
      Moments inputs[R], filtered[R];
      for (int o = 0; o < R; ++o) inputs[o] = o < own ? P::window(row, i + o) : Moments{};
      filter<true>([&](int j) FORCED -> const Moments& { return gradients[i - left + j]; }, axis.reversed.data(),
                   reaching(i, -axis.high, axis.taps, grid.columns), filtered, inputs, step_x_taps);
      for (int o = 0; o < own; ++o) {
        vf gradient = filtered[o].first + 2.0f * inputs[o].first * filtered[o].second;
        if constexpr (POOLED) gradient /= splat(P::for_tokens(row, i + o, [](int64_t) FORCED {}));
        P::for_tokens(row, i + o, [&](int64_t t) FORCED {
          float* p = grad_x + t * channels;
          store(p, load(p, lanes) + gradient, lanes);
        });
      }
    }
  }

  // Statistics of R rows and their gradients; gradients of the tokens of rows that are complete.
  void step(int row) {
    const Axis& along_y = block.y;
    for (; done < std::min(grid.rows, row + R + along_y.high); ++done) P::filter_row(done, from, to, moments.row(done));
    const Moments* const* rows = moments.rows_from(row + along_y.low, done);
    Taps taps = reaching(row, along_y.low, along_y.taps, grid.rows);
    for (int start = 0; start < to - from; start += PIECE) {
      Moments filtered[PIECE][R];
      const int length = std::min(PIECE, to - from - start);
      P::filter_piece(rows, start, length, taps, filtered);
      for (int o = 0; o < std::min(R, grid.rows - row); ++o)
        window_gradients(row + o, from + start, length, (Moments(*)[R]) & filtered[0][o],
                         gradients.row(row + o) + start);
    }

    const int ready = row + R >= grid.rows ? grid.rows : row + R + along_y.low;
    while (next < ready) {
      const int rows_ready = std::min(R, ready - next);
      rows = gradients.rows_from(next - along_y.high, std::min(grid.rows, row + R));
      taps = reaching(next, -along_y.high, along_y.taps, grid.rows);
      std::fill_n(step_y_taps, along_y.taps, vf{});
      for (int i = from; i < to; ++i) {
        Moments inputs[R] = {}, filtered[R];
        for (int o = 0; o < rows_ready && i >= left && i < right; ++o) inputs[o] = moments.row(next + o)[i - from];
        filter<true>([&](int j) FORCED -> const Moments& { return rows[j][i - from]; }, along_y.reversed.data(), taps,
                     filtered, inputs, step_y_taps);
        UNROLL
        for (int o = 0; o < R; ++o) after_y[o * width + i - (left - block.x.high)] = filtered[o];
      }
      std::fill_n(step_x_taps, block.x.taps, vf{});
      for (int o = 0; o < rows_ready; ++o) back_along_x(next + o, after_y + o * width);
      for (int d = 0; d < along_y.taps; ++d) y_taps[along_y.taps - 1 - d] += step_y_taps[d];
      for (int d = 0; d < block.x.taps; ++d) x_taps[block.x.taps - 1 - d] += step_x_taps[d];
      next += rows_ready;
    }
  }

  void finish() const {
    add_axis_gradient(block.y, y_taps, y_dots, grid.rows, sums[SQUARE], sums[Y]);
    add_axis_gradient(block.x, x_taps, x_dots, grid.columns, sums[SQUARE], sums[X]);
  }

  // Gradients of an axis' a1 and linear factor, through its weights and through their sums. The gradients of all
  // offsets add up to 0, so d^2 and d may count from their means under P: what rounding leaves of the gradient of an
  // offset with nearly all the weight then meets a factor near 0.
  static void add_axis_gradient(const Axis& axis, const vf* taps, const vf* dots, int size, vf& square, vf& linear) {
    vf sum{}, square_mean{}, mean{};
    for (int j = 0, d = axis.low; j < axis.taps; ++j, ++d) {
      sum += axis.weight[j];
      square_mean += axis.weight[j] * splat((float)d * d);
      mean += axis.weight[j] * splat(d);
    }
    square_mean /= sum, mean /= sum;
    for (int j = 0, d = axis.low; j < axis.taps; ++j, ++d) {
      vf through_sums{};
      for (int i = std::max(0, -d); i < std::min(size, size - d); ++i) through_sums += dots[i] * axis.scale[i];
      const vf gradient = axis.weight[j] * (taps[j] - through_sums);
      square += gradient * (splat((float)d * d) - square_mean);
      linear += gradient * (splat(d) - mean);
    }
  }
};

}  // namespace
