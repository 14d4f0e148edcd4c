/* Vectors of the widest registers that there are, and what is computed with them. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

INLINE float as_float(uint32_t word) {
    float x;
    memcpy(&x, &word, 4);
    return x;
}

INLINE uint32_t as_word(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    return word;
}

/* A vector stays in a register: compilers read it again from memory at every use, as long as that is near. */
#if defined __AVX512F__
#define STAY(vector) __asm__("" : "+v"(vector))
#elif defined __AVX__
#define STAY(vector) __asm__("" : "+x"(vector))
#else
#define STAY(vector)
#endif

INLINE floats widened(const uint16_t *at) { /* bfloat16 */
#ifdef __AVX512F__
    return (floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16);
#else
    return (floats)(__builtin_convertvector(*(const halves *)at, words) << 16);
#endif
}

/* Rounds to bfloat16, ties to even; NaN stays NaN. */
INLINE uint16_t half(float x) {
    const uint32_t bits = as_word(x);
    return (x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

INLINE floats all(float x) { return (floats){0} + x; }

INLINE float sum(floats x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)x);
#else
    float y = 0;
    for (int i = 0; i < LANES; i++) y += x[i];
    return y;
#endif
}

INLINE floats larger(floats x, floats y) { /* y where one is NaN */
#ifdef __AVX512F__
    return (floats)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined __AVX__
    return (floats)_mm256_max_ps((__m256)x, (__m256)y);
#else
    const words first = (words)(x > y);
    return (floats)(((words)x & first) | ((words)y & ~first));
#endif
}

INLINE float largest(floats x) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)x);
#else
    float y = x[0];
    for (int i = 1; i < LANES; i++) y = fmaxf(y, x[i]);
    return y;
#endif
}

INLINE floats exponential(floats x) { /* of x <= 0; within 2 units in the last place */
    words under = (words)(x < -87.0f);
    floats n = x * 1.44269504f + 12582912.0f; /* rounds */
    n -= 12582912.0f;
    floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
    floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    ints power = (__builtin_convertvector(n, ints) + 127) << 23;
    return (floats)((words)(y * (floats)power) & ~under);
}

/* --- whole numbers --- */

/* Four bytes, the same in each place. */
INLINE ints repeated(const void *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return (ints)((words){0} + word);
}

#ifdef __AVX2__
/* Adds products of 16 bits to sums of 32. */
INLINE __m256i pairs16(__m256i to, __m256i x, __m256i y) { return _mm256_add_epi32(to, _mm256_madd_epi16(x, y)); }
#endif

/* Adds to each sum the products of four bytes, those of x without a sign and those of y with one. `narrow`: those of x
 * are below 64, so that 16 bits hold the sum of two products.
 */
INLINE ints dot(ints to, words x, ints y, int narrow) {
#ifdef __AVX512VNNI__
    return (ints)_mm512_dpbusd_epi32((__m512i)to, (__m512i)x, (__m512i)y);
#elif defined __AVX2__
    __m256i sums[LANES / 8], without_sign[LANES / 8], with_sign[LANES / 8];
    memcpy(sums, &to, sizeof to);
    memcpy(without_sign, &x, sizeof x);
    memcpy(with_sign, &y, sizeof y);
    for (int i = 0; i < LANES / 8; i++) {
        if (narrow) {
            sums[i] = pairs16(sums[i], _mm256_maddubs_epi16(without_sign[i], with_sign[i]), _mm256_set1_epi16(1));
            continue;
        }
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(with_sign[i], 8), 8);
        sums[i] = pairs16(sums[i], _mm256_and_si256(without_sign[i], _mm256_set1_epi16(255)), even);
        sums[i] = pairs16(sums[i], _mm256_srli_epi16(without_sign[i], 8), _mm256_srai_epi16(with_sign[i], 8));
    }
    memcpy(&to, sums, sizeof to);
    return to;
#else
    for (int byte = 0; byte < 4; byte++) to += (ints)(x >> 8 * byte & 255) * (y << (24 - 8 * byte) >> 24);
    return to;
#endif
}

/* The same of two numbers of 16 bits with signs. */
INLINE ints dot_two(ints to, words x, ints y) {
#ifdef __AVX512VNNI__
    return (ints)_mm512_dpwssd_epi32((__m512i)to, (__m512i)x, (__m512i)y);
#elif defined __AVX2__ && LANES == 8
    return (ints)pairs16((__m256i)to, (__m256i)x, (__m256i)y);
#else
    return to + ((ints)(x << 16) >> 16) * (y << 16 >> 16) + ((ints)x >> 16) * (y >> 16);
#endif
}
