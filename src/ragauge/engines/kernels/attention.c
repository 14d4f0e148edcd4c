/* Softmax attention of many queries, whose scores never leave a core's cache: keys are taken in blocks, and a query
 * keeps its largest score, the sum of its weights and its weighted values so far (FlashAttention, Dao et al., 2022).
 *
 * Both products, of queries with keys and of weights with values, are of words: a word is a float32 or, where the
 * processor multiplies them, a pair of bfloat16 (as with torch's own kernel, weights are rounded to bfloat16 then).
 * Sums are float32. `compiled.py` calls it.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include "vectors.h"

#ifdef __AVX512F__
#define TILE 12 /* queries that are multiplied together */
#else
#define TILE 6
#endif
#define PANEL (2 * LANES) /* keys, or a value's numbers, that are multiplied together */
#define BLOCK 128         /* keys whose scores are kept */
#define STREAMS 4         /* tiles, at least, that read a block while it is near the core */

enum { FLOAT32, BFLOAT16 };
enum { NONE, SOME, ALL };

typedef struct { /* (row, head, token, number), the last of stride 1 */
    const void *at;
    int64_t row, head, token;
} Operand;

typedef struct {
    Operand q, k, v;
    void *y;             /* (row, query, head, dim) */
    const int64_t *slots; /* (row, key): the tokens that are a row's keys; null: all, in their order */
    const uint8_t *mask; /* (row, query, key), not 0 where attended; null: all, or the lower triangle */
    int64_t mask_row, mask_query;
    int64_t rows, heads, kv_heads, queries, keys, dim, kind, causal;
} Attention;

#ifdef __AVX512BF16__
#define PAIRS 1
INLINE floats pairs(floats to, uint32_t a, words b) {
    return (floats)_mm512_dpbf16_ps((__m512)to, (__m512bh)_mm512_set1_epi32(a), (__m512bh)b);
}
INLINE void rounded(uint16_t *into, floats x) {
    *(__m256i *)into = (__m256i)_mm512_cvtneps_pbh((__m512)x);
}
#else
#define PAIRS 0
INLINE floats pairs(floats to, uint32_t a, words b) { return to; }
INLINE void rounded(uint16_t *into, floats x) {}
#endif

INLINE int64_t up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/* --- words --- */

/* The numbers of a token: `step` words further, as many as `paired` says. */
INLINE uint32_t word(const void *token, int64_t step, int kind, int paired) {
    if (kind == FLOAT32) return ((const uint32_t *)token)[step];
    return paired ? ((const uint32_t *)token)[step] : (uint32_t)((const uint16_t *)token)[step] << 16;
}

INLINE const void *token(Operand x, int64_t row, int64_t head, int64_t at, int kind) {
    const int64_t index = row * x.row + head * x.head + at * x.token;
    return (const char *)x.at + index * (kind == FLOAT32 ? 4 : 2);
}

INLINE const void *key(const Attention *a, Operand x, int64_t row, int64_t head, int64_t at, int kind) {
    return a->slots ? token(x, 0, head, a->slots[row * a->keys + at], kind) : token(x, row, head, at, kind);
}

#ifdef __AVX512F__
/* LANES words of LANES tokens from one on -> to (word, PANEL); words of a token that there is not are 0. */
INLINE void transpose(const void *const *tokens, int64_t step, uint32_t *to) {
    __m512i x[LANES], y[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = tokens[i] ? _mm512_loadu_si512((const uint32_t *)tokens[i] + step) : _mm512_setzero_si512();
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) /* x[i + j]: of 4 tokens, in quarter q their word 4 q + j */
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    for (int j = 0; j < 4; j++) {
        const __m512i even = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88), odd = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xdd);
        const __m512i even_after = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
        const __m512i odd_after = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xdd);
        _mm512_storeu_si512(to + j * PANEL, _mm512_shuffle_i32x4(even, even_after, 0x88));
        _mm512_storeu_si512(to + (4 + j) * PANEL, _mm512_shuffle_i32x4(odd, odd_after, 0x88));
        _mm512_storeu_si512(to + (8 + j) * PANEL, _mm512_shuffle_i32x4(even, even_after, 0xdd));
        _mm512_storeu_si512(to + (12 + j) * PANEL, _mm512_shuffle_i32x4(odd, odd_after, 0xdd));
    }
}
#endif

