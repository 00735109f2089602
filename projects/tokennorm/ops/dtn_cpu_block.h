// The filters of Eq. 6 and their gradients, for one image and one block of channels.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dtn_cpu_plan.h"

namespace {

struct Moments {
  vf first, second;
};  // of x and x * x, or their gradients

struct Ring {  // rows of windows, of which the last `span` are kept
  int span, width;  // the width is odd: rows of a power of two would share their cache sets
  Moments *data, *zeros;
  const Moments** rows;  // what `rows_from` returns

  static size_t vectors(int taps, int rows, int width) {
    const int all = taps + R - 1;
    return (size_t)(2 * std::min(all, rows) + 2) * (width + R + 1) + (all + 1) * sizeof(void*) / sizeof(vf) + 2;
  }
  Ring(Scratch& scratch, int taps, int rows, int width) : span(std::min(taps + R - 1, rows)), width((width + R) | 1) {
    data = scratch.take<Moments>((size_t)span * this->width);
    zeros = scratch.take<Moments>(this->width);
    std::fill_n(zeros, this->width, Moments{});
    this->rows = scratch.take<const Moments*>(taps + R - 1);
  }
  Moments* row(int y) { return data + (size_t)(y % span) * width; }
  // Rows [from, from + count), zeros where they are not in [begin, end).
  const Moments* const* rows_from(int from, int count, int begin, int end) {
    for (int j = 0; j < count; ++j) rows[j] = from + j >= begin && from + j < end ? row(from + j) : zeros;
    return rows;
  }
};

struct Taps {
  int from, to;
};  // those that reach [begin, end) from at least one of R neighbours, the first being `at`
INLINE Taps reaching(int at, int low, int taps, int begin, int end) {
  return {std::max(0, begin - at - low - R + 1), std::min(taps, end - at - low)};
}

template <class At>
INLINE void filter(At at, const vf* weight, Taps taps, Moments* result) {
  vf first[R] = {}, second[R] = {};
  for (int d = taps.from; d < taps.to; ++d) {
    const vf w = weight[d];
    UNROLL
    for (int o = 0; o < R; ++o) {
      const Moments& in = at(d + o);
      first[o] += w * in.first;
      second[o] += w * in.second;
    }
  }
  UNROLL
  for (int o = 0; o < R; ++o) result[o] = {first[o], second[o]};
}

struct Sums {  // gradients of one block over a task, without the factors that are the same for all tokens
  vf weight{}, bias{}, mean_own{}, var_own{};
  std::vector<vf> y_taps, x_taps, y_dots, x_dots;  // (K), (K), and gradient times result of (rows), (columns)
};

template <class T, bool POOLED>  // POOLED is pool > 1
struct Part {
  const Call& c;
  const Grid& grid;
  const Block& block;
  int64_t image, offset;  // the latter: of the image's first element in this block
  int group, number;      // number: of the block in its group
  const T *x, *grad_y;
  T* y;
  float* grad;
  vf shift;

  Part(const Call& c, const Grid& grid, int64_t image, int64_t index)
      : c(c),
        grid(grid),
        block(grid.blocks[index]),
        image(image),
        offset(image * c.tokens() * c.channels + block.first),
        group(index / GROUP),
        number(index % GROUP),
        x((const T*)c.x + offset),
        grad_y((const T*)c.grad_y + offset),
        y((T*)c.y + offset),
        grad(c.grad_tokens + offset),
        shift(load(c.shift() + image * c.channels + block.first, block.lanes)) {}

  // Calls f(index of the token in the image) for the tokens of a window; returns how many there are.
  template <class F>
  INLINE int for_tokens(int row, int column, F f) const {
    if constexpr (!POOLED) {
      f((int64_t)row * c.width + column);
      return 1;
    }
    const int pool = c.pool, bottom = std::min((row + 1) * pool, grid.height),
              right = std::min((column + 1) * pool, grid.width);
    for (int i = row * pool; i < bottom; ++i)
      for (int j = column * pool; j < right; ++j) f((int64_t)i * c.width + j);
    return (bottom - row * pool) * (right - column * pool);
  }

