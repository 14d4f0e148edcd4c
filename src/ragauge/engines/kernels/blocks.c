/* See blocks.h. */
#include "blocks.h"
#include "vectors.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif
#define PANEL 16
#define MOST 6 /* tokens that a panel is multiplied with */

typedef int32_t totals __attribute__((vector_size(4 * PANEL), aligned(4), may_alias));
typedef uint32_t fours __attribute__((vector_size(4 * PANEL), aligned(4), may_alias));
typedef float sixteen __attribute__((vector_size(4 * PANEL), aligned(4), may_alias));
typedef int8_t small __attribute__((vector_size(PANEL), aligned(1), may_alias));

INLINE sixteen from_float16(const uint16_t *at) {
#ifdef __AVX512F__
    return (sixteen)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
#else
    sixteen y;
    for (int i = 0; i < PANEL; i++) {
        const float size = as_float((uint32_t)(at[i] & 0x7fff) << 13) * 0x1p112f;
        y[i] = at[i] & 0x8000 ? -size : size;
    }
    return y;
#endif
}

/* Adds to the sums of PANEL rows four signed activations, the bytes of a word, times four numbers of each row.
 * `narrow`: numbers below 64, of which two products fit 16 bits.
 */
INLINE totals dot(totals to, uint32_t x, fours w, int narrow) {
#ifdef __AVX512VNNI__
    return (totals)_mm512_dpbusd_epi32((__m512i)to, (__m512i)w, _mm512_set1_epi32(x));
#else
#ifdef __AVX2__
    if (narrow) {
        const __m256i four = _mm256_set1_epi32(x), ones = _mm256_set1_epi16(1);
        __m256i halves[2], sums[2];
        memcpy(halves, &w, sizeof w);
        memcpy(sums, &to, sizeof to);
        for (int i = 0; i < 2; i++)
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(halves[i], four), ones));
        memcpy(&to, sums, sizeof to);
        return to;
    }
#endif
    for (int byte = 0; byte < 4; byte++)
        to += (int32_t)(int8_t)(x >> 8 * byte) * (totals)(w >> 8 * byte & 255);
    return to;
#endif
}

INLINE uint32_t four(const uint8_t *x) {
    uint32_t word;
    memcpy(&word, x, 4);
    return word ^ 0x80808080u;
}

INLINE fours word(const uint8_t *field, int64_t index) { return *(const fours *)(field + index * 4 * PANEL); }
INLINE sixteen number(totals x) { return __builtin_convertvector(x, sixteen); }

/* Four bits, the lowest first, to the fifth bits of four bytes. */
INLINE fours fifth(fours bits) {
    bits &= 15;
    return ((bits | bits << 7 | bits << 14 | bits << 21) & 0x01010101) << 4;
}

/* Blocks of 32 numbers from number i on: the first 16 are in the low halves of bytes. */
INLINE void sum32(totals *to, const Blocks *b, int64_t block, const uint8_t *x, const int32_t *sums, int64_t in,
                  int tokens, int format) {
    const int zero = format == Q4_0 ? 8 : format == Q5_0 ? 16 : format == Q8_0 ? 128 : 0;
    const fours high = format == Q5_0 ? word(b->high, block) : (fours){0};
    totals second[MOST];
    for (int t = 0; t < tokens; t++) {
        const int32_t *these = sums + t * (in / GROUP);
        to[t] = (totals){0} - zero * (these[0] + these[1]);
        second[t] = (totals){0};
    }
    for (int i = 0; i < 4; i++) {
        fours w = word(b->low, 4 * block + i), v = w >> 4 & 0x0f0f0f0f;
        if (format == Q8_0) {
            w = word(b->low, 8 * block + i) ^ 0x80808080;
            v = word(b->low, 8 * block + 4 + i) ^ 0x80808080;
        } else
            w &= 0x0f0f0f0f;
        if (format == Q5_0) {
            w |= fifth(high >> 4 * i);
            v |= fifth(high >> (16 + 4 * i));
        }
        for (int t = 0; t < tokens; t++) {
            to[t] = dot(to[t], four(x + t * in + 4 * i), w, format != Q8_0);
            second[t] = dot(second[t], four(x + t * in + 16 + 4 * i), v, format != Q8_0);
        }
    }
    for (int t = 0; t < tokens; t++) to[t] += second[t];
}

/* A block of 256 numbers with 6-bit scales: of 64 numbers the first 32 are in the low halves of bytes. */
INLINE void sum256_4(totals *to, totals *below, const Blocks *b, int64_t block, const uint8_t *x, const int32_t *sums,
                     int64_t in, int tokens) {
    const fours first = word(b->scale, 3 * block), second = word(b->scale, 3 * block + 1);
    const fours rest = word(b->scale, 3 * block + 2);
    for (int t = 0; t < tokens; t++) to[t] = below[t] = (totals){0};
    for (int g = 0; g < 8; g += 2) {
        totals a[MOST], c[MOST];
        for (int t = 0; t < tokens; t++) a[t] = c[t] = (totals){0};
        for (int i = 0; i < 8; i++) {
            const fours both = word(b->low, 32 * block + 4 * g + i);
            const fours w = both & 0x0f0f0f0f, v = both >> 4 & 0x0f0f0f0f;
            for (int t = 0; t < tokens; t++) {
                const uint8_t *at = x + t * in + 32 * g + 4 * i;
                a[t] = dot(a[t], four(at), w, 1);
                c[t] = dot(c[t], four(at + 32), v, 1);
            }
        }
        for (int h = 0; h < 2; h++) {
            const int k = 8 * ((g + h) % 4);
            const fours s = g < 4 ? first >> k & 63 : (rest >> k & 15) | (first >> k & 0xc0) >> 2;
            const fours o = g < 4 ? second >> k & 63 : (rest >> (k + 4) & 15) | (second >> k & 0xc0) >> 2;
            for (int t = 0; t < tokens; t++) {
                const int32_t *these = sums + t * (in / GROUP) + 2 * (g + h);
                to[t] += (h ? c[t] : a[t]) * (totals)s;
                below[t] += (these[0] + these[1]) * (totals)o;
            }
        }
    }
}