/* A panel of keys (word, key), and the same tokens' values (key word, number); tokens that there are not are 0. */
INLINE void pack(const Attention *a, int64_t row, int64_t head, int64_t first, uint32_t *k, uint32_t *v, int kind,
                 int paired) {
    const int64_t each = paired ? 2 : 1, left = a->keys - first, count = left < PANEL ? left : PANEL;
    const int64_t steps = a->dim / each;
    for (int64_t j = 0; j < PANEL; j += LANES) {
        const void *from[LANES];
        int64_t begun = 0;
        for (int i = 0; i < LANES; i++)
            from[i] = j + i < count ? key(a, a->k, row, head, first + j + i, kind) : NULL;
#ifdef __AVX512F__
        for (; (kind == FLOAT32 || paired) && begun + LANES <= steps; begun += LANES)
            transpose(from, begun, k + begun * PANEL + j);
#endif
        for (int i = 0; i < LANES; i++)
            for (int64_t s = begun; s < steps; s++) k[s * PANEL + j + i] = from[i] ? word(from[i], s, kind, paired) : 0;
    }
    for (int64_t j = 0; j < PANEL; j += each, v += a->dim) {
        const void *one = j < count ? key(a, a->v, row, head, first + j, kind) : NULL;
        if (!paired) {
            for (int64_t d = 0; d < a->dim; d++) v[d] = one ? word(one, d, kind, 0) : 0;
        } else {
            const uint16_t *low = one, *high = j + 1 < count ? key(a, a->v, row, head, first + j + 1, kind) : NULL;
            for (int64_t d = 0; d < a->dim; d++) v[d] = (low ? low[d] : 0) | (high ? (uint32_t)high[d] << 16 : 0);
        }
    }
}

/* --- a tile --- */

/* to (TILE, wide * LANES) += a (TILE, word) b (word, wide * LANES) */
INLINE void multiply(floats to[TILE][2], const uint32_t *a, int step, int row, const uint32_t *b, int64_t width,
                     int64_t steps, int wide, int paired) {
    for (int64_t s = 0; s < steps; s++, a += step, b += width) {
        words those[2];
        for (int w = 0; w < wide; w++) those[w] = *(const words *)(b + w * LANES);
        for (int i = 0; i < TILE; i++)
            for (int w = 0; w < wide; w++) {
                if (paired) to[i][w] = pairs(to[i][w], a[i * row], those[w]);
                else to[i][w] += as_float(a[i * row]) * (floats)those[w];
            }
    }
}

/* scores (TILE, BLOCK) of queries (word, TILE) with a block of keys */
INLINE void score(const uint32_t *q, const uint32_t *k, float *scores, int64_t keys, int64_t steps, int paired) {
    for (int64_t first = 0; first < keys; first += PANEL, k += PANEL * steps) {
        floats part[TILE][2];
        for (int i = 0; i < TILE; i++) part[i][0] = part[i][1] = all(0);
        multiply(part, q, TILE, 1, k, PANEL, steps, 2, paired);
        for (int i = 0; i < TILE; i++)
            for (int w = 0; w < 2; w++) *(floats *)(scores + i * BLOCK + first + w * LANES) = part[i][w];
    }
}

/* values (TILE, dim) = values * by + weights (TILE, BLOCK words) v (word, dim) */
INLINE void add(float *values, const float *by, const uint32_t *weights, const uint32_t *v, int64_t steps, int64_t dim,
                int paired) {
    for (int64_t d = 0; d < dim; d += PANEL) {
        const int wide = dim - d >= PANEL ? 2 : 1;
        floats part[TILE][2];
        for (int i = 0; i < TILE; i++)
            for (int w = 0; w < wide; w++) part[i][w] = *(floats *)(values + i * dim + d + w * LANES) * by[i];
        if (wide == 2)
            multiply(part, weights, 1, BLOCK, v + d, dim, steps, 2, paired);
        else
            multiply(part, weights, 1, BLOCK, v + d, dim, steps, 1, paired);
        for (int i = 0; i < TILE; i++)
            for (int w = 0; w < wide; w++) *(floats *)(values + i * dim + d + w * LANES) = part[i][w];
    }
}

/* Scores -> weights (TILE, BLOCK words), which replace them; `by` is what earlier weights are multiplied by. */
INLINE void weigh(float *scores, int64_t keys, float scale, float *most, float *total, float *by, int paired) {
    for (int i = 0; i < TILE; i++) {
        float *at = scores + i * BLOCK;
        floats high = *(floats *)at, sums = all(0);
        for (int64_t j = LANES; j < keys; j += LANES) high = larger(high, *(floats *)(at + j));
        const float now = fmaxf(most[i], largest(high) * scale);
        by[i] = now == most[i] ? 1 : expf(most[i] - now);
        most[i] = now;
        for (int64_t j = 0; j < keys; j += LANES) {
            floats one = exponential(*(floats *)(at + j) * scale - now);
            sums += one;
            if (paired)
                rounded((uint16_t *)at + j, one); /* behind what is still to be read */
            else
                *(floats *)(at + j) = one;
        }
        total[i] = total[i] * by[i] + sum(sums);
    }
}