  // Windows [from, to) of a row: means less the shift, and their squares. Zero off the grid.
  void read_windows(int row, int from, int to, Moments* line) const {
    const vf shift = this->shift;
    const int64_t channels = c.channels, ahead = c.pool * c.width * channels;
    const int lanes = block.lanes;
    for (; from < std::min(0, to); ++from) *line++ = Moments{};
    for (; from < std::min(grid.columns, to); ++from) {
      vf mean{};
      const int count = for_tokens(row, from, [&](int64_t t) FORCED {
        const T* p = x + t * channels;
        __builtin_prefetch(p + ahead);
        mean += load(p, lanes) - shift;
      });
      if (count > 1) mean /= splat(count);
      *line++ = {mean, mean * mean};
    }
    for (; from < to; ++from) *line++ = Moments{};
  }

  // The filter along x of windows [left, right) of a row.
  void filter_row(int row, int left, int right, Moments* line, Moments* result) const {
    const Axis& axis = block.x;
    read_windows(row, left + axis.low, right + R - 1 + axis.high, line);
    for (int i = 0; i < right - left; i += R)
      filter([&](int j) FORCED -> const Moments& { return line[i + j]; }, axis.weight.data(),
             reaching(left + i, axis.low, axis.taps, 0, grid.columns), result + i);
  }

  // P's two results of a window, from the filters': mean of x - shift, and variance.
  INLINE Moments statistics(const Moments& filtered, vf scale) const {
    const vf mean = filtered.first * scale;
    const vf var = rounded(filtered.second * scale) - rounded(mean * mean);
    return {mean, var < 0 ? vf{} : var};  // keeps a NaN, of squares that overflow
  }

  void forward(int top, int bottom, int left, int right, Scratch& scratch) const {
    const Axis &along_y = block.y, &along_x = block.x;
    const int width = right - left, count = along_y.taps + R - 1;
    scratch.reset(Ring::vectors(along_y.taps, grid.rows, width) + 2 * (width + along_x.taps + R));
    Ring ring(scratch, along_y.taps, grid.rows, width);
    Moments* line = scratch.take<Moments>(width + along_x.taps + R);
    const vf mean_own = block.mean_own, var_own = block.var_own, weight = block.weight, bias = block.bias;
    const vf eps = splat(c.eps), shift = this->shift;
    const float *means = c.mean() + image * c.tokens(), *vars = c.var() + image * c.tokens();
    const int64_t channels = c.channels, ahead = R * c.pool * c.width * channels;
    const int lanes = block.lanes;
    int done = std::max(0, top + along_y.low);
    for (int row = top; row < bottom; row += R) {
      for (; done < std::min(grid.rows, row + R + along_y.high); ++done)
        filter_row(done, left, right, line, ring.row(done));
      const Moments* const* rows = ring.rows_from(row + along_y.low, count, 0, grid.rows);
      const Taps taps = reaching(row, along_y.low, along_y.taps, 0, grid.rows);
      for (int start = 0; start < width; start += PIECE) {
        Moments filtered[PIECE][R];
        const int length = std::min(PIECE, width - start);
        for (int i = 0; i < length; ++i)
          filter([&](int j) FORCED -> const Moments& { return rows[j][start + i]; }, along_y.weight.data(), taps,
                 filtered[i]);
        for (int o = 0; o < std::min(R, bottom - row); ++o) {
          const vf y_scale = along_y.scale[row + o], *x_scale = &along_x.scale[left + start];
          for (int i = 0; i < length; ++i) {
            const Moments s = statistics(filtered[i][o], x_scale[i] * y_scale);
            const vf mean = block.mean_inter * (s.first + shift), var = block.var_inter * s.second + eps;
            for_tokens(row + o, left + start + i, [&](int64_t t) FORCED {
              __builtin_prefetch(y + t * channels + ahead, 1);
              const vf centred = load(x + t * channels, lanes) - (mean_own * means[t] + mean);
              store(y + t * channels, centred * (rsqrt(var_own * vars[t] + var) * weight) + bias, lanes);
            });
          }
        }
      }
    }
  }

