// Vectors of float32 lanes, as wide as the processor's, read from and written to float32, bfloat16 and float16.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
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
typedef float vf __attribute__((vector_size(4 * V)));
typedef float vf_unaligned __attribute__((vector_size(4 * V), aligned(4)));
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_unaligned __attribute__((vector_size(16), aligned(4)));
typedef uint32_t vu __attribute__((vector_size(4 * V)));
typedef uint16_t vh __attribute__((vector_size(2 * V)));
typedef uint16_t vh_unaligned __attribute__((vector_size(2 * V), aligned(2)));

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

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
template <class T>
__attribute__((noinline, cold)) vf load_tail(const T* p, int n) {
  T a[V] = {};
  for (int i = 0; i < n; ++i) a[i] = p[i];
  return load_all(a);
}
template <class T>
__attribute__((noinline, cold)) void store_tail(T* p, vf value, int n) {
  T a[V];
  store_all(a, value);
  for (int i = 0; i < n; ++i) p[i] = a[i];
}
template <class T>
INLINE vf load(const T* p, int n) {
  return __builtin_expect(n == V, 1) ? load_all(p) : load_tail(p, n);
}
template <class T>
INLINE void store(T* p, vf a, int n) {
  if (__builtin_expect(n == V, 1)) store_all(p, a);
  else store_tail(p, a, n);
}

// ---- Arithmetic on vectors

INLINE v4 fold(vf a) {  // sums of every fourth lane
  v4 part[V / 4], sum{};
  std::memcpy(part, &a, sizeof a);
  UNROLL
  for (int i = 0; i < V / 4; ++i) sum += part[i];
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
  UNROLL
  for (int i = 0; i < V; ++i) r[i] = 1.0f / std::sqrt(a[i]);
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

}  // namespace
