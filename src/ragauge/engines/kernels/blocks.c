/* See blocks.h. */
#include "blocks.h"
#include "vectors.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif
#define PANEL 16
#define MOST 8 /* tokens that a panel is multiplied with */

typedef int32_t totals __attribute__((vector_size(4 * PANEL), aligned(4), may_alias));
typedef uint32_t fours __attribute__((vector_size(4 * PANEL), aligned(4), may_alias));
typedef float sixteen __attribute__((vector_size(4 * PANEL), aligned(4), may_alias));
typedef uint8_t small __attribute__((vector_size(PANEL), aligned(1), may_alias));
typedef int8_t small_signed __attribute__((vector_size(PANEL), aligned(1), may_alias));

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
 * `narrow`: numbers below 64, whose products two 16-bit lanes can hold.
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

INLINE totals scales(const uint8_t *at) { return __builtin_convertvector(*(const small *)at, totals); }
INLINE totals signed_scales(const uint8_t *at) { return __builtin_convertvector(*(const small_signed *)at, totals); }
INLINE sixteen number(totals x) { return __builtin_convertvector(x, sixteen); }

/* The sums of `count` numbers of each row: 4 bits. */
INLINE void sum4(totals *to, const uint8_t *low, const uint8_t *x, int64_t in, int tokens, int count) {
    totals second[MOST];
    for (int t = 0; t < tokens; t++) to[t] = second[t] = (totals){0};
    for (int i = 0; i < count; i += 8) {
        const fours both = *(const fours *)(low + i / 2 * PANEL);
        const fours a = both & 0x0f0f0f0f, b = both >> 4 & 0x0f0f0f0f;
        for (int t = 0; t < tokens; t++) {
            to[t] = dot(to[t], four(x + t * in + i), a, 1);
            second[t] = dot(second[t], four(x + t * in + i + 4), b, 1);
        }
    }
    for (int t = 0; t < tokens; t++) to[t] += second[t];
}

/* The same of 16 numbers of 6 bits. */
INLINE void sum6(totals *to, const uint8_t *low, const uint8_t *high, const uint8_t *x, int64_t in, int tokens) {
    const fours more = *(const fours *)high;
    for (int t = 0; t < tokens; t++) to[t] = (totals){0};
    for (int i = 0; i < 4; i++) {
        const fours both = *(const fours *)(low + i / 2 * 4 * PANEL);
        const fours w = (i % 2 ? both >> 4 : both) & 0x0f0f0f0f;
        const fours two = i < 2 ? more << (4 - 2 * i) : more >> (2 * i - 4);
        for (int t = 0; t < tokens; t++) to[t] = dot(to[t], four(x + t * in + 4 * i), w | (two & 0x30303030), 1);
    }
}

INLINE void panel(const Blocks *b, int64_t p, const float *bias, const uint8_t *x, const int32_t *sums,
                  const float *scale, float *y, int64_t in, int64_t out, int rows, int tokens, int add, int format) {
    const int bits = format == PLAIN8 ? 8 : 4;
    const int64_t groups = in / GROUP, share = near_to(in), each = format == SUPER4 || format == SUPER6 ? 256 : 32;
    const uint8_t *low = b->low + p * in * PANEL * bits / 8;
    const uint8_t *high = format == SUPER6 ? b->high + p * in * PANEL / 4 : 0;
    const int64_t scaled = format == SUPER4 ? in / 32 : groups;
    const uint8_t *small = each == 256 ? b->scale + p * scaled * PANEL : 0;
    const uint8_t *offset = format == SUPER4 ? b->offset + p * scaled * PANEL : 0;
    const uint16_t *by = b->by + p * (in / each) * PANEL;
    const uint16_t *plus = format == AFFINE4 || format == SUPER4 ? b->plus + p * (in / each) * PANEL : 0;
    sixteen part[MOST];
    totals sum[MOST], whole[MOST], below[MOST];
    for (int t = 0; t < tokens; t++) part[t] = (sixteen){0};
    for (int64_t i = 0; i < in; i += each) {
        const int64_t g = i / GROUP;
        if (format == AFFINE4) {
            sum4(sum, low + i / 2 * PANEL, x + i, in, tokens, 32);
            __builtin_prefetch(low + i / 2 * PANEL + 2048);
            __builtin_prefetch(low + i / 2 * PANEL + 2112);
            __builtin_prefetch(low + i / 2 * PANEL + 2176);
            __builtin_prefetch(low + i / 2 * PANEL + 2240);
        }
        if (format == PLAIN8) {
            for (int t = 0; t < tokens; t++) sum[t] = (totals){0} - 128 * (sums[t * groups + g] + sums[t * groups + g + 1]);
            for (int j = 0; j < 32; j += 4) {
                const fours w = *(const fours *)(low + (i + j) * PANEL);
                for (int t = 0; t < tokens; t++) sum[t] = dot(sum[t], four(x + t * in + i + j), w, 0);
            }
        }
        if (each == 256)
            for (int t = 0; t < tokens; t++) whole[t] = below[t] = (totals){0};
        for (int64_t j = i; format == SUPER4 && j < i + 256; j += 32) {
            sum4(sum, low + j / 2 * PANEL, x + j, in, tokens, 32);
            const totals s = scales(small + j / 32 * PANEL), o = scales(offset + j / 32 * PANEL);
            for (int t = 0; t < tokens; t++) {
                const int32_t *these = sums + t * groups + j / GROUP;
                whole[t] += sum[t] * s;
                below[t] += (these[0] + these[1]) * o;
            }
        }
        for (int64_t j = i; format == SUPER6 && j < i + 256; j += 16) {
            sum6(sum, low + j / 2 * PANEL, high + j / 4 * PANEL, x + j, in, tokens);
            const totals s = signed_scales(small + j / 16 * PANEL);
            for (int t = 0; t < tokens; t++) whole[t] += (sum[t] - 32 * sums[t * groups + j / GROUP]) * s;
        }
        const sixteen d = from_float16(by + i / each * PANEL);
        const sixteen m = plus ? from_float16(plus + i / each * PANEL) : (sixteen){0};
        for (int t = 0; t < tokens; t++) {
            const float all = sums[t * groups + g] + sums[t * groups + g + 1], by_token = scale[(t * in + i) / share];
            if (format == AFFINE4) part[t] += by_token * (number(sum[t]) * d + m * all);
            if (format == PLAIN8) part[t] += by_token * (number(sum[t]) * d);
            if (format == SUPER4) part[t] += by_token * (number(whole[t]) * d - number(below[t]) * m);
            if (format == SUPER6) part[t] += by_token * (number(whole[t]) * d);
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
        OF(AFFINE4);
        OF(SUPER4);
        OF(SUPER6);
        OF(PLAIN8);
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