/* The same of 6 bits with 8-bit scales for 16 numbers: of 128 the first 64 are in the low halves of bytes. */
INLINE void sum256_6(totals *to, const Blocks *b, int64_t block, const uint8_t *x, const int32_t *sums, int64_t in,
                     int tokens) {
    for (int t = 0; t < tokens; t++) to[t] = (totals){0};
    for (int g = 0; g < 16; g++) {
        const int half = g / 8, within = g % 8;
        totals sum[MOST];
        for (int t = 0; t < tokens; t++) sum[t] = (totals){0} - 32 * sums[t * (in / GROUP) + g];
        for (int i = 0; i < 4; i++) {
            const fours low = word(b->low, 32 * block + 16 * half + 4 * (within % 4) + i) >> (within < 4 ? 0 : 4);
            const fours high = word(b->high, 16 * block + 8 * half + 4 * (within % 2) + i) >> within / 2 * 2;
            const fours w = (low & 0x0f0f0f0f) | (high & 0x03030303) << 4;
            for (int t = 0; t < tokens; t++) sum[t] = dot(sum[t], four(x + t * in + 16 * g + 4 * i), w, 1);
        }
        const totals s = __builtin_convertvector(*(const small *)(b->scale + (16 * block + g) * PANEL), totals);
        for (int t = 0; t < tokens; t++) to[t] += sum[t] * s;
    }
}

INLINE void panel(const Blocks *b, int64_t p, const float *bias, const uint8_t *x, const int32_t *sums,
                  const float *scale, float *y, int64_t in, int64_t out, int rows, int tokens, int add, int format) {
    const int64_t groups = in / GROUP, share = near_to(in), each = format < Q4_K ? 32 : 256, count = in / each;
    sixteen part[MOST];
    totals sum[MOST], below[MOST];
    for (int t = 0; t < tokens; t++) part[t] = (sixteen){0};
    for (int64_t i = 0; i < in; i += each) {
        const int64_t block = p * count + i / each;
        const uint8_t *those = x + i;
        const int32_t *these = sums + i / GROUP;
        if (format < Q4_K) sum32(sum, b, block, those, these, in, tokens, format);
        if (format == Q4_K) sum256_4(sum, below, b, block, those, these, in, tokens);
        if (format == Q6_K) sum256_6(sum, b, block, those, these, in, tokens);
        const sixteen by = from_float16(b->by + block * PANEL);
        const sixteen plus = format == Q4_1 || format == Q4_K ? from_float16(b->plus + block * PANEL) : (sixteen){0};
        for (int t = 0; t < tokens; t++) {
            sixteen whole = number(sum[t]) * by;
            if (format == Q4_1) whole += plus * (float)(these[t * groups] + these[t * groups + 1]);
            if (format == Q4_K) whole -= plus * number(below[t]);
            part[t] += whole * scale[(t * in + i) / share];
        }
    }
    for (int t = 0; t < tokens; t++) {
        float *at = y + t * out;
        for (int r = 0; r < rows; r++) {
            const float z = part[t][r] + (bias ? bias[r] : 0);
            at[r] = add ? at[r] + z : z;
        }
    }
}

INLINE void panels(const Blocks *b, int64_t p, const float *bias, const uint8_t *x, const int32_t *sums,
                   const float *scale, float *y, int64_t tokens, int64_t in, int64_t out, int rows, int add,
                   int format) {
    int64_t t = 0;
#define SOME(COUNT) \
    for (; t + COUNT <= tokens; t += COUNT) \
        panel(b, p, bias, x + t * in, sums + t * (in / GROUP), scale + t * (in / near_to(in)), y + t * out, in, out, rows, COUNT, add, format)
    SOME(MOST);
    SOME(4);
    SOME(1);
#undef SOME
}

void multiply_blocks(const Blocks *parts, const float *bias, const uint8_t *x, const int32_t *sums, const float *scale,
                     float *y, int64_t tokens, int64_t in, int64_t out, int64_t from, int64_t to, int add) {
    for (int64_t row = from, first = 0; row < to; row += PANEL) {
        while (row >= first + parts->rows) first += parts++->rows;
        const int64_t p = (row - first) / PANEL;
        const int rows = to - row < PANEL ? to - row : PANEL;
        const float *those = bias ? bias + row : 0;
#define OF(FORMAT) \
    if (parts->format == FORMAT) panels(parts, p, those, x, sums, scale, y + row, tokens, in, out, rows, add, FORMAT)
        OF(Q4_0);
        OF(Q4_1);
        OF(Q5_0);
        OF(Q8_0);
        OF(Q4_K);
        OF(Q6_K);
#undef OF
    }
}

void sum_groups(const uint8_t *x, int32_t *sums, int64_t tokens, int64_t in) {
    for (int64_t g = 0; g < tokens * (in / GROUP); g++) {
        int32_t sum = -128 * GROUP;
        for (int i = 0; i < GROUP; i++) sum += x[g * GROUP + i];
        sums[g] = sum;
    }
}
