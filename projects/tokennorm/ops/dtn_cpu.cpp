// Dynamic Token Normalization on a CPU: Algorithm 1 of the paper, forward and backward. `dtn_cpu.py` compiles and calls it.
//
// Letters: B images, H x W grid of tokens, C channels, N heads, T tokens, K taps of a filter. A cell is a window of
// pool x pool tokens, the last of which may be partial; with pool 1 it is a token.
//
// P of Eq. 6 is a filter along x, a filter along y, and a division by the sum of the weights that stay on the grid. The
// channels are processed in blocks of one vector; a weight is a vector too, so that heads may share a block. A task is
// one image, one strip of its rows and one group of blocks. Inside a task the filters run over tiles of columns. Rows
// that the filter along y still needs are kept in a ring, which stays in the cache. The division into tasks depends on
// the shapes only, and sums are added in a fixed order: the result does not depend on the number of threads.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define FORCED __attribute__((always_inline))  // of a lambda
#define UNROLL _Pragma("GCC unroll 16")

namespace {

#if defined(__AVX512F__)
constexpr int V = 16;  // float32 lanes of a vector
#elif defined(__AVX__)
constexpr int V = 8;
#else
constexpr int V = 4;
#endif
constexpr int R = 4;             // results that a filter computes at a time: rows along y, columns along x
constexpr int GROUP = 4;         // blocks of a task
constexpr int FORWARD_TILE = 32;   // columns
constexpr int BACKWARD_TILE = 96;
constexpr int STRIP = 64;        // rows of cells, at least, where an image is cut into strips
constexpr int TASKS = 8;         // images are cut into strips until there are that many tasks
constexpr int CHUNK = 32;        // rows of tokens of a task that needs no filter
constexpr double LOWEST = -19.9;  // exp of it is 2e-9 of a token's own weight: float32 resolves 6e-8
constexpr double HIGHEST = 20;   // sums of weights up to exp of it, squared, stay far inside float32

typedef float vf __attribute__((vector_size(4 * V)));
typedef float vf_unaligned __attribute__((vector_size(4 * V), aligned(4)));
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_unaligned __attribute__((vector_size(16), aligned(4)));
typedef uint32_t vu __attribute__((vector_size(4 * V)));
typedef uint16_t vh __attribute__((vector_size(2 * V)));
typedef uint16_t vh_unaligned __attribute__((vector_size(2 * V), aligned(2)));

struct Half { uint16_t bits; };
struct BFloat { uint16_t bits; };
struct Moments { vf first, second; };  // of x and x * x, or their gradients

INLINE vf splat(float a) { return vf{} + a; }
INLINE vf select(vu mask, vf a, vf b) { return (vf)((mask & (vu)a) | (~mask & (vu)b)); }

// ---- Reading and writing n <= V elements as float32

INLINE vf load_all(const float* p) { return *(const vf_unaligned*)p; }
INLINE vf load_all(const BFloat* p) { return (vf)(__builtin_convertvector(*(const vh_unaligned*)p, vu) << 16); }
INLINE vf load_all(const Half* p) {
  const vu bits = __builtin_convertvector(*(const vh_unaligned*)p, vu), size = (bits & 0x7fff) << 13;
  const vu finite = (vu)(size < vu{} + (0x7c00u << 13));
  const vf value = select(finite, (vf)size * 0x1p112f, (vf)(size | 0x7f800000u));
  return (vf)((vu)value | (bits & 0x8000) << 16);
}
INLINE void store_all(float* p, vf a) { *(vf_unaligned*)p = a; }
INLINE void store_all(BFloat* p, vf a) {  // rounds to nearest, ties to even
  const vu bits = (vu)a, nan = (vu)(a != a);
  const vu rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  *(vh_unaligned*)p = __builtin_convertvector((nan & 0x7fc0) | (~nan & rounded), vh);
}
INLINE void store_all(Half* p, vf a) {  // the same
  const vu bits = (vu)a & 0x7fffffff, nan = (vu)(a != a);
  const vu normal = (bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13;
  const vu tiny = (vu)((vf)bits + 0.5f) - 0x3f000000;  // the sum's last digit is 2^-24, a subnormal's
  const vu is_tiny = (vu)((vf)bits < splat(0x1p-14f)), is_huge = (vu)((vf)bits >= splat(65520.0f));
  vu half = (is_tiny & tiny) | (~is_tiny & normal);
  half = (is_huge & 0x7c00) | (~is_huge & half);
  half = (nan & 0x7e00) | (~nan & half);
  *(vh_unaligned*)p = __builtin_convertvector(half | ((vu)a >> 16 & 0x8000), vh);
}
template <class T> __attribute__((noinline, cold)) vf load_tail(const T* p, int n) {
  T a[V] = {};
  for (int i = 0; i < n; ++i) a[i] = p[i];
  return load_all(a);
}
template <class T> __attribute__((noinline, cold)) void store_tail(T* p, vf value, int n) {
  T a[V];
  store_all(a, value);
  for (int i = 0; i < n; ++i) p[i] = a[i];
}
template <class T> INLINE vf load(const T* p, int n) {
  return __builtin_expect(n == V, 1) ? load_all(p) : load_tail(p, n);
}
template <class T> INLINE void store(T* p, vf a, int n) {
  if (__builtin_expect(n == V, 1)) store_all(p, a);
  else store_tail(p, a, n);
}

// ---- Arithmetic on vectors

INLINE v4 fold(vf a) {  // sums of every fourth lane
  v4 part[V / 4], sum{};
  std::memcpy(part, &a, sizeof a);
  UNROLL for (int i = 0; i < V / 4; ++i) sum += part[i];
  return sum;
}
INLINE float sum_lanes(vf a) {
  const v4 s = fold(a);
  return (s[0] + s[1]) + (s[2] + s[3]);
}
INLINE vf rsqrt(vf a) {
#if defined(__AVX512F__)
  const vf r = (vf)_mm512_rsqrt14_ps((__m512)a);
  return r * (1.5f - 0.5f * a * r * r);
#else
  vf r;
  UNROLL for (int i = 0; i < V; ++i) r[i] = 1.0f / std::sqrt(a[i]);
  return r;
#endif
}
INLINE vf rounded(vf a) {  // keeps the compiler from merging the product with a sum, which would round once less
#if defined(__x86_64__)
  asm("" : "+x"(a));
#else
  asm("" : "+m"(a));
#endif
  return a;
}

// ---- What one call is given. `_Call` in dtn_cpu.py lists the same fields.

struct Call {
  int64_t batch, height, width, channels, heads, pool, dtype, threads;
  double eps;
  const void* x;                                           // (B, H, W, C) in dtype: 0 float32, 1 bfloat16, 2 float16
  const float *weight, *bias, *mean_logit, *var_logit, *position;  // (C), (C), (N) or null, (N), (N, 3)
  const int64_t* valid;                                    // (B, 2) or null
  float *mean, *var, *shift;                               // the tokens' own, (B, H, W), and the channels' (B, C)
  void* y;                                                 // (B, H, W, C) in dtype
  const void* grad_y;                                      // the same
  float *grad_tokens, *token_sums;                         // work space: (B, H, W, C), (B, H, W, groups, 8)
  void* grad_x;                                            // (B, H, W, C) in dtype, may be grad_tokens
  float *grad_weight, *grad_bias, *grad_mean_logit, *grad_var_logit, *grad_position;

  int64_t blocks() const { return (channels + V - 1) / V; }
  int64_t groups() const { return (blocks() + GROUP - 1) / GROUP; }
  int64_t tokens() const { return height * width; }
  int64_t chunks() const { return (height + CHUNK - 1) / CHUNK; }
  int64_t strips() const {
    const int64_t rows = (height + pool - 1) / pool, tasks = batch * groups();
    return std::max<int64_t>(1, std::min((TASKS + tasks - 1) / tasks, rows / STRIP));
  }
};

// One axis of Eq. 6 for one block: weights exp(a1 d^2 + a d) of the offsets d in [low, high].
struct Axis {
  int low = 0, high = 0, taps = 1;
  std::vector<vf> weight, reversed, scale;  // (K), (K), (cells): 1 / the sum of the weights that stay on the grid

  Axis(const float* position, int linear, int first, int lanes, int head_dim, int size) {
    for (int head = first / head_dim; head <= (first + lanes - 1) / head_dim; ++head)
      for (int d = 1; d < size; ++d) {
        const double square = (double)position[3 * head] * d * d, shift = (double)position[3 * head + linear] * d;
        if (square + shift > LOWEST) high = std::max(high, d);
        if (square - shift > LOWEST) low = std::min(low, -d);
      }
    taps = high - low + 1;
    weight.assign(taps, vf{});
    for (int lane = 0; lane < lanes; ++lane) {
      const int head = (first + lane) / head_dim;
      const bool same_head = lane && (first + lane - 1) / head_dim == head;
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
  Axis y, x;
  vf weight, bias, mean_own, var_own;  // the last two are lambda
};

struct Grid {  // of images of one size; cells: rows x columns
  int height, width, rows, columns;
  std::vector<Block> blocks;

  Grid(const Call& c, int height, int width)
      : height(height), width(width), rows((height + c.pool - 1) / c.pool), columns((width + c.pool - 1) / c.pool) {
    const int head_dim = c.channels / c.heads;
    for (int first = 0; first < c.channels; first += V) {
      const int lanes = std::min<int64_t>(V, c.channels - first);
      vf mean_own = splat(1), var_own = splat(1);
      for (int i = 0; i < lanes; ++i) {
        const int head = (first + i) / head_dim;
        if (c.mean_logit) mean_own[i] = 1 / (1 + std::exp(-c.mean_logit[head]));
        var_own[i] = 1 / (1 + std::exp(-c.var_logit[head]));
      }
      blocks.push_back({first, lanes, Axis(c.position, 2, first, lanes, head_dim, rows),
                        Axis(c.position, 1, first, lanes, head_dim, columns), load(c.weight + first, lanes),
                        load(c.bias + first, lanes), mean_own, var_own});
    }
  }
};

struct Grids {  // one for each size of an image in the batch
  std::vector<std::unique_ptr<Grid>> all;
  std::vector<const Grid*> of_image;

  explicit Grids(const Call& c) {
    for (int64_t b = 0; b < c.batch; ++b) {
      int64_t height = c.height, width = c.width;
      if (c.valid) {
        height = std::min(std::max<int64_t>(c.valid[2 * b], 1), height);
        width = std::min(std::max<int64_t>(c.valid[2 * b + 1], 1), width);
      }
      const Grid* grid = nullptr;
      for (const auto& g : all) if (g->height == height && g->width == width) grid = g.get();
      if (!grid) {
        all.push_back(std::make_unique<Grid>(c, height, width));
        grid = all.back().get();
      }
      of_image.push_back(grid);
    }
  }
};

// ---- Memory and threads

class Scratch {  // of one thread; `take` gives what fits into the last `reset`
 public:
  ~Scratch() { std::free(memory); }
  void reset(size_t vectors) {
    used = 0;
    if (vectors <= size) return;
    std::free(memory);
    size = 0;
    memory = (vf*)std::aligned_alloc(64, (vectors * sizeof(vf) + 63) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    size = vectors;
  }
  template <class T> T* take(size_t count) {
    T* p = (T*)(memory + used);
    used += (count * sizeof(T) + sizeof(vf) - 1) / sizeof(vf);
    return p;
  }

 private:
  vf* memory = nullptr;
  size_t size = 0, used = 0;
};

template <class F> void run(const Call& c, int64_t tasks, F task) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    try {
      Scratch scratch;
      for (int64_t i; (i = next++) < tasks;) task(i, scratch);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  };
  const int64_t worth = c.batch * c.tokens() * c.channels / 32768;  // starting a thread takes as long as that many elements
  const int64_t threads = std::min({c.threads, tasks, worth + 1});
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: those that run do all tasks
  }
  work();
  for (auto& thread : others) thread.join();
  if (failed) throw std::bad_alloc();
}

// ---- One image and block

struct Ring {  // rows of cells, of which the last `span` are kept
  int span, width;
  Moments *cells, *zeros;
  const Moments** rows;  // what `window` returns

  static size_t vectors(int taps, int rows, int width) {
    const int all = taps + R - 1;
    return (size_t)(2 * std::min(all, rows) + 2) * (width + R) + (all + 1) * sizeof(void*) / sizeof(vf) + 2;
  }
  Ring(Scratch& scratch, int taps, int rows, int width) : span(std::min(taps + R - 1, rows)), width(width + R) {
    cells = scratch.take<Moments>((size_t)span * this->width);
    zeros = scratch.take<Moments>(this->width);
    std::fill_n(zeros, this->width, Moments{});
    this->rows = scratch.take<const Moments*>(taps + R - 1);
  }
  Moments* row(int y) { return cells + (size_t)(y % span) * width; }
  // Rows [from, from + count), zeros where they are not in [begin, end).
  const Moments* const* window(int from, int count, int begin, int end) {
    for (int j = 0; j < count; ++j) rows[j] = from + j >= begin && from + j < end ? row(from + j) : zeros;
    return rows;
  }
};

struct Taps { int from, to; };  // those that reach [begin, end) from at least one of R neighbours, the first being `at`
INLINE Taps reaching(int at, int low, int taps, int begin, int end) {
  return {std::max(0, begin - at - low - R + 1), std::min(taps, end - at - low)};
}

template <class At> INLINE void filter(At at, const vf* weight, Taps taps, Moments (&result)[R]) {
  vf first[R] = {}, second[R] = {};
  for (int d = taps.from; d < taps.to; ++d) {
    const vf w = weight[d];
    UNROLL for (int o = 0; o < R; ++o) {
      const Moments& in = at(d + o);
      first[o] += w * in.first;
      second[o] += w * in.second;
    }
  }
  UNROLL for (int o = 0; o < R; ++o) result[o] = {first[o], second[o]};
}

struct Sums {  // gradients of one block over a task, without the factors that are the same for all tokens
  vf weight{}, bias{}, mean_own{}, var_own{};
  std::vector<vf> y_taps, x_taps, y_dots, x_dots;  // (K), (K), and gradient times result of (rows), (columns)
};

template <class T> struct Part {
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
      : c(c), grid(grid), block(grid.blocks[index]), image(image), offset(image * c.tokens() * c.channels + block.first),
        group(index / GROUP), number(index % GROUP), x((const T*)c.x + offset), grad_y((const T*)c.grad_y + offset),
        y((T*)c.y + offset), grad(c.grad_tokens + offset),
        shift(load(c.shift + image * c.channels + block.first, block.lanes)) {}

  // Calls f(index of the token in the image) for the tokens of a cell; returns how many there are.
  template <class F> INLINE int for_tokens(int row, int column, F f) const {
    if (c.pool == 1) {
      f((int64_t)row * c.width + column);
      return 1;
    }
    const int pool = c.pool, bottom = std::min((row + 1) * pool, grid.height), right = std::min((column + 1) * pool, grid.width);
    for (int i = row * pool; i < bottom; ++i)
      for (int j = column * pool; j < right; ++j) f((int64_t)i * c.width + j);
    return (bottom - row * pool) * (right - column * pool);
  }

  // Cells [from, to) of a row: means less the shift, and their squares. Zero off the grid.
  void read_cells(int row, int from, int to, Moments* line) const {
    for (int i = from; i < to; ++i, ++line) {
      vf mean{};
      if (i >= 0 && i < grid.columns) {
        const int count = for_tokens(row, i, [&](int64_t t) FORCED { mean += load(x + t * c.channels, block.lanes) - shift; });
        if (count > 1) mean /= splat(count);
      }
      *line = {mean, mean * mean};
    }
  }

  // The filter along x of cells [left, right) of a row.
  void filter_row(int row, int left, int right, Moments* line, Moments* result) const {
    const Axis& axis = block.x;
    read_cells(row, left + axis.low, right + R - 1 + axis.high, line);
    for (int i = 0; i < right - left; i += R) {
      Moments out[R];
      filter([&](int j) FORCED -> const Moments& { return line[i + j]; }, axis.weight.data(),
             reaching(left + i, axis.low, axis.taps, 0, grid.columns), out);
      std::copy_n(out, R, result + i);
    }
  }

  // P's two results of a cell, from the filters': mean of x - shift, and variance.
  INLINE Moments statistics(const Moments& filtered, vf scale) const {
    const vf mean = filtered.first * scale;
    const vf var = rounded(filtered.second * scale) - rounded(mean * mean);
    return {mean, var > 0 ? var : vf{}};
  }

  void forward(int top, int bottom, int left, int right, Scratch& scratch) const {
    const Axis &along_y = block.y, &along_x = block.x;
    const int width = right - left, count = along_y.taps + R - 1;
    scratch.reset(Ring::vectors(along_y.taps, grid.rows, width) + 2 * (width + along_x.taps + R));
    Ring ring(scratch, along_y.taps, grid.rows, width);
    Moments* line = scratch.take<Moments>(width + along_x.taps + R);
    const vf mean_own = block.mean_own, var_own = block.var_own, weight = block.weight, bias = block.bias;
    const vf eps = splat(c.eps);
    const float *means = c.mean + image * c.tokens(), *vars = c.var + image * c.tokens();
    int done = std::max(0, top + along_y.low);
    for (int row = top; row < bottom; row += R) {
      for (; done < std::min(grid.rows, row + R + along_y.high); ++done) filter_row(done, left, right, line, ring.row(done));
      const Moments* const* rows = ring.window(row + along_y.low, count, 0, grid.rows);
      const Taps taps = reaching(row, along_y.low, along_y.taps, 0, grid.rows);
      const int rows_left = std::min(R, bottom - row);
      for (int i = 0; i < width; ++i) {
        Moments filtered[R];
        filter([&](int j) FORCED -> const Moments& { return rows[j][i]; }, along_y.weight.data(), taps, filtered);
        for (int o = 0; o < rows_left; ++o) {
          const Moments s = statistics(filtered[o], along_x.scale[left + i] * along_y.scale[row + o]);
          const vf mean = (1 - mean_own) * (s.first + shift), var = (1 - var_own) * s.second + eps;
          for_tokens(row + o, left + i, [&](int64_t t) FORCED {
            const vf centred = load(x + t * c.channels, block.lanes) - (mean_own * means[t] + mean);
            store(y + t * c.channels, centred * (rsqrt(var_own * vars[t] + var) * weight) + bias, block.lanes);
          });
        }
      }
    }
  }

  // Gradients of one cell's two filtered moments, e and f of its tokens being
  //   e = grad_y r,  so that d mean = -e weight,  and  f = e (x - mean) r^2,  so that d var = -f weight / 2.
  // Where the cell is the task's own: sums, the tokens' direct gradient e weight, and what their own statistics need.
  INLINE Moments cell_gradient(int row, int column, const Moments& filtered, bool own, Sums& sums) const {
    const vf scale = block.x.scale[column] * block.y.scale[row];
    const Moments s = statistics(filtered, scale);
    const vf mean_own = block.mean_own, var_own = block.var_own, weight = block.weight;
    const vf mean = (1 - mean_own) * (s.first + shift), var = (1 - var_own) * s.second + splat(c.eps);
    const float *means = c.mean + image * c.tokens(), *vars = c.var + image * c.tokens();
    vf e_sum{}, f_sum{};
    for_tokens(row, column, [&](int64_t t) FORCED {
      const vf r = rsqrt(var_own * vars[t] + var), g = load(grad_y + t * c.channels, block.lanes);
      const vf centred = load(x + t * c.channels, block.lanes) - (mean_own * means[t] + mean);
      const vf e = g * r, product = e * centred, f = product * (r * r);
      e_sum += e;
      f_sum += f;
      if (!own) return;
      sums.bias += g;
      sums.weight += product;
      sums.mean_own += e * (s.first + (shift - means[t]));
      sums.var_own += f * (s.second - vars[t]);
      store(grad + t * c.channels, e * weight, block.lanes);
      const v4 slope = fold(f * var_own * weight), level = fold(e * mean_own * weight);
      float* token = c.token_sums + ((image * c.tokens() + t) * c.groups() + group) * 8;
      const v4 slope_before = number ? (v4) * (v4_unaligned*)token : v4{};
      const v4 level_before = number ? (v4) * (v4_unaligned*)(token + 4) : v4{};
      *(v4_unaligned*)token = slope_before + slope;
      *(v4_unaligned*)(token + 4) = level_before + level;
    });
    const vf second = f_sum * weight * (1 - var_own) * -0.5f, through_mean = -e_sum * weight * (1 - mean_own);
    const vf cross = second * s.first;
    if (own) {
      const vf dot = (through_mean - cross) * s.first + second * s.second;
      sums.y_dots[row] += dot;
      sums.x_dots[column] += dot;
    }
    return {(through_mean - 2.0f * cross) * scale, second * scale};
  }

  // Back along x: `gradients` are those of a row after the filter along y, from column left - high on. Adds to the
  // tokens' gradients and to the taps'.
  void back_along_x(int row, int left, int right, const Moments* gradients, Moments* line, vf* taps) const {
    const Axis& axis = block.x;
    read_cells(row, left, right, line);
    std::fill_n(line + (right - left), R, Moments{});
    for (int i = 0; i < right - left; i += R) {
      vf first[R] = {}, second[R] = {};
      const Taps reach = reaching(left + i, -axis.high, axis.taps, 0, grid.columns);
      for (int j = reach.from; j < reach.to; ++j) {
        const vf w = axis.reversed[j];
        vf a = taps[j], b{};
        UNROLL for (int o = 0; o < R; ++o) {
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
        if (c.pool > 1) gradient /= splat(for_tokens(row, left + i + o, [](int64_t) FORCED {}));
        for_tokens(row, left + i + o, [&](int64_t t) FORCED {
          float* p = grad + t * c.channels;
          store(p, load(p, block.lanes) + gradient, block.lanes);
        });
      }
    }
  }

  void backward(int top, int bottom, int left, int right, Sums& sums, Scratch& scratch) const {
    const Axis &along_y = block.y, &along_x = block.x;
    // Cells whose statistics the tile's own cells enter.
    const int begin = std::max(0, top - along_y.high), end = std::min(grid.rows, bottom - along_y.low);
    const int from = std::max(0, left - along_x.high), to = std::min(grid.columns, right - along_x.low);
    const int width = to - from, count = along_y.taps + R - 1, line_width = width + along_x.taps + 2 * R;
    scratch.reset(2 * Ring::vectors(along_y.taps, grid.rows, width) + 2 * (R + 1) * line_width + along_y.taps + along_x.taps);
    Ring moments(scratch, along_y.taps, grid.rows, width), gradients(scratch, along_y.taps, grid.rows, width);
    Moments* line = scratch.take<Moments>(line_width);
    Moments* after_y = scratch.take<Moments>(R * line_width);  // R rows of gradients, zero off the grid
    vf *y_taps = scratch.take<vf>(along_y.taps), *x_taps = scratch.take<vf>(along_x.taps);
    std::fill_n(after_y, R * line_width, Moments{});
    int done = std::max(0, begin + along_y.low), next = top;
    for (int row = begin; next < bottom; row += R) {
      for (; done < std::min(grid.rows, row + R + along_y.high); ++done) filter_row(done, from, to, line, moments.row(done));
      const Moments* const* rows = moments.window(row + along_y.low, count, 0, grid.rows);
      Taps taps = reaching(row, along_y.low, along_y.taps, 0, grid.rows);
      const int rows_left = std::min(R, end - row);
      std::fill_n(y_taps, along_y.taps, vf{});
      for (int i = 0; i < width; ++i) {
        Moments filtered[R], own[R] = {};
        filter([&](int j) FORCED -> const Moments& { return rows[j][i]; }, along_y.weight.data(), taps, filtered);
        const bool own_column = from + i >= left && from + i < right;
        for (int o = 0; o < rows_left; ++o) {
          const bool is_own = own_column && row + o >= top && row + o < bottom;
          const Moments gradient = cell_gradient(row + o, from + i, filtered[o], is_own, sums);
          gradients.row(row + o)[i] = gradient;
          if (is_own) own[o] = gradient;
        }
        if (!own_column) continue;
        for (int d = taps.from; d < taps.to; ++d) {
          vf a = y_taps[d], b{};
          UNROLL for (int o = 0; o < R; ++o) {
            a += own[o].first * rows[d + o][i].first;
            b += own[o].second * rows[d + o][i].second;
          }
          y_taps[d] = a + b;
        }
      }
      for (int d = 0; d < along_y.taps; ++d) sums.y_taps[d] += y_taps[d];

      // Rows of the tile whose gradients are complete.
      const int ready = row + R >= end ? bottom : std::min(bottom, row + R + along_y.low);
      while (next < ready) {
        const int rows_ready = std::min(R, ready - next);
        rows = gradients.window(next - along_y.high, count, begin, end);
        taps = reaching(next, -along_y.high, along_y.taps, begin, end);
        for (int i = 0; i < width; ++i) {
          Moments filtered[R];
          filter([&](int j) FORCED -> const Moments& { return rows[j][i]; }, along_y.reversed.data(), taps, filtered);
          for (int o = 0; o < rows_ready; ++o) after_y[o * line_width + i + from - (left - along_x.high)] = filtered[o];
        }
        std::fill_n(x_taps, along_x.taps, vf{});
        for (int o = 0; o < rows_ready; ++o) back_along_x(next + o, left, right, after_y + o * line_width, line, x_taps);
        for (int d = 0; d < along_x.taps; ++d) sums.x_taps[along_x.taps - 1 - d] += x_taps[d];
        next += rows_ready;
      }
    }
  }
};

// Adds the gradients of an axis' a1 and linear factor, through its weights and through their sums.
void add_axis_gradient(const Axis& axis, const std::vector<vf>& taps, const std::vector<vf>& dots, vf& square, vf& linear) {
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

// ---- Whole tokens

// Means and variances of Q neighbouring tokens; adds what they differ from `first`, the image's first token, to `sums`.
template <int Q, class T>
INLINE void token_statistics(const Call& c, const T* x, const T* first, vf* sums, float* mean, float* var) {
  const int channels = c.channels, blocks = c.blocks();
  const float share = 1.0f / channels;
  vf sum[Q] = {}, rest[Q] = {}, square[Q] = {};
  for (int i = 0; i < blocks; ++i) {
    const int lanes = std::min(V, channels - i * V);
    const vf level = load(first + i * V, lanes);
    vf all{};
    UNROLL for (int o = 0; o < Q; ++o) {
      const vf value = load(x + (int64_t)o * channels + i * V, lanes);
      sum[o] += value;
      all += value - level;
    }
    if (sums) sums[i] += all;
  }
  UNROLL for (int o = 0; o < Q; ++o) mean[o] = sum_lanes(sum[o]) * share;
  for (int i = 0; i < blocks; ++i) {
    const int lanes = std::min(V, channels - i * V);
    UNROLL for (int o = 0; o < Q; ++o) {
      vf centred = load(x + (int64_t)o * channels + i * V, lanes) - mean[o];
      if (lanes < V) for (int j = lanes; j < V; ++j) centred[j] = 0;
      rest[o] += centred;
      square[o] += centred * centred;
    }
  }
  UNROLL for (int o = 0; o < Q; ++o) {  // corrects the mean by what rounding left
    const float left = sum_lanes(rest[o]) * share;
    mean[o] += left;
    var[o] = std::max(0.0f, sum_lanes(square[o]) * share - left * left);
  }
}

// LayerNorm of one token, for tokens outside `valid`.
template <class T> void layer_norm(const Call& c, const T* x, float mean, float var, T* y) {
  const float r = 1 / std::sqrt(var + (float)c.eps);
  for (int i = 0; i < c.channels; i += V) {
    const int lanes = std::min<int64_t>(V, c.channels - i);
    store(y + i, (load(x + i, lanes) - mean) * r * load(c.weight + i, lanes) + load(c.bias + i, lanes), lanes);
  }
}
template <class T>
void layer_norm_backward(const Call& c, const T* x, const T* grad_y, float mean, float var, T* grad_x, float* grad_weight, float* grad_bias) {
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
template <class F> void for_strips(const Call& c, const Grids& grids, F f) {
  const int64_t strips = c.strips(), groups = c.groups();
  run(c, c.batch * strips * groups, [&](int64_t task, Scratch& scratch) {
    const int64_t image = task / (strips * groups), strip = task / groups % strips, group = task % groups;
    const int64_t rows = grids.of_image[image]->rows;
    f(image, strip, (int)(strip * rows / strips), (int)((strip + 1) * rows / strips), group, scratch);
  });
}
// Calls f(image, chunk, first row, last row + 1) for all rows of tokens, in any order.
template <class F> void for_chunks(const Call& c, F f) {
  run(c, c.batch * c.chunks(), [&](int64_t task, Scratch&) {
    const int64_t image = task / c.chunks(), chunk = task % c.chunks();
    f(image, chunk, chunk * CHUNK, std::min<int64_t>(c.height, (chunk + 1) * CHUNK));
  });
}
// Calls f(left, right) for tiles of like size of at most `widest` columns, or one where the filter is wider than a tile.
template <class F> void for_tiles(int columns, int widest, int taps, F f) {
  const int tiles = taps > widest ? 1 : (columns + widest - 1) / widest;
  for (int i = 0; i < tiles; ++i) f(i * columns / tiles, (i + 1) * columns / tiles);
}

template <class T> void forward(const Call& c) {
  const Grids grids(c);
  std::vector<vf> sums(c.batch * c.chunks() * c.blocks(), vf{});
  for_chunks(c, [&](int64_t image, int64_t chunk, int64_t top, int64_t bottom) {
    const Grid& grid = *grids.of_image[image];
    const T* first = (const T*)c.x + image * c.tokens() * c.channels;
    vf* chunk_sums = &sums[(image * c.chunks() + chunk) * c.blocks()];
    for (int64_t row = top; row < bottom; ++row) {
      const int64_t inside = row < grid.height ? grid.width : 0, t0 = image * c.tokens() + row * c.width;
      for (int64_t i = 0, step; i < c.width; i += step) {
        const T* x = (const T*)c.x + (t0 + i) * c.channels;
        step = i + 4 <= inside ? 4 : 1;
        if (step == 4) token_statistics<4>(c, x, first, chunk_sums, c.mean + t0 + i, c.var + t0 + i);
        else token_statistics<1>(c, x, first, i < inside ? chunk_sums : nullptr, c.mean + t0 + i, c.var + t0 + i);
        if (i >= inside) layer_norm(c, x, c.mean[t0 + i], c.var[t0 + i], (T*)c.y + (t0 + i) * c.channels);
      }
    }
  });
  for (int64_t image = 0; image < c.batch; ++image)
    for (const Block& block : grids.of_image[image]->blocks) {
      vf sum{};
      for (int64_t chunk = 0; chunk < c.chunks(); ++chunk) sum += sums[(image * c.chunks() + chunk) * c.blocks() + block.first / V];
      const Grid& grid = *grids.of_image[image];
      const vf first = load((const T*)c.x + image * c.tokens() * c.channels + block.first, block.lanes);
      store(c.shift + image * c.channels + block.first, first + sum / splat((float)grid.height * grid.width), block.lanes);
    }
  for_strips(c, grids, [&](int64_t image, int64_t, int top, int bottom, int64_t group, Scratch& scratch) {
    const Grid& grid = *grids.of_image[image];
    const int64_t first = group * GROUP, last = std::min(c.blocks(), first + GROUP);
    for_tiles(grid.columns, FORWARD_TILE, grid.blocks[first].x.taps, [&](int left, int right) {
      for (int64_t i = first; i < last; ++i) Part<T>(c, grid, image, i).forward(top, bottom, left, right, scratch);
    });
  });
}

constexpr int WEIGHT = 0, BIAS = 1, MEAN = 2, VAR = 3, SQUARE = 4, X = 5, Y = 6, PARAMETERS = 7;

template <class T> void backward(const Call& c) {
  const Grids grids(c);
  const int64_t strips = c.strips(), blocks = c.blocks();
  std::vector<vf> partial(c.batch * strips * blocks * PARAMETERS);  // gradients of one task and block
  for_strips(c, grids, [&](int64_t image, int64_t strip, int top, int bottom, int64_t group, Scratch& scratch) {
    const Grid& grid = *grids.of_image[image];
    const int64_t first = group * GROUP, last = std::min(blocks, first + GROUP);
    Sums sums[GROUP];
    for (int64_t i = first; i < last; ++i) {
      Sums& s = sums[i - first];
      s.y_taps.assign(grid.blocks[i].y.taps, vf{});
      s.x_taps.assign(grid.blocks[i].x.taps, vf{});
      s.y_dots.assign(grid.rows, vf{});
      s.x_dots.assign(grid.columns, vf{});
    }
    for_tiles(grid.columns, BACKWARD_TILE, grid.blocks[first].x.taps, [&](int left, int right) {
      for (int64_t i = first; i < last; ++i) Part<T>(c, grid, image, i).backward(top, bottom, left, right, sums[i - first], scratch);
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
        const T* x = (const T*)c.x + t * c.channels;
        T* grad_x = (T*)c.grad_x + t * c.channels;
        if (row >= grid.height || i >= grid.width) {
          float* sums = &outside[2 * (image * c.chunks() + chunk) * c.channels];
          layer_norm_backward(c, x, (const T*)c.grad_y + t * c.channels, c.mean[t], c.var[t], grad_x, sums, sums + c.channels);
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
        const float* grad = c.grad_tokens + t * c.channels;
        for (int64_t k = 0; k < c.channels; k += V) {
          const int lanes = std::min<int64_t>(V, c.channels - k);
          store(grad_x + k, load(grad + k, lanes) - ((load(x + k, lanes) - c.mean[t]) * slope + level), lanes);
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
    const auto slope = [](double logit) { const double s = 1 / (1 + std::exp(-logit)); return s * (1 - s); };
    if (c.mean_logit) c.grad_mean_logit[head] = mean * slope(c.mean_logit[head]);
    c.grad_var_logit[head] = var * slope(c.var_logit[head]);
    for (int p = 0; p < 3; ++p) c.grad_position[3 * head + p] = position[p];
  }
}

template <class F> int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // namespace

extern "C" {

// float32 values of `token_sums` for a token.
int64_t dtn_token_sums(int64_t channels) {
  Call c{};
  c.channels = channels;
  return 8 * c.groups();
}

// Whether weights of these positions (N, 3) are safe on an axis of `size` cells: sums without overflow.
int dtn_takes(const float* position, int64_t heads, int64_t size) {
  for (int64_t head = 0; head < heads; ++head) {
    const double a1 = position[3 * head], last = size - 1;
    const double a = std::max(std::fabs(position[3 * head + 1]), std::fabs(position[3 * head + 2]));
    if (!std::isfinite(a1) || !std::isfinite(a)) return 0;
    const double peak = a1 < 0 ? std::min(a / (-2 * a1), last) : last;
    if (a1 * peak * peak + a * peak > HIGHEST) return 0;
  }
  return 1;
}

// 0, or 1 where memory ran out.
int dtn_forward(const Call* c) {
  return guarded([&] { c->dtype == 0 ? forward<float>(*c) : c->dtype == 1 ? forward<BFloat>(*c) : forward<Half>(*c); });
}
int dtn_backward(const Call* c) {
  return guarded([&] { c->dtype == 0 ? backward<float>(*c) : c->dtype == 1 ? backward<BFloat>(*c) : backward<Half>(*c); });
}

}  // extern "C"