  // Gradients of the two filtered moments of `length` windows of a row, with e and f of their tokens:
  //   e = grad_y r,  so that d mean = -e weight,  and  f = e (x - mean) r^2,  so that d var = -f weight / 2.
  // For the task's own windows, [own_from, own_to), also adds to the sums and writes the tokens' direct gradient, e
  // weight, and what their own statistics need. `filtered` becomes the gradients, or zero where the window is not the
  // task's own.
  void window_gradients(int row, int column, int length, int own_from, int own_to, Moments (*filtered)[R],
                        Moments* gradients, Sums& sums) const {
    const vf mean_own = block.mean_own, var_own = block.var_own, weight = block.weight, eps = splat(c.eps),
             shift = this->shift;
    const vf mean_share = block.mean_inter * weight, var_share = block.var_inter * weight * -0.5f;
    const vf level_share = mean_own * weight, slope_share = var_own * weight;
    const vf y_scale = block.y.scale[row], *x_scale = &block.x.scale[column];
    const float *means = c.mean() + image * c.tokens(), *vars = c.var() + image * c.tokens();
    float* token_sums = c.token_sums + (image * c.tokens() * c.groups() + group) * 8;
    const int64_t channels = c.channels, ahead = R * c.pool * c.width * channels, stride = 8 * c.groups();
    const int lanes = block.lanes;
    vf weight_sum{}, bias_sum{}, mean_sum{}, var_sum{}, dots{};
    for (int i = 0; i < length; ++i) {
      const bool own = column + i >= own_from && column + i < own_to;
      const vf scale = x_scale[i] * y_scale;
      const Moments s = statistics(filtered[i][0], scale);
      const vf mean = block.mean_inter * (s.first + shift), var = block.var_inter * s.second + eps;
      vf e_sum{}, f_sum{};
      for_tokens(row, column + i, [&](int64_t t) FORCED {
        __builtin_prefetch(grad_y + t * channels + ahead);
        __builtin_prefetch(grad + t * channels + ahead, 1);
        const vf r = rsqrt(var_own * vars[t] + var), g = load(grad_y + t * channels, lanes);
        const vf centred = load(x + t * channels, lanes) - (mean_own * means[t] + mean);
        const vf e = g * r, product = e * centred, f = product * (r * r);
        e_sum += e;
        f_sum += f;
        if (!own) return;
        bias_sum += g;
        weight_sum += product;
        mean_sum += e * (s.first + (shift - means[t]));
        var_sum += f * (s.second - vars[t]);
        store(grad + t * channels, e * weight, lanes);
        v4_unaligned* token = (v4_unaligned*)(token_sums + t * stride);
        const v4 slope = fold(f * slope_share), level = fold(e * level_share);
        token[0] = number ? token[0] + slope : slope;
        token[1] = number ? token[1] + level : level;
      });
      const vf second = f_sum * var_share, through_mean = -e_sum * mean_share, cross = second * s.first;
      const Moments gradient = {(through_mean - 2.0f * cross) * scale, second * scale};
      gradients[i] = gradient;
      filtered[i][0] = own ? gradient : Moments{};
      if (own) {
        const vf dot = (through_mean - cross) * s.first + second * s.second;
        dots += dot;
        sums.x_dots[column + i] += dot;
      }
    }
    sums.bias += bias_sum;
    sums.weight += weight_sum;
    sums.mean_own += mean_sum;
    sums.var_own += var_sum;
    sums.y_dots[row] += dots;
  }

  // Back along x: `gradients` are those of a row after the filter along y, from column left - high on. Adds to the
  // tokens' gradients and to the taps'.
  void back_along_x(int row, int left, int right, const Moments* gradients, Moments* line, vf* taps) const {
    const Axis& axis = block.x;
    const int64_t channels = c.channels;
    const int lanes = block.lanes;
    read_windows(row, left, right, line);
    std::fill_n(line + (right - left), R, Moments{});
    for (int i = 0; i < right - left; i += R) {
      vf first[R] = {}, second[R] = {};
      const Taps reach = reaching(left + i, -axis.high, axis.taps, 0, grid.columns);
      for (int j = reach.from; j < reach.to; ++j) {
        const vf w = axis.reversed[j];
        vf a = taps[j], b{};
        UNROLL
        for (int o = 0; o < R; ++o) {
          const Moments& in = gradients[i + j + o];
          first[o] += w * in.first;
          second[o] += w * in.second;
          a += line[i + o].first * in.first;
          b += line[i + o].second * in.second;
        }
        taps[j] = a + b;
      }
      for (int o = 0; o < std::min(R, right - left - i); ++o) {
        vf gradient = first[o] + 2.0f * line[i + o].first * second[o];
        if constexpr (POOLED) gradient /= splat(for_tokens(row, left + i + o, [](int64_t) FORCED {}));
        for_tokens(row, left + i + o, [&](int64_t t) FORCED {
          float* p = grad + t * channels;
          store(p, load(p, lanes) + gradient, lanes);
        });
      }
    }
  }