/* --- what a query attends to --- */

INLINE const uint8_t *mask_of(const Attention *a, int64_t row, int64_t query) {
    return a->mask + row * a->mask_row + query * a->mask_query;
}

static int visible(const Attention *a, int64_t row, int64_t query, int64_t first, int64_t keys) {
    const int64_t last = query + TILE < a->queries ? query + TILE - 1 : a->queries - 1;
    if (a->causal && first > last) return NONE;
    if (first + keys > a->keys || (a->causal && first + keys - 1 > query)) return SOME;
    if (!a->mask) return ALL;
    uint8_t any = 0, every = 1;
    for (int64_t i = query; i <= last; i++) {
        const uint8_t *mask = mask_of(a, row, i) + first;
        for (int64_t j = 0; j < keys; j++) any |= mask[j], every &= mask[j];
    }
    return !any ? NONE : every && last == query + TILE - 1 ? ALL : SOME;
}

static void hide(const Attention *a, int64_t row, int64_t query, int64_t first, int64_t keys, float *scores) {
    for (int64_t i = 0; i < TILE && query + i < a->queries; i++) {
        float *at = scores + i * BLOCK;
        int64_t stop = a->causal ? query + i + 1 - first : keys;
        stop = a->keys - first < stop ? a->keys - first : stop;
        stop = stop < 0 ? 0 : stop;
        for (int64_t j = stop; j < keys; j++) at[j] = -INFINITY;
        if (a->mask) {
            const uint8_t *mask = mask_of(a, row, query + i) + first;
            for (int64_t j = 0; j < stop && j < keys; j++) at[j] = mask[j] ? at[j] : -INFINITY;
        }
    }
}

/* --- a task: some tiles of the queries of all heads that share keys --- */

typedef struct {
    uint32_t *q;             /* (tile, word, TILE) */
    float *values;           /* (tile, TILE, dim) */
    float *most, *total;     /* (tile, TILE) */
    float *scores;           /* (TILE, BLOCK) */
} Space;

INLINE void begin(const Attention *a, int64_t row, int64_t head, int64_t query, Space s, int64_t tile, int kind,
                  int paired) {
    const int64_t steps = a->dim / (paired ? 2 : 1);
    uint32_t *q = s.q + tile * steps * TILE;
    for (int64_t i = 0; i < TILE; i++) {
        const void *from = query + i < a->queries ? token(a->q, row, head, query + i, kind) : NULL;
        for (int64_t n = 0; n < steps; n++) q[n * TILE + i] = from ? word(from, n, kind, paired) : 0;
        s.most[tile * TILE + i] = -1e30f; /* with which a query that attends to nothing has weights of 0 */
        s.total[tile * TILE + i] = 0;
    }
    memset(s.values + tile * TILE * a->dim, 0, TILE * a->dim * sizeof(float));
}

static void end(const Attention *a, int64_t row, int64_t head, int64_t query, Space s, int64_t tile) {
    for (int64_t i = 0; i < TILE && query + i < a->queries; i++) {
        const int64_t at = ((row * a->queries + query + i) * a->heads + head) * a->dim;
        const float *values = s.values + (tile * TILE + i) * a->dim;
        const float total = s.total[tile * TILE + i];
        const float by = total > 0 || total != total ? 1 / total : 0;
        for (int64_t d = 0; d < a->dim; d++) {
            const float x = values[d] * by;
            if (a->kind == FLOAT32)
                ((float *)a->y)[at + d] = x;
            else
                ((uint16_t *)a->y)[at + d] = half(x);
        }
    }
}

