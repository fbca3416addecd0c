// Matrix-vector kernels for decoding: the hidden activations of one token.
//
//   mglu_decode   sum_i scale_i g(s_i) (t - s_i),  t = W x,  s_i = (M_i * W) x   one read of W
//   glu_decode    g(W_g x) (W_v x)                                             the plain block
//
// Plain C interface, no headers of torch, so that it compiles in seconds. Each instruction set
// has the same loops over the same data; the caller picks one that the CPU has.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define ASSAY_X86 1
#include <immintrin.h>
#else
#define ASSAY_X86 0
#endif

namespace {

enum Isa { kScalar = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Bf16 = 3 };
enum Activation { kSilu = 0, kGelu = 1, kRelu = 2 };
enum Layout { kPlanes = 0, kBytes = 1 };

constexpr int kRows = 64;     // rows a thread takes at a time, and activates together
constexpr int kMaxMasks = 8;  // masks of one pass over a row

#if defined(__GNUC__)
#define INLINE inline __attribute__((always_inline))
#else
#define INLINE inline
#endif

struct bf16 {
  uint16_t bits;
};

inline float to_float(float v) { return v; }
inline float to_float(bf16 v) {
  uint32_t bits = uint32_t(v.bits) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

// Masks [first, first + N) of one row. Planes lie `plane` bytes apart.
struct MaskRow {
  const uint8_t* data;
  int64_t plane;
  int first;
};

inline bool bit(const MaskRow& m, Layout layout, int i, int64_t k) {
  return layout == kPlanes ? (m.data[(m.first + i) * m.plane + (k >> 3)] >> (k & 7)) & 1
                           : (m.data[k] >> (m.first + i)) & 1;
}

// Columns [from, h) of a row, added to sums[0] = t and sums[1 + i] = s_i.
template <int N, Layout L, typename T, typename X>
inline void tail(const T* w, const X* x, const MaskRow& m, int64_t from, int64_t h, float* sums) {
  for (int64_t k = from; k < h; ++k) {
    float v = to_float(w[k]) * to_float(x[k]);
    sums[0] += v;
    for (int i = 0; i < N; ++i) sums[1 + i] += bit(m, L, i, k) ? v : 0.0f;
  }
}

// Columns [from, h) of a gate row and a value row, added to sums[0] and sums[1].
template <typename T, typename X>
inline void plain_tail(const T* g, const T* v, const X* x, int64_t from, int64_t h, float* sums) {
  for (int64_t k = from; k < h; ++k) {
    sums[0] += to_float(g[k]) * to_float(x[k]);
    sums[1] += to_float(v[k]) * to_float(x[k]);
  }
}

INLINE float exp_approx(float x) {  // relative error below 2e-7; branch-free, so it vectorises
  x = std::min(std::max(x, -87.0f), 88.0f);
  float n = std::floor(x * 1.44269504f + 0.5f);
  float r = x - n * 0.693145752f - n * 1.42860677e-6f;
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t bits = (int32_t(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return p * scale;
}

template <Activation A>
INLINE float activate(float x) {
  if (A == kRelu) return x > 0.0f ? x : 0.0f;
  if (A == kSilu) return x / (1.0f + exp_approx(-x));
  float z = std::fabs(x) * 0.70710678f;  // erf by Abramowitz and Stegun 7.1.26, error below 2e-7
  float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  float erf = std::copysign(1.0f - p * t * exp_approx(-z * z), x);
  return 0.5f * x * (1.0f + erf);
}

// out += scale g(gate) value over the rows of one chunk, where value is `other` itself or, with
// `Complement`, what is left of it: other - gate. Inlined into each instruction set below.
template <Activation A, bool Complement>
INLINE void add_terms_of(float* out, const float* other, const float* gate, float scale) {
#pragma omp simd
  for (int r = 0; r < kRows; ++r)
    out[r] += scale * activate<A>(gate[r]) * (Complement ? other[r] - gate[r] : other[r]);
}

template <bool Complement>
INLINE void add_terms_any(int activation, float* out, const float* other, const float* gate,
                          float scale) {
  if (activation == kSilu) add_terms_of<kSilu, Complement>(out, other, gate, scale);
  else if (activation == kGelu) add_terms_of<kGelu, Complement>(out, other, gate, scale);
  else add_terms_of<kRelu, Complement>(out, other, gate, scale);
}

#define ADD_TERMS                                                                               \
  static void add_terms(int activation, float* out, const float* total, const float* gate,     \
                        float scale) {                                                         \
    add_terms_any<true>(activation, out, total, gate, scale);                                  \
  }                                                                                            \
  static void add_product(int activation, float* out, const float* value, const float* gate) { \
    add_terms_any<false>(activation, out, value, gate, 1.0f);                                  \
  }

struct Scalar {
  ADD_TERMS
  static constexpr bool kRawX = false;  // whether it takes tokens in bf16 as they are
  static constexpr int kSplit = 0;      // columns of a block whose bf16 it takes as even and odd
  template <int N, Layout L, typename T>
  static void masked_row(const T* w, const float* x, const MaskRow& m, int64_t h, float* sums) {
    for (int i = 0; i <= N; ++i) sums[i] = 0.0f;
    tail<N, L>(w, x, m, 0, h, sums);
  }
  template <typename T>
  static void two_rows(const T* g, const T* v, const float* x, int64_t h, float* sums) {
    sums[0] = sums[1] = 0.0f;
    plain_tail(g, v, x, 0, h, sums);
  }
};

#if ASSAY_X86

#if defined(__clang__)
#define ASSAY_TARGET_BEGIN(list) \
  _Pragma(ASSAY_STRING(clang attribute push(__attribute__((target(list))), apply_to = function)))
#define ASSAY_TARGET_END _Pragma("clang attribute pop")
#define ASSAY_STRING(...) #__VA_ARGS__
#else
#define ASSAY_STRING(...) #__VA_ARGS__
#define ASSAY_TARGET_BEGIN(list) \
  _Pragma("GCC push_options") _Pragma(ASSAY_STRING(GCC target(list)))
#define ASSAY_TARGET_END _Pragma("GCC pop_options")
#endif

ASSAY_TARGET_BEGIN("avx2,fma")
struct Avx2 {
  ADD_TERMS
  static constexpr bool kRawX = false;
  static constexpr int kSplit = 32;
  struct Pair {
    __m256 first, second;
  };
  // 16 weights: columns 0..7 and 8..15 of fp32, even and odd columns of bf16.
  static inline Pair load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static inline Pair load(const bf16* p) {
    __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    __m256i odd = _mm256_and_si256(both, _mm256_set1_epi32(int(0xffff0000)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)), _mm256_castsi256_ps(odd)};
  }
  static inline float sum(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // blendv reads the sign of each lane only, so a shift brings the wanted bit there.
  template <int N, Layout L, typename T>
  static void masked_row(const T* w, const float* x, const MaskRow& m, int64_t h, float* sums) {
    constexpr bool wide = sizeof(T) == 4;
    constexpr int U = N <= 2 ? 2 : 1;
    const __m256 zero = _mm256_setzero_ps();
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 total[U], gate[N][U];
    for (int u = 0; u < U; ++u) {
      total[u] = zero;
      for (int i = 0; i < N; ++i) gate[i][u] = zero;
    }
    __m256i shifts[4];
    for (int q = 0; q < 4; ++q)
      shifts[q] = _mm256_sub_epi32(_mm256_set1_epi32(31 - (wide ? 8 * q : q / 2 * 16 + q % 2)),
                                   wide ? lane : _mm256_slli_epi32(lane, 1));
    const int64_t end = h / 32 * 32;
    for (int64_t k = 0; k < end; k += 32) {
      __m256i words[N];
      if (L == kPlanes)
        for (int i = 0; i < N; ++i) {
          int32_t word;
          std::memcpy(&word, m.data + (m.first + i) * m.plane + (k >> 3), 4);
          words[i] = _mm256_set1_epi32(word);
        }
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Pair wv = load(w + k + 16 * j);
        const __m256 v[2] = {_mm256_mul_ps(wv.first, _mm256_loadu_ps(x + k + 16 * j)),
                             _mm256_mul_ps(wv.second, _mm256_loadu_ps(x + k + 16 * j + 8))};
        __m256i bytes[2];
        if (L == kBytes) {
          __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(m.data + k + 16 * j));
          bytes[0] = wide ? _mm256_cvtepu8_epi32(some) : _mm256_cvtepu16_epi32(some);
          bytes[1] = wide ? _mm256_cvtepu8_epi32(_mm_srli_si128(some, 8))
                          : _mm256_srli_epi32(bytes[0], 8);
        }
#pragma GCC unroll 2
        for (int p = 0; p < 2; ++p) {
          total[p * (U - 1)] = _mm256_add_ps(total[p * (U - 1)], v[p]);
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i) {
            __m256i sign = L == kPlanes ? _mm256_sllv_epi32(words[i], shifts[2 * j + p])
                                        : _mm256_slli_epi32(bytes[p], 31 - m.first - i);
            __m256& sum_i = gate[i][p * (U - 1)];
            sum_i = _mm256_add_ps(sum_i, _mm256_blendv_ps(zero, v[p], _mm256_castsi256_ps(sign)));
          }
        }
      }
    }
    for (int u = 1; u < U; ++u) {
      total[0] = _mm256_add_ps(total[0], total[u]);
      for (int i = 0; i < N; ++i) gate[i][0] = _mm256_add_ps(gate[i][0], gate[i][u]);
    }
    sums[0] = sum(total[0]);
    for (int i = 0; i < N; ++i) sums[1 + i] = sum(gate[i][0]);
    tail<N, L>(w, x, m, end, h, sums);
  }
  template <typename T>
  static void two_rows(const T* g, const T* v, const float* x, int64_t h, float* sums) {
    __m256 a[4], b[4];
    for (int j = 0; j < 4; ++j) a[j] = b[j] = _mm256_setzero_ps();
    int64_t k = 0;
    for (; k + 32 <= h; k += 32)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Pair gv = load(g + k + 16 * j), vv = load(v + k + 16 * j);
        const __m256 x0 = _mm256_loadu_ps(x + k + 16 * j);
        const __m256 x1 = _mm256_loadu_ps(x + k + 16 * j + 8);
        a[2 * j] = _mm256_fmadd_ps(gv.first, x0, a[2 * j]);
        a[2 * j + 1] = _mm256_fmadd_ps(gv.second, x1, a[2 * j + 1]);
        b[2 * j] = _mm256_fmadd_ps(vv.first, x0, b[2 * j]);
        b[2 * j + 1] = _mm256_fmadd_ps(vv.second, x1, b[2 * j + 1]);
      }
    sums[0] = sum(_mm256_add_ps(_mm256_add_ps(a[0], a[1]), _mm256_add_ps(a[2], a[3])));
    sums[1] = sum(_mm256_add_ps(_mm256_add_ps(b[0], b[1]), _mm256_add_ps(b[2], b[3])));
    plain_tail(g, v, x, k, h, sums);
  }
};
ASSAY_TARGET_END

