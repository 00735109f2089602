// The arguments of a call, the weights of Eq. 6 for each block of channels, and threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "vectors.h"

namespace {

constexpr int R = 4;            // results that a filter computes at a time: rows along y, columns along x
constexpr int PIECE = 16;       // columns between a filter and its results
constexpr int TILE = 64;        // columns of a tile
constexpr int GROUP = 64 / V;   // blocks of a task: 64 channels
constexpr int TOGETHER = 1024;  // tokens of a tile, at least, where the blocks of a group are processed in turn
constexpr int CHUNK = 32;       // rows of tokens of a task that needs no filter
constexpr int SHARE = 131072;   // elements of a thread, at least: a second thread costs as much time as 40,000

constexpr double LOWEST = -19.9;  // exp of it is 2e-9 of a token's own weight: float32 resolves 6e-8
constexpr double HIGHEST = 20;    // sums of weights up to exp of it, squared, stay far inside float32
constexpr int LARGE = 128 * 128;  // windows: their moments fill the caches, and where filters reach more than
constexpr double WIDEST = 0.7;    // this fraction of the sides, matrix products are faster

// The arguments of one call. `Call` in kernel.py lists the same fields.
struct Call {
  int64_t batch, height, width, channels, heads, pool, threads;
  double eps;
  const float *x, *weight, *bias;                  // (B, H, W, C), (C), (C)
  const float *mean_logit, *var_logit, *position;  // (N) or null, (N), (N, 3)
  const int64_t* valid;                            // (B, 2) or null
  float* statistics;                               // mean() (B, H, W), var() (B, H, W), shift() (B, C)
  float* y;                                        // (B, H, W, C)
  const float* grad_y;                             // the same
  float *grad_x, *grad_weight, *grad_bias, *grad_mean_logit, *grad_var_logit, *grad_position;

  // Each token's own mean and variance, and what is taken off each image's channels before squaring.
  float* mean() const { return statistics; }
  float* var() const { return statistics + batch * tokens(); }
  float* shift() const { return statistics + 2 * batch * tokens(); }
  int64_t tokens() const { return height * width; }
  int64_t blocks() const { return (channels + V - 1) / V; }
  int64_t groups() const { return (blocks() + GROUP - 1) / GROUP; }
  int64_t tiles() const { return (width + pool * TILE - 1) / (pool * TILE); }
  int64_t chunks() const { return (height + CHUNK - 1) / CHUNK; }
};

// The offsets d on an axis whose weight exp(a1 d^2 + a d) counts for at least one of the heads [from, to].
struct Offsets {
  int low = 0, high = 0;

  Offsets(const float* position, int linear, int from, int to, int size) {
    for (int head = from; head <= to; ++head)
      for (int d = 1; d < size; ++d) {
        const double square = (double)position[3 * head] * d * d, shift = (double)position[3 * head + linear] * d;
        if (square + shift > LOWEST) high = std::max(high, d);
        if (square - shift > LOWEST) low = std::min(low, -d);
      }
  }
  int taps() const { return high - low + 1; }
};

// One axis of Eq. 6 for one block: weights exp(a1 d^2 + a d) of the offsets d in [low, high].
struct Axis {
  int low, high, taps;
  std::vector<vf> weight, reversed, scale;  // (K), (K), (windows): 1 / the sum of the weights that stay on the grid

  Axis(const float* position, int linear, int first, int lanes, int head_dim, int size) {
    const Offsets offsets(position, linear, first / head_dim, (first + lanes - 1) / head_dim, size);
    low = offsets.low, high = offsets.high, taps = offsets.taps();
    weight.assign(taps, vf{});
    for (int lane = 0; lane < lanes; ++lane) {
      const int head = (first + lane) / head_dim;
      const bool same_head = lane && (first + lane) % head_dim;
      for (int j = 0; j < taps; ++j) {
        const double d = low + j, a1 = position[3 * head], a = position[3 * head + linear];
        weight[j][lane] = same_head ? weight[j][lane - 1] : (float)std::exp(a1 * d * d + a * d);
      }
    }
    reversed.assign(weight.rbegin(), weight.rend());
    for (int i = 0; i < size; ++i) {
      vf sum{};
      for (int j = std::max(0, -low - i); j < std::min(taps, size - low - i); ++j) sum += weight[j];
      for (int lane = lanes; lane < V; ++lane) sum[lane] = 1;
      scale.push_back(1.0f / sum);
    }
  }
};

struct Block {  // of channels [first, first + lanes)
  int first, lanes;
  const Axis &y, &x;
  vf weight, bias, mean_own, var_own, mean_inter, var_inter;  // lambda, and 1 - lambda without cancellation
};

struct Grid {  // of images of one size; windows: rows x columns
  int height, width, rows, columns;
  std::deque<Axis> axes;  // y and x in turn; blocks inside one head share theirs
  std::vector<Block> blocks;