INLINE void run(const Attention *a, int64_t row, int64_t group, int64_t query, int64_t tiles, const uint32_t *k,
                const uint32_t *v, Space s, int kind, int paired) {
    const int64_t each = paired ? 2 : 1, steps = a->dim / each, shared = a->heads / a->kv_heads;
    const int64_t keys = up(a->keys, PANEL), past = query + tiles * TILE;
    const int64_t stop = a->causal && past < keys ? past : keys;
    const float scale = 1 / sqrtf(a->dim);
    for (int64_t t = 0; t < tiles * shared; t++)
        begin(a, row, group * shared + t % shared, query + t / shared * TILE, s, t, kind, paired);
    for (int64_t first = 0; first < stop; first += BLOCK) {
        const int64_t count = keys - first < BLOCK ? keys - first : BLOCK;
        int seen = NONE;
        for (int64_t t = 0; t < tiles * shared; t++) {
            const int64_t at = query + t / shared * TILE;
            float by[TILE];
            if (t % shared == 0) seen = visible(a, row, at, first, count);
            if (seen == NONE) continue;
            score(s.q + t * steps * TILE, k + first * steps, s.scores, count, steps, paired);
            if (seen == SOME) hide(a, row, at, first, count, s.scores);
            weigh(s.scores, count, scale, s.most + t * TILE, s.total + t * TILE, by, paired);
            add(s.values + t * TILE * a->dim, by, (uint32_t *)s.scores, v + first / each * a->dim, count / each, a->dim,
                paired);
        }
    }
    for (int64_t t = 0; t < tiles * shared; t++)
        end(a, row, group * shared + t % shared, query + t / shared * TILE, s, t);
}

/* The keys and values of a set of rows and heads from `first` on, as many panels as `count` says. */
static void pack_set(const Attention *a, int64_t set, int64_t first, int64_t count, uint32_t *k, uint32_t *v,
                     int paired) {
    const int64_t row = set / a->kv_heads, head = set % a->kv_heads, steps = a->dim / (paired ? 2 : 1);
    for (int64_t n = first; n < first + count; n++) {
        uint32_t *to_k = k + n * PANEL * steps, *to_v = v + n * PANEL * steps;
        if (a->kind == FLOAT32) pack(a, row, head, n * PANEL, to_k, to_v, FLOAT32, 0);
        else if (paired) pack(a, row, head, n * PANEL, to_k, to_v, BFLOAT16, 1);
        else pack(a, row, head, n * PANEL, to_k, to_v, BFLOAT16, 0);
    }
}

/* 1 if memory is short: nothing is written then. */
int attention(const Attention *a, int threads) {
    const int paired = PAIRS && a->kind == BFLOAT16;
    const int64_t keys = up(a->keys, PANEL), shared = a->heads / a->kv_heads, sets = a->rows * a->kv_heads;
    const int64_t steps = a->dim / (paired ? 2 : 1), one = keys * steps; /* words of the keys of a set, or values */
    const int64_t tiles = (STREAMS + shared - 1) / shared, span = tiles * TILE, tasks = (a->queries + span - 1) / span;
    const int64_t room = up(tiles * shared * TILE * (steps + a->dim + 2) + TILE * BLOCK, 16);
    const int apart = tasks == 1; /* a thread packs the keys of its task, which stay near it */
    const int64_t size = up(2 * (apart ? threads : sets) * one * 4, 64), panels = keys / PANEL;
    uint32_t *packed = aligned_alloc(64, size), *spaces = aligned_alloc(64, threads * room * 4);
    if (!packed || !spaces) return free(packed), free(spaces), 1;
#pragma omp parallel num_threads(threads)
    {
        uint32_t *mine = spaces + omp_get_thread_num() * room;
        const int64_t all_tiles = tiles * shared * TILE;
        Space s = {.scores = (float *)mine, .q = mine + TILE * BLOCK};
        s.values = (float *)s.q + all_tiles * steps;
        s.most = s.values + all_tiles * a->dim, s.total = s.most + all_tiles;
        if (!apart) {
#pragma omp for schedule(static)
            for (int64_t n = 0; n < sets * panels; n++) {
                uint32_t *k = packed + 2 * (n / panels) * one;
                pack_set(a, n / panels, n % panels, 1, k, k + one, paired);
            }
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sets * tasks; n++) {
            const int64_t task = a->causal ? sets * tasks - 1 - n : n; /* the longest first */
            const int64_t set = task / tasks, query = task % tasks * span;
            uint32_t *k = packed + 2 * (apart ? omp_get_thread_num() : set) * one, *v = k + one;
            if (apart) pack_set(a, set, 0, panels, k, v, paired);
            const int64_t row = set / a->kv_heads, group = set % a->kv_heads;
            if (a->kind == FLOAT32) run(a, row, group, query, tiles, k, v, s, FLOAT32, 0);
            else if (paired) run(a, row, group, query, tiles, k, v, s, BFLOAT16, 1);
            else run(a, row, group, query, tiles, k, v, s, BFLOAT16, 0);
        }
    }
    free(packed), free(spaces);
    return 0;
}