ASSAY_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
// The masks of 64 columns, one bit each.
template <Layout L>
static inline uint64_t mask64(const MaskRow& m, int i, int64_t k, __m512i bytes) {
  if (L == kPlanes) {
    uint64_t word;
    std::memcpy(&word, m.data + (m.first + i) * m.plane + (k >> 3), 8);
    return word;
  }
  return _mm512_test_epi8_mask(bytes, _mm512_set1_epi8(char(1 << (m.first + i))));
}

struct Avx512 {
  ADD_TERMS
  static constexpr bool kRawX = false;
  static constexpr int kSplit = 0;
  static inline __m512 load(const float* p) { return _mm512_loadu_ps(p); }
  static inline __m512 load(const bf16* p) {
    __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  // A mask register takes 16 bits of a plane as they are: one masked add a mask and 16 weights.
  template <int N, Layout L, typename T>
  static void masked_row(const T* w, const float* x, const MaskRow& m, int64_t h, float* sums) {
    constexpr int U = N == 1 ? 4 : N <= 4 ? 2 : 1;
    __m512 total[U], gate[N][U];
    for (int u = 0; u < U; ++u) {
      total[u] = _mm512_setzero_ps();
      for (int i = 0; i < N; ++i) gate[i][u] = _mm512_setzero_ps();
    }
    int64_t k = 0;
    for (; k + 64 <= h; k += 64) {
      __m512i bytes = _mm512_setzero_si512();
      if (L == kBytes) bytes = _mm512_loadu_si512(m.data + k);
      uint64_t bits[N];
      for (int i = 0; i < N; ++i) bits[i] = mask64<L>(m, i, k, bytes);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        __m512 v = _mm512_mul_ps(load(w + k + 16 * j), load(x + k + 16 * j));
        total[j % U] = _mm512_add_ps(total[j % U], v);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i)
          gate[i][j % U] = _mm512_mask_add_ps(gate[i][j % U], __mmask16(bits[i] >> (16 * j)),
                                              gate[i][j % U], v);
      }
    }
    for (int u = 1; u < U; ++u) {
      total[0] = _mm512_add_ps(total[0], total[u]);
      for (int i = 0; i < N; ++i) gate[i][0] = _mm512_add_ps(gate[i][0], gate[i][u]);
    }
    sums[0] = _mm512_reduce_add_ps(total[0]);
    for (int i = 0; i < N; ++i) sums[1 + i] = _mm512_reduce_add_ps(gate[i][0]);
    tail<N, L>(w, x, m, k, h, sums);
  }
  template <typename T>
  static void two_rows(const T* g, const T* v, const float* x, int64_t h, float* sums) {
    __m512 a[4], b[4];
    for (int j = 0; j < 4; ++j) a[j] = b[j] = _mm512_setzero_ps();
    int64_t k = 0;
    for (; k + 64 <= h; k += 64)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        __m512 xv = load(x + k + 16 * j);
        a[j] = _mm512_fmadd_ps(load(g + k + 16 * j), xv, a[j]);
        b[j] = _mm512_fmadd_ps(load(v + k + 16 * j), xv, b[j]);
      }
    sums[0] = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(a[0], a[1]), _mm512_add_ps(a[2], a[3])));
    sums[1] = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(b[0], b[1]), _mm512_add_ps(b[2], b[3])));
    plain_tail(g, v, x, k, h, sums);
  }
};
ASSAY_TARGET_END

