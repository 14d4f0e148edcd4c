/* See blocks.h. */
#include "blocks.h"
#include "vectors.h"
#include <stdlib.h>
#define TILE 8 /* tokens that unpacked rows are multiplied with */
#define FEW 4  /* tokens for which they are unpacked, at least */

typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE floats from_float16(const uint16_t *at) {
#ifdef __AVX512F__
    return (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
#elif defined __F16C__
    return (floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
#else
    floats y;
    for (int i = 0; i < LANES; i++) {
        const float size = as_float((uint32_t)(at[i] & 0x7fff) << 13) * 0x1p112f;
        y[i] = at[i] & 0x8000 ? -size : size;
    }
    return y;
#endif
}

/* x * y + z. Compilers may or may not round such a product before it is added; here every path does the same. */
INLINE floats fused(floats x, floats y, floats z) {
#ifdef __AVX512F__
    return (floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined __FMA__
    return (floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined __ARM_FEATURE_FMA
    for (int i = 0; i < LANES; i++) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
    return z;
#else
    return x * y + z;
#endif
}

INLINE words word(const uint8_t *field, int64_t index) { return *(const words *)(field + index * 4 * PANEL); }
INLINE floats number(ints x) { return __builtin_convertvector(x, floats); }

/* What 16 numbers of Q6_K are multiplied with. */
INLINE ints byte_scales(const Blocks *b, int64_t index) {
    return __builtin_convertvector(*(const bytes *)(b->scale + index * PANEL), ints);
}

/* Four bits, the lowest first, to the fifth bits of four bytes. */
INLINE words fifth(words bits) {
    bits &= 15;
    return ((bits | bits << 7 | bits << 14 | bits << 21) & 0x01010101) << 4;
}

/* --- one token --- */

/* A block of 32 numbers: the first 16 are in the low halves of bytes. */
INLINE ints sum32(const Blocks *b, int64_t block, const uint8_t *x, const int32_t *sums, int format) {
    const int zero = format == Q4_0 ? 8 : format == Q5_0 ? 16 : format == Q8_0 ? 128 : 0;
    const words high = format == Q5_0 ? word(b->high, block) : (words){0};
    ints first = (ints){0} - zero * (sums[0] + sums[1]), second = (ints){0};
    for (int i = 0; i < 4; i++) {
        words w = word(b->low, 4 * block + i), v = w >> 4 & 0x0f0f0f0f;
        if (format == Q8_0) {
            w = word(b->low, 8 * block + i) ^ 0x80808080;
            v = word(b->low, 8 * block + 4 + i) ^ 0x80808080;
        } else
            w &= 0x0f0f0f0f;
        if (format == Q5_0) {
            w |= fifth(high >> 4 * i);
            v |= fifth(high >> (16 + 4 * i));
        }
        first = dot(first, w, repeated(x + 4 * i), format != Q8_0);
        second = dot(second, v, repeated(x + 16 + 4 * i), format != Q8_0);
    }
    return first + second;
}

/* What a group of 32 numbers of Q4_K is multiplied with, and what is subtracted. */
INLINE void small_scales(const Blocks *b, int64_t block, int group, words *by, words *below) {
    const words first = word(b->scale, 3 * block), second = word(b->scale, 3 * block + 1);
    const words rest = word(b->scale, 3 * block + 2);
    const int k = 8 * (group % 4);
    *by = group < 4 ? first >> k & 63 : (rest >> k & 15) | (first >> k & 0xc0) >> 2;
    *below = group < 4 ? second >> k & 63 : (rest >> (k + 4) & 15) | (second >> k & 0xc0) >> 2;
}

/* A block of 256 numbers with 6-bit scales: of 64 numbers the first 32 are in the low halves of bytes. */
INLINE ints sum256_4(ints *below, const Blocks *b, int64_t block, const uint8_t *x, const int32_t *sums) {
    ints to = (ints){0};
    *below = to;
    for (int g = 0; g < 8; g += 2) {
        ints part[2] = {(ints){0}, (ints){0}};
        for (int i = 0; i < 8; i++) {
            const words both = word(b->low, 32 * block + 4 * g + i);
            const uint8_t *at = x + 32 * g + 4 * i;
            part[0] = dot(part[0], both & 0x0f0f0f0f, repeated(at), 1);
            part[1] = dot(part[1], both >> 4 & 0x0f0f0f0f, repeated(at + 32), 1);
        }
        for (int h = g; h < g + 2; h++) {
            words s, o;
            small_scales(b, block, h, &s, &o);
            to += part[h - g] * (ints)s;
            *below += (sums[2 * h] + sums[2 * h + 1]) * (ints)o;
        }
    }
    return to;
}

/* The same of 6 bits with 8-bit scales for 16 numbers: of 128 the first 64 are in the low halves of bytes. */
INLINE ints sum256_6(const Blocks *b, int64_t block, const uint8_t *x, const int32_t *sums) {
    ints to = (ints){0};
    for (int g = 0; g < 16; g++) {
        const int half = g / 8, within = g % 8;
        ints part = (ints){0} - 32 * sums[g];
        for (int i = 0; i < 4; i++) {
            const words low = word(b->low, 32 * block + 16 * half + 4 * (within % 4) + i) >> (within < 4 ? 0 : 4);
            const words high = word(b->high, 16 * block + 8 * half + 4 * (within % 2) + i) >> within / 2 * 2;
            part = dot(part, (low & 0x0f0f0f0f) | (high & 0x03030303) << 4, repeated(x + 16 * g + 4 * i), 1);
        }
        to += part * byte_scales(b, 16 * block + g);
    }
    return to;
}

INLINE void store(const floats *part, const float *bias, float *y, int64_t out, int rows, int tokens, int add) {
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < rows; r++) {
            const float z = part[t][r] + (bias ? bias[r] : 0);
            y[t * out + r] = add ? y[t * out + r] + z : z;
        }
}

INLINE void panel(const Blocks *b, int64_t p, const float *bias, const uint8_t *x, const int32_t *sums,
                  const float *scale, float *y, int64_t in, int rows, int add, int format) {
    const int64_t share = near_to(in), each = format < Q4_K ? 32 : 256, count = in / each;
    floats part = (floats){0};
    ints sum, below;
    for (int64_t i = 0; i < in; i += each) {
        const int64_t block = p * count + i / each;
        const uint8_t *those = x + i;
        const int32_t *these = sums + i / GROUP;
        if (format < Q4_K) sum = sum32(b, block, those, these, format);
        if (format == Q4_K) sum = sum256_4(&below, b, block, those, these);
        if (format == Q6_K) sum = sum256_6(b, block, those, these);
        floats whole = number(sum) * from_float16(b->by + block * PANEL);
        if (format == Q4_1) whole = fused(from_float16(b->plus + block * PANEL), all(these[0] + these[1]), whole);
        if (format == Q4_K) whole = fused(-from_float16(b->plus + block * PANEL), number(below), whole);
        part = fused(whole, all(scale[i / share]), part);
    }
    store(&part, bias, y, 0, rows, 1, add);
}

/* --- many tokens: a panel is unpacked once --- */

typedef struct { /* of one panel, and of all tokens */
    words *words;     /* (in / 4): numbers that are not negative */
    ints *by;       /* (in / 32): small scales of Q4_K */
    words *below;     /* (in / 32): what the sums of two groups are multiplied with and subtracted, 16 bits each */
    int16_t *sums;    /* (token, in / GROUP): of activations */
    float *as_floats; /* (token, in / 32): the same of two groups */
} Unpacked;

INLINE void unpack(const Blocks *b, int64_t p, int64_t in, Unpacked to, int format) {
    const int64_t each = format < Q4_K ? 32 : 256, count = in / each;
    for (int64_t block = p * count; block < (p + 1) * count; block++) {
        words *w = to.words + (block - p * count) * each / 4;
        if (format == Q8_0)
            for (int i = 0; i < 8; i++) w[i] = word(b->low, 8 * block + i) ^ 0x80808080;
        if (format < Q4_K && format != Q8_0) {
            const words high = format == Q5_0 ? word(b->high, block) : (words){0};
            for (int i = 0; i < 4; i++) {
                const words both = word(b->low, 4 * block + i);
                w[i] = both & 0x0f0f0f0f, w[4 + i] = both >> 4 & 0x0f0f0f0f;
                if (format == Q5_0) w[i] |= fifth(high >> 4 * i), w[4 + i] |= fifth(high >> (16 + 4 * i));
            }
        }
        if (format == Q4_K) {
            ints *by = to.by + (block - p * count) * 8;
            words *below = to.below + (block - p * count) * 8;
            for (int g = 0; g < 8; g++) {
                words s, o;
                small_scales(b, block, g, &s, &o);
                by[g] = (ints)s;
                below[g] = o | o << 16;
                for (int i = 0; i < 8; i++)
                    w[8 * g + i] = word(b->low, 32 * block + g / 2 * 8 + i) >> g % 2 * 4 & 0x0f0f0f0f;
            }
        }
        if (format == Q6_K) {
            for (int g = 0; g < 8; g++) {
                const ints first = byte_scales(b, 16 * block + 2 * g) * 32;
                const ints second = byte_scales(b, 16 * block + 2 * g + 1) * 32;
                to.below[(block - p * count) * 8 + g] = (words)((first & 0xffff) | second << 16);
            }
            for (int i = 0; i < 64; i++) {
                const int half = i / 32, within = i % 32;
                const words low = word(b->low, 32 * block + 16 * half + within % 16) >> within / 16 * 4;
                const words high = word(b->high, 16 * block + 8 * half + within % 8) >> within / 8 * 2;
                w[i] = (low & 0x0f0f0f0f) | (high & 0x03030303) << 4;
            }
        }
    }
}

INLINE void unpacked_panel(const Blocks *b, int64_t p, const float *bias, const uint8_t *x, const float *scale, float *y,
                           int64_t in, int64_t out, int rows, int64_t first, int tokens, int add, int format,
                           Unpacked u) {
    const int64_t groups = in / GROUP, share = near_to(in), each = format < Q4_K ? 32 : 256, count = in / each;
    const float zero = format == Q4_0 ? 8 : format == Q5_0 ? 16 : format == Q8_0 ? 128 : 0;
    const int group = format == Q6_K ? 16 : 32;
    floats part[TILE];
    x += first * in, y += first * out;
    for (int t = 0; t < tokens; t++) part[t] = (floats){0};
    for (int64_t i = 0; i < in; i += each) {
        const int64_t block = p * count + i / each;
        ints sum[TILE], below[TILE];
        for (int t = 0; t < tokens; t++) sum[t] = below[t] = (ints){0};
        for (int64_t g = i; g < i + each; g += group) {
            const words *w = u.words + g / 4;
            ints one[TILE];
            for (int t = 0; t < tokens; t++) one[t] = (ints){0};
            for (int s = 0; s < group / 4; s++)
                for (int t = 0; t < tokens; t++)
                    one[t] = dot(one[t], w[s], repeated(x + t * in + g + 4 * s), format != Q8_0);
            ints by = (ints){0};
            if (format == Q4_K) by = u.by[g / 32];
            if (format == Q6_K) by = byte_scales(b, 16 * block + g % 256 / 16);
            for (int t = 0; t < tokens; t++) sum[t] += format < Q4_K ? one[t] : (ints)(one[t] * by);
        }
        for (int64_t g = i / 32; format >= Q4_K && g < (i + each) / 32; g++)
            for (int t = 0; t < tokens; t++)
                below[t] = dot_two(below[t], u.below[g], repeated(u.sums + (first + t) * groups + 2 * g));
        const floats by = from_float16(b->by + block * PANEL);
        const floats plus = format == Q4_1 || format == Q4_K ? from_float16(b->plus + block * PANEL) : (floats){0};
        for (int t = 0; t < tokens; t++) {
            const float these = u.as_floats[((first + t) * in + i) / 32];
            if (format == Q6_K) sum[t] -= below[t];
            floats whole = number(sum[t]); /* below 2^24 where zeros are still to be subtracted */
            if (zero) whole -= zero * these;
            whole *= by;
            if (format == Q4_1) whole = fused(plus, all(these), whole);
            if (format == Q4_K) whole = fused(-plus, number(below[t]), whole);
            part[t] = fused(whole, all(scale[((first + t) * in + i) / share]), part[t]);
        }
    }
    store(part, bias, y, out, rows, tokens, add);
}

INLINE void unpacked_panels(const Blocks *b, int64_t p, const float *bias, const uint8_t *x, const float *scale,
                            float *y, int64_t tokens, int64_t in, int64_t out, int rows, int add, int format,
                            Unpacked u) {
    int64_t t = 0;
    unpack(b, p, in, u, format);
#define SOME(COUNT) \
    for (; t + COUNT <= tokens; t += COUNT) \
        unpacked_panel(b, p, bias, x, scale, y, in, out, rows, t, COUNT, add, format, u)
    SOME(TILE);
    SOME(FEW);
    SOME(1);
#undef SOME
}

/* Room for what is unpacked; words are null where memory is short. */
static Unpacked room_for(const int32_t *sums, int64_t tokens, int64_t in) {
    const int64_t vector = sizeof(words), groups = in / 32;
    char *at = aligned_alloc(64, (in / 4 + 2 * groups + tokens * groups * 8 / vector + 1) * vector);
    Unpacked u = {(words *)at};
    if (!at) return u;
    u.by = (ints *)(u.words + in / 4);
    u.below = (words *)(u.by + groups);
    u.as_floats = (float *)(u.below + groups);
    u.sums = (int16_t *)(u.as_floats + tokens * groups);
    for (int64_t g = 0; g < tokens * groups; g++) u.as_floats[g] = sums[2 * g] + sums[2 * g + 1];
    for (int64_t g = 0; g < 2 * tokens * groups; g++) u.sums[g] = sums[g];
    return u;
}

/* The same with the rows of each panel behind the first ones. */
INLINE Blocks behind(const Blocks *b, int64_t rows) {
    Blocks to = *b;
    to.low += rows * 4;
    to.high += rows * 4;
    to.scale += rows * (b->format == Q6_K ? 1 : 4);
    to.by += rows;
    to.plus += rows;
    return to;
}

void multiply_blocks(const Blocks *parts, const float *bias, const uint8_t *x, const int32_t *sums, const float *scale,
                     float *y, int64_t tokens, int64_t in, int64_t out, int64_t from, int64_t to, int add) {
    const Unpacked u = tokens < FEW ? (Unpacked){0} : room_for(sums, tokens, in);
    for (int64_t row = from, first = 0; row < to; row += LANES) {
        while (row >= first + parts->rows) first += parts++->rows;
        const int64_t p = (row - first) / PANEL;
        const int rows = to - row < LANES ? to - row : LANES;
        const Blocks part = behind(parts, (row - first) % PANEL);
        const float *those = bias ? bias + row : 0;
#define OF(FORMAT) \
    if (parts->format == FORMAT && u.words) \
        unpacked_panels(&part, p, those, x, scale, y + row, tokens, in, out, rows, add, FORMAT, u); \
    for (int64_t t = 0; parts->format == FORMAT && !u.words && t < tokens; t++) \
        panel(&part, p, those, x + t * in, sums + t * (in / GROUP), scale + t * (in / near_to(in)), \
              y + t * out + row, in, rows, add, FORMAT)
        OF(Q4_0);
        OF(Q4_1);
        OF(Q5_0);
        OF(Q8_0);
        OF(Q4_K);
        OF(Q6_K);
#undef OF
    }
    free(u.words);
}

void sum_groups(uint8_t *x, int32_t *sums, int64_t tokens, int64_t in) {
    for (int64_t g = 0; g < tokens * (in / GROUP); g++) {
        int32_t sum = -128 * GROUP;
        for (int i = 0; i < GROUP; i++) {
            sum += x[g * GROUP + i];
            x[g * GROUP + i] ^= 0x80;
        }
        sums[g] = sum;
    }
}
