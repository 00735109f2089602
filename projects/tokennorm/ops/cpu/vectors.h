// Vectors of float32 lanes, as wide as the processor's.

#pragma once

#include <cmath>
#include <cstring>
#if defined(__AVX__)
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

INLINE vf splat(float a) { return vf{} + a; }

// Reading and writing n <= V elements; the other lanes are zero.
__attribute__((noinline, cold)) vf load_tail(const float* p, int n) {
  vf a{};
  for (int i = 0; i < n; ++i) a[i] = p[i];
  return a;
}
__attribute__((noinline, cold)) void store_tail(float* p, vf a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a[i];
}
INLINE vf load(const float* p, int n) { return __builtin_expect(n == V, 1) ? *(const vf_unaligned*)p : load_tail(p, n); }
INLINE void store(float* p, vf a, int n) {
  if (__builtin_expect(n == V, 1)) *(vf_unaligned*)p = a;
  else store_tail(p, a, n);
}

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
#if defined(__AVX__)
#if defined(__AVX512F__)
  const vf r = (vf)_mm512_rsqrt14_ps((__m512)a);
#else
  const vf r = (vf)_mm256_rsqrt_ps((__m256)a);
#endif
  const vf rest = 1.0f - a * r * r;
  return r + r * rest * (0.5f + 0.375f * rest);  // a step of third order
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