ASSAY_TARGET_BEGIN("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")
struct Avx512Bf16 {
  ADD_TERMS
  static constexpr bool kRawX = true;
  static constexpr int kSplit = 0;
  static inline __m512i load(const bf16* p) { return _mm512_loadu_si512(p); }
  static inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  // The masks of 32 columns, straight from memory into a mask register.
  template <Layout L>
  static inline __mmask32 mask32(const MaskRow& m, int i, int64_t k) {
    if (L == kPlanes)
      return _load_mask32(reinterpret_cast<__mmask32*>(
          const_cast<uint8_t*>(m.data + (m.first + i) * m.plane + (k >> 3))));
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(m.data + k));
    return _mm256_test_epi8_mask(bytes, _mm256_set1_epi8(char(1 << (m.first + i))));
  }
  // 32 bf16 weights a register: one masked move and one dot product a mask.
  template <int N, Layout L>
  static void masked_row(const bf16* w, const bf16* x, const MaskRow& m, int64_t h, float* sums) {
    constexpr int U = N <= 4 ? 2 : 1;
    __m512 total[U], gate[N][U];
    for (int u = 0; u < U; ++u) {
      total[u] = _mm512_setzero_ps();
      for (int i = 0; i < N; ++i) gate[i][u] = _mm512_setzero_ps();
    }
    int64_t k = 0;
    for (; k + 64 <= h; k += 64) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const __m512i wv = load(w + k + 32 * j), xv = load(x + k + 32 * j);
        total[j % U] = dot(total[j % U], wv, xv);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
          const __mmask32 mask = mask32<L>(m, i, k + 32 * j);
          gate[i][j % U] = dot(gate[i][j % U], _mm512_maskz_mov_epi16(mask, wv), xv);
        }
      }
    }
    for (int u = 1; u < U; ++u) {
      total[0] = _mm512_add_ps(total[0], total[u]);
      for (int i = 0; i < N; ++i) gate[i][0] = _mm512_add_ps(gate[i][0], gate[i][u]);
    }
    sums[0] = _mm512_reduce_add_ps(total[0]);
    for (int i = 0; i < N; ++i) sums[1 + i] = _mm512_reduce_add_ps(gate[i][0]);
    tail<N, L>(w, x, m, k, h, sums);
  }
  static void two_rows(const bf16* g, const bf16* v, const bf16* x, int64_t h, float* sums) {
    __m512 a[4], b[4];
    for (int j = 0; j < 4; ++j) a[j] = b[j] = _mm512_setzero_ps();
    int64_t k = 0;
    for (; k + 128 <= h; k += 128)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        __m512i xv = load(x + k + 32 * j);
        a[j] = dot(a[j], load(g + k + 32 * j), xv);
        b[j] = dot(b[j], load(v + k + 32 * j), xv);
      }
    sums[0] = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(a[0], a[1]), _mm512_add_ps(a[2], a[3])));
    sums[1] = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(b[0], b[1]), _mm512_add_ps(b[2], b[3])));
    plain_tail(g, v, x, k, h, sums);
  }
  static void two_rows(const float* g, const float* v, const float* x, int64_t h, float* sums) {
    Avx512::two_rows(g, v, x, h, sums);
  }
  template <int N, Layout L>
  static void masked_row(const float* w, const float* x, const MaskRow& m, int64_t h,
                         float* sums) {
    Avx512::masked_row<N, L>(w, x, m, h, sums);
  }
};
ASSAY_TARGET_END