  void backward(int top, int bottom, int left, int right, Sums& sums, Scratch& scratch) const {
    const Axis &along_y = block.y, &along_x = block.x;
    // Windows whose statistics the tile's own windows enter.
    const int begin = std::max(0, top - along_y.high), end = std::min(grid.rows, bottom - along_y.low);
    const int from = std::max(0, left - along_x.high), to = std::min(grid.columns, right - along_x.low);
    const int width = to - from, count = along_y.taps + R - 1, line_width = width + along_x.taps + 2 * R;
    scratch.reset(2 * Ring::vectors(along_y.taps, grid.rows, width) + 2 * (R + 1) * line_width + along_y.taps +
                  along_x.taps);
    Ring moments(scratch, along_y.taps, grid.rows, width), gradients(scratch, along_y.taps, grid.rows, width);
    Moments* line = scratch.take<Moments>(line_width);
    Moments* after_y = scratch.take<Moments>(R * line_width);  // R rows of gradients, zero off the grid
    vf *y_taps = scratch.take<vf>(along_y.taps), *x_taps = scratch.take<vf>(along_x.taps);
    std::fill_n(after_y, R * line_width, Moments{});
    int done = std::max(0, begin + along_y.low), next = top;
    for (int row = begin; next < bottom; row += R) {
      for (; done < std::min(grid.rows, row + R + along_y.high); ++done)
        filter_row(done, from, to, line, moments.row(done));
      const Moments* const* rows = moments.rows_from(row + along_y.low, count, 0, grid.rows);
      Taps taps = reaching(row, along_y.low, along_y.taps, 0, grid.rows);
      std::fill_n(y_taps, along_y.taps, vf{});
      for (int start = 0; start < width; start += PIECE) {
        Moments filtered[PIECE][R];
        const int length = std::min(PIECE, width - start);
        for (int i = 0; i < length; ++i)
          filter([&](int j) FORCED -> const Moments& { return rows[j][start + i]; }, along_y.weight.data(), taps,
                 filtered[i]);
        for (int o = 0; o < R; ++o) {
          const bool own = row + o >= top && row + o < bottom;
          auto column = (Moments(*)[R]) & filtered[0][o];
          if (row + o < end)
            window_gradients(row + o, from + start, length, own ? left : 0, own ? right : 0, column,
                             gradients.row(row + o) + start, sums);
          else
            for (int i = 0; i < length; ++i) column[i][0] = Moments{};
        }
        for (int i = 0; i < length; ++i)
          for (int d = taps.from; d < taps.to; ++d) {
            vf a = y_taps[d], b{};
            UNROLL
            for (int o = 0; o < R; ++o) {
              a += filtered[i][o].first * rows[d + o][start + i].first;
              b += filtered[i][o].second * rows[d + o][start + i].second;
            }
            y_taps[d] = a + b;
          }
      }
      for (int d = 0; d < along_y.taps; ++d) sums.y_taps[d] += y_taps[d];

      // Rows of the tile whose gradients are complete.
      const int ready = row + R >= end ? bottom : std::min(bottom, row + R + along_y.low);
      while (next < ready) {
        const int rows_ready = std::min(R, ready - next);
        rows = gradients.rows_from(next - along_y.high, count, begin, end);
        taps = reaching(next, -along_y.high, along_y.taps, begin, end);
        for (int i = 0; i < width; ++i) {
          Moments filtered[R];
          filter([&](int j) FORCED -> const Moments& { return rows[j][i]; }, along_y.reversed.data(), taps, filtered);
          UNROLL
          for (int o = 0; o < R; ++o) after_y[o * line_width + i + from - (left - along_x.high)] = filtered[o];
        }
        std::fill_n(x_taps, along_x.taps, vf{});
        for (int o = 0; o < rows_ready; ++o)
          back_along_x(next + o, left, right, after_y + o * line_width, line, x_taps);
        for (int d = 0; d < along_x.taps; ++d) sums.x_taps[along_x.taps - 1 - d] += x_taps[d];
        next += rows_ready;
      }
    }
  }
};

// Adds the gradients of an axis' a1 and linear factor, through its weights and through their sums.
void add_axis_gradient(const Axis& axis, const std::vector<vf>& taps, const std::vector<vf>& dots, vf& square,
                       vf& linear) {
  const int size = dots.size();
  for (int j = 0; j < axis.taps; ++j) {
    const int d = axis.low + j;
    vf through_sums{};
    for (int i = std::max(0, -d); i < std::min(size, size - d); ++i) through_sums += dots[i] * axis.scale[i];
    const vf gradient = axis.weight[j] * (taps[j] - through_sums);
    square += gradient * splat((float)d * d);
    linear += gradient * splat(d);
  }
}

}  // namespace