  Grid(const Call& c, int height, int width)
      : height(height), width(width), rows((height + c.pool - 1) / c.pool), columns((width + c.pool - 1) / c.pool) {
    const int head_dim = c.channels / c.heads;
    for (int first = 0; first < c.channels; first += V) {
      const int lanes = std::min<int64_t>(V, c.channels - first);
      const auto sigmoid = [&](const float* logit, float sign) {  // of heads without a logit, lambda = 1
        vf result = splat(sign > 0);
        for (int i = 0; logit && i < lanes; ++i) {
          const bool same_head = i && (first + i) % head_dim;
          result[i] = same_head ? result[i - 1] : 1 / (1 + std::exp(-sign * logit[(first + i) / head_dim]));
        }
        return result;
      };
      const bool shares = first && lanes == V && (first - V) / head_dim == (first + V - 1) / head_dim;
      if (!shares) axes.emplace_back(c.position, 2, first, lanes, head_dim, rows);
      if (!shares) axes.emplace_back(c.position, 1, first, lanes, head_dim, columns);
      blocks.push_back({first, lanes, axes[axes.size() - 2], axes.back(), load(c.weight + first, lanes),
                        load(c.bias + first, lanes), sigmoid(c.mean_logit, 1), sigmoid(c.var_logit, 1),
                        sigmoid(c.mean_logit, -1), sigmoid(c.var_logit, -1)});
    }
  }
};

struct Grids {  // one for each size of an image in the batch
  std::map<std::pair<int64_t, int64_t>, Grid> all;
  std::vector<const Grid*> of_image;

  explicit Grids(const Call& c) {
    for (int64_t b = 0; b < c.batch; ++b) {
      const int64_t height = c.valid ? std::min(std::max<int64_t>(c.valid[2 * b], 1), c.height) : c.height;
      const int64_t width = c.valid ? std::min(std::max<int64_t>(c.valid[2 * b + 1], 1), c.width) : c.width;
      of_image.push_back(&all.try_emplace({height, width}, c, height, width).first->second);
    }
  }
};

class Scratch {  // memory of one thread, taken until `reset`
 public:
  vf* take(size_t vectors) {
    if (used + vectors > size) {
      size = std::max(2 * size, vectors);
      chunks.emplace_back(new vf[size]);
      used = 0;
    }
#ifdef POISON  // of tests: what is read before it is written becomes NaN
    std::fill_n(chunks.back().get() + used, vectors, splat(NAN));
#endif
    used += vectors;
    return chunks.back().get() + used - vectors;
  }
  void reset() {
    if (chunks.size() > 1) chunks.erase(chunks.begin(), chunks.end() - 1);
    used = 0;
  }

 private:
  std::vector<std::unique_ptr<vf[]>> chunks;  // only the last has room left
  size_t size = 0, used = 0;
};
template <class T>
T* take(Scratch& scratch, size_t count) {
  return (T*)scratch.take((count * sizeof(T) + sizeof(vf) - 1) / sizeof(vf));
}
template <class T>
T* zeros(Scratch& scratch, size_t count) {
  T* result = take<T>(scratch, count);
  std::fill_n(result, count, T{});
  return result;
}

// Calls task(i, scratch) for i in [0, tasks), in any order, on several threads where that is worth it.
template <class F>
void run(const Call& c, int64_t tasks, F task) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    try {
      Scratch scratch;
      for (int64_t i; (i = next++) < tasks;) task(i, scratch);
    } catch (const std::bad_alloc&) { failed = true; }
  };
  const int64_t threads = std::min({c.threads, tasks, c.batch * c.tokens() * c.channels / SHARE});
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: those that run do all tasks
  }
  work();
  for (auto& thread : others) thread.join();
  if (failed) throw std::bad_alloc();
}

}  // namespace