#endif  // ASSAY_X86

using MaskedRow = void (*)(const void* w, const void* x, const MaskRow&, int64_t h, float* sums);
using TwoRows = void (*)(const void* g, const void* v, const void* x, int64_t h, float* sums);
using AddTerms = void (*)(int, float*, const float*, const float*, float);
using AddProduct = void (*)(int, float*, const float*, const float*);

// Tokens are widened to fp32 once a call, unless the instruction set multiplies bf16 itself.
template <typename I, typename T>
using TokenOf = typename std::conditional<I::kRawX, T, float>::type;

template <typename I, int N, Layout L, typename T>
void masked_row(const void* w, const void* x, const MaskRow& m, int64_t h, float* sums) {
  using X = TokenOf<I, T>;
  I::template masked_row<N, L>(static_cast<const T*>(w), static_cast<const X*>(x), m, h, sums);
}

template <typename I, typename T>
void two_rows(const void* g, const void* v, const void* x, int64_t h, float* sums) {
  using X = TokenOf<I, T>;
  I::two_rows(static_cast<const T*>(g), static_cast<const T*>(v), static_cast<const X*>(x), h,
              sums);
}

template <typename I, Layout L, typename T>
MaskedRow masked_row_for(int n) {
  static constexpr MaskedRow table[] = {
      masked_row<I, 1, L, T>, masked_row<I, 2, L, T>, masked_row<I, 3, L, T>,
      masked_row<I, 4, L, T>, masked_row<I, 5, L, T>, masked_row<I, 6, L, T>,
      masked_row<I, 7, L, T>, masked_row<I, 8, L, T>};
  return table[n - 1];
}

// What one instruction set offers, by layout and dtype.
struct Kernels {
  MaskedRow (*masked[2][2])(int);
  TwoRows two_rows[2];
  AddTerms add_terms;
  AddProduct add_product;
  bool raw_x;
  int split;
};

template <typename I>
constexpr Kernels kernels_of() {
  return {{{masked_row_for<I, kPlanes, float>, masked_row_for<I, kPlanes, bf16>},
           {masked_row_for<I, kBytes, float>, masked_row_for<I, kBytes, bf16>}},
          {two_rows<I, float>, two_rows<I, bf16>},
          I::add_terms,
          I::add_product,
          I::kRawX,
          I::kSplit};
}

const Kernels& kernels(int isa) {
  static constexpr Kernels scalar = kernels_of<Scalar>();
#if ASSAY_X86
  static constexpr Kernels avx2 = kernels_of<Avx2>();
  static constexpr Kernels avx512 = kernels_of<Avx512>();
  static constexpr Kernels avx512_bf16 = kernels_of<Avx512Bf16>();
  if (isa == kAvx2) return avx2;
  if (isa == kAvx512) return avx512;
  if (isa == kAvx512Bf16) return avx512_bf16;
#endif
  return scalar;
}

// Tokens as the kernels want them. Where bf16 weights are split into even and odd columns, each 16
// columns of x are put in that order; those after the last whole block of `split` stay.
struct Tokens {
  std::vector<float> wide;
  const char* data;
  int64_t bytes;  // of one token
  Tokens(const void* x, int64_t batch, int64_t h, int is_bf16, const Kernels& k)
      : data(static_cast<const char*>(x)), bytes(h * (is_bf16 ? 2 : 4)) {
    if (!is_bf16 || k.raw_x) return;
    wide.resize(batch * h);
    const bf16* from = static_cast<const bf16*>(x);
    const int64_t ordered = k.split ? h / k.split * k.split : 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t c = 0; c < h; ++c) {
        int64_t at = c < ordered ? c / 16 * 16 + c % 2 * 8 + c % 16 / 2 : c;
        wide[b * h + at] = to_float(from[b * h + c]);
      }
    data = reinterpret_cast<const char*>(wide.data());
    bytes = h * 4;
  }
};

}  // namespace

extern "C" {

// The best instruction set of this CPU.
int assay_best_isa() {
#if ASSAY_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return __builtin_cpu_supports("avx512bf16") ? kAvx512Bf16 : kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kAvx2;
#endif
  return kScalar;
}

// x (batch, h), w (d, h), masks as in packing.py, scale (n, batch) or null, out (batch, d) fp32.
void assay_mglu_decode(const void* x, const void* w, const uint8_t* masks, const float* scale,
                       float* out, int64_t batch, int64_t d, int64_t h, int n, int layout,
                       int is_bf16, int activation, int isa, int threads) {
  const Kernels& k = kernels(isa);
  const Tokens tokens(x, batch, h, is_bf16, k);
  const int64_t size = is_bf16 ? 2 : 4;
  const int64_t row_bytes = layout == kPlanes ? (h + 7) / 8 : h;
  const int64_t chunks = (d + kRows - 1) / kRows;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t job = 0; job < chunks * batch; ++job) {
    const int64_t first_row = job / batch * kRows, b = job % batch;
    const int rows = int(std::min<int64_t>(kRows, d - first_row));
    const char* xb = tokens.data + b * tokens.bytes;
    float hidden[kRows] = {}, streams[1 + kMaxMasks][kRows] = {};
    for (int first = 0; first < n; first += kMaxMasks) {
      const int count = std::min(kMaxMasks, n - first);
      const MaskedRow run = k.masked[layout][is_bf16](count);
      for (int r = 0; r < rows; ++r) {
        float sums[1 + kMaxMasks];
        run(static_cast<const char*>(w) + (first_row + r) * h * size, xb,
            MaskRow{masks + (first_row + r) * row_bytes, d * row_bytes, first}, h, sums);
        for (int i = 0; i <= count; ++i) streams[i][r] = sums[i];
      }
      for (int i = 0; i < count; ++i)
        k.add_terms(activation, hidden, streams[0], streams[1 + i],
                    scale ? scale[(first + i) * batch + b] : 1.0f);
    }
    std::memcpy(out + b * d + first_row, hidden, rows * sizeof(float));
  }
}

// x (batch, h), w (2 d, h) with the gate's rows first, out (batch, d) fp32.
void assay_glu_decode(const void* x, const void* w, float* out, int64_t batch, int64_t d,
                      int64_t h, int is_bf16, int activation, int isa, int threads) {
  const Kernels& k = kernels(isa);
  const Tokens tokens(x, batch, h, is_bf16, k);
  const int64_t size = is_bf16 ? 2 : 4;
  const int64_t chunks = (d + kRows - 1) / kRows;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t job = 0; job < chunks * batch; ++job) {
    const int64_t first_row = job / batch * kRows, b = job % batch;
    const int rows = int(std::min<int64_t>(kRows, d - first_row));
    const char* xb = tokens.data + b * tokens.bytes;
    const char* gates = static_cast<const char*>(w) + first_row * h * size;
    float hidden[kRows] = {}, gate[kRows] = {}, value[kRows] = {};
    for (int r = 0; r < rows; ++r) {
      float sums[2];
      k.two_rows[is_bf16](gates + r * h * size, gates + (d + r) * h * size, xb, h, sums);
      gate[r] = sums[0];
      value[r] = sums[1];
    }
    k.add_product(activation, hidden, value, gate);
    std::memcpy(out + b * d + first_row, hidden, rows * sizeof(float));
  }
}

}  // extern "C"
