/* A few tokens through layers of a decoder, and products of a few rows: one call in place of some tens of operators a
 * layer. Everything is computed in float32 whatever weights and caches are kept in; products of 8-bit integers are exact.
 * `compiled.py` calls it and says what the structures hold. All threads run a pass together and wait for each other
 * between its steps; what is cheap, such as a norm, every thread computes for itself.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include "blocks.h"
#include "vectors.h"
#ifdef __AVX512F__
#define TOKENS 6 /* that a block of a product has at most: with ROWS rows, their sums fill the registers */
#define WIDE 12  /* tokens that two panels are multiplied with, or one of two vectors */
#else
#define TOKENS 2
#define WIDE 4
#endif
#define ROWS 4   /* of a matrix, that are multiplied together */
#define NEAR 120 /* tokens whose activations stay near a core while a matrix passes */
#define CHUNK 128 /* keys that a task of an attention has at most */

enum { FLOAT32, BFLOAT16, INT8, BLOCKS };

typedef struct {
    /* (out, in); of INT8 (panel, in / 4, PANEL, 4), 0 where there is no row or number; of BLOCKS those of blocks.h */
    const void *weight;
    const float *scale;   /* (out,) in whole panels: of 8-bit integers */
    const int32_t *moved; /* the same: 128 times the sum of a row, of INT8 */
    const float *bias;    /* (out,), in whole panels for INT8, or null */
    int64_t out, in, kind;
} Matrix;

typedef struct {
    Matrix qkv, out, up, down;                       /* rows of up: the gate, then the value */
    const float *attention_norm, *mlp_norm;          /* (width,) */
    const float *q_norm, *k_norm;                    /* (dim,) or null */
    int64_t heads, kv_heads;
} Layer;

typedef struct {
    void *k, *v; /* (kv_head, slot, dim) */
    int64_t slots, kind;
} Cache;

typedef struct {
    int64_t cache, slot;  /* where its key and value go */
    int64_t first, keys;  /* the slots that it attends to, its own included */
} Token;

/* --- vectors --- */

INLINE floats read(const void *at, int64_t index, int kind) {
    if (kind == FLOAT32) return *(const floats *)((const float *)at + index);
    return widened((const uint16_t *)at + index);
}

INLINE float read_one(const void *at, int64_t index, int kind) {
    if (kind == FLOAT32) return ((const float *)at)[index];
    return as_float((uint32_t)((const uint16_t *)at)[index] << 16);
}

/* --- products --- */

/* Memory is read into the second cache: the first one waits for few lines at a time. */
#define SOON(at) __builtin_prefetch(at, 0, 2)

INLINE void block(const Matrix *m, const float *x, float *y, int64_t row, int rows, int tokens, int add, int kind) {
    const int64_t in = m->in, whole = in - in % LANES;
    const int size = kind == FLOAT32 ? 4 : 2;
    const char *w[ROWS];
    floats part[ROWS][TOKENS];
    for (int r = 0; r < rows; r++) {
        w[r] = (const char *)m->weight + (row + r) * in * size;
        for (int t = 0; t < tokens; t++) part[r][t] = all(0);
    }
    for (int64_t i = 0; i < whole; i += LANES) {
        floats those[TOKENS];
        for (int t = 0; t < tokens; t++) {
            those[t] = *(const floats *)(x + t * in + i);
            STAY(those[t]);
        }
        for (int r = 0; r < rows; r++) {
            floats these = read(w[r], i, kind);
            STAY(these);
            SOON(w[r] + (rows * in + i) * size); /* the rows after these */
            for (int t = 0; t < tokens; t++) part[r][t] += these * those[t];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++) {
            float z = sum(part[r][t]);
            for (int64_t i = whole; i < in; i++) z += read_one(w[r], i, kind) * x[t * in + i];
            if (m->bias) z += m->bias[row + r];
            float *at = y + t * m->out + row + r;
            *at = add ? *at + z : z;
        }
}

/* --- products of 8-bit integers --- */

#define VECTORS (PANEL / LANES) /* of a panel */

/* y (token, out) = or += of some panels, for the rows from .. to alone. Activations are 128 above what is meant. */
INLINE void panels(const Matrix *m, const uint8_t *x, const float *scale, float *y, int64_t first, int count,
                   int tokens, int64_t from, int64_t to, int add) {
    const int64_t in = m->in, steps = (in + 3) / 4;
    const int32_t *w = (const int32_t *)m->weight + first * steps;
    ints part[WIDE][4 * VECTORS];
    for (int t = 0; t < tokens; t++)
        for (int v = 0; v < count * VECTORS; v++) part[t][v] = (ints){0};
    for (int64_t s = 0; s < steps; s++) {
        ints those[4 * VECTORS];
        for (int p = 0; p < count; p++) {
            for (int v = 0; v < VECTORS; v++)
                those[p * VECTORS + v] = *(const ints *)(w + (p * steps + s) * PANEL + v * LANES);
            SOON(w + ((p + count) * steps + s) * PANEL); /* the panels after these */
        }
        for (int t = 0; t < tokens; t++) {
            const words four = (words)repeated(x + t * in + 4 * s); /* behind the last number, times 0 */
            for (int v = 0; v < count * VECTORS; v++) part[t][v] = dot(part[t][v], four, those[v], 0);
        }
    }
    for (int p = 0; p < count; p++) {
        const int64_t row = first + p * PANEL;
        const int whole = row >= from && row + PANEL <= to;
        for (int t = 0; t < tokens; t++) {
            const int32_t *sums = (const int32_t *)&part[t][p * VECTORS];
            float z[PANEL];
            for (int i = 0; i < PANEL; i++)
                z[i] = (float)(sums[i] - m->moved[row + i]) * m->scale[row + i] * scale[t];
            if (m->bias)
                for (int i = 0; i < PANEL; i++) z[i] += m->bias[row + i];
            float *at = y + t * m->out + row;
            if (whole) /* the usual case, in vectors */
                for (int i = 0; i < PANEL; i++) at[i] = add ? at[i] + z[i] : z[i];
            else
                for (int i = 0; i < PANEL; i++)
                    if (row + i >= from && row + i < to) at[i] = add ? at[i] + z[i] : z[i];
        }
    }
}

/* As many tokens together as sums stay in registers. */
INLINE void panels_of(const Matrix *m, const uint8_t *x, const float *scale, float *y, int64_t tokens, int64_t from,
                      int64_t to, int add) {
    const int64_t last = (to + PANEL - 1) / PANEL * PANEL;
    int64_t row = from / PANEL * PANEL;
#define SOME(COUNT, TOKENS) \
    for (; t + TOKENS <= tokens; t += TOKENS) \
        panels(m, x + t * m->in, scale + t, y + t * m->out, row, COUNT, TOKENS, from, to, add)
    for (; tokens == 1 && row + 4 * PANEL <= last; row += 4 * PANEL) {
        int64_t t = 0;
        SOME(4, 1);
    }
    for (; LANES == PANEL && row + 2 * PANEL <= last; row += 2 * PANEL) {
        int64_t t = 0;
        SOME(2, WIDE);
        SOME(2, 4);
        SOME(2, 1);
    }
    for (; row < last; row += PANEL) {
        int64_t t = 0;
        SOME(1, WIDE);
        SOME(1, 4);
        SOME(1, 1);
    }
#undef SOME
}

typedef struct { /* what a product multiplies with: (token, in) */
    const float *x;
    const uint8_t *rounded;
    const float *scale;  /* (token,), or for each near_to(in) activations of BLOCKS */
    const int32_t *sums; /* (token, in / GROUP): of BLOCKS */
} Input;

/* The tokens in blocks of one size, or one less. */
INLINE void rows_of(const Matrix *m, Input in, float *y, int64_t tokens, int64_t from, int64_t to, int add, int kind) {
    const int64_t blocks = (tokens + TOKENS - 1) / TOKENS;
    for (int64_t row = from; row < to; row += ROWS) {
        const int full = row + ROWS <= to;
        int64_t t = 0;
        for (int64_t left = blocks; full && left; left--) {
            const int64_t count = (tokens - t + left - 1) / left;
#define OF(COUNT) \
    if (COUNT <= TOKENS && count == COUNT) \
        block(m, in.x + t * m->in, y + t * m->out, row, ROWS, COUNT, add, kind)
            OF(1);
            OF(2);
            OF(3);
            OF(4);
            OF(5);
            OF(6);
#undef OF
            t += count;
        }
        for (int64_t r = row; !full && r < to; r++)
            for (int64_t u = 0; u < tokens; u++) block(m, in.x + u * m->in, y + u * m->out, r, 1, 1, add, kind);
    }
}

/* y (token, out) = or += x W' + b, of the matrix's rows from .. to. */
static void multiply(const Matrix *m, Input in, float *y, int64_t tokens, int64_t from, int64_t to, int add) {
    if (m->kind == FLOAT32) rows_of(m, in, y, tokens, from, to, add, FLOAT32);
    if (m->kind == BFLOAT16) rows_of(m, in, y, tokens, from, to, add, BFLOAT16);
    if (m->kind == INT8) panels_of(m, in.rounded, in.scale, y, tokens, from, to, add);
    if (m->kind == BLOCKS)
        multiply_blocks(m->weight, m->bias, in.rounded, in.sums, in.scale, y, tokens, m->in, m->out, from, to, add);
}

INLINE int is_whole(const Matrix *m) { return m->kind == INT8 || m->kind == BLOCKS; } /* of whole numbers */

/* The activations of a product with such a matrix: a scale a token, its largest magnitude over 127. */
static void quantise(const float *x, uint8_t *q, float *scale, int64_t tokens, int64_t width) {
    for (int64_t t = 0; t < tokens; t++, x += width, q += width) {
        floats most = all(1e-20f);
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            const floats these = *(const floats *)(x + i);
            most = larger(larger(these, -these), most); /* of NaN, what was before */
        }
        float top = largest(most);
        for (; i < width; i++) top = fmaxf(top, fabsf(x[i]));
        scale[t] = top * (1.0f / 127);
        float by = 1 / scale[t];
        i = 0;
#ifdef __AVX512F__
        for (; i + 16 <= width; i += 16) {
            __m512 y = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(by), _mm512_set1_ps(128.5f));
            _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(y)));
        }
#endif
        for (; i < width; i++) q[i] = (uint8_t)(x[i] * by + 128.5f);
    }
}

typedef struct { /* of one thread */
    float *x;
    uint8_t *rounded;
    float *scale;
    int32_t *sums;
} Own;

INLINE Input input(const Matrix *m, const float *x, Own own, int64_t tokens) {
    const int64_t near = m->kind == BLOCKS ? near_to(m->in) : m->in;
    if (is_whole(m)) quantise(x, own.rounded, own.scale, tokens * (m->in / near), near);
    if (m->kind == BLOCKS) sum_groups(own.rounded, own.sums, tokens, m->in);
    return (Input){x, own.rounded, own.scale, own.sums};
}

INLINE void share(int64_t all, int64_t of, int64_t *from, int64_t *to) { /* whole multiples of `of`, but the last */
    const int64_t parts = omp_get_num_threads(), mine = omp_get_thread_num(), groups = (all + of - 1) / of;
    *from = groups * mine / parts * of;
    *to = groups * (mine + 1) / parts * of;
    if (*to > all) *to = all;
}

INLINE int64_t group(const Matrix *m) { return is_whole(m) ? PANEL : ROWS; }

INLINE int64_t own_bytes(int64_t tokens, int64_t width) { return ((tokens * (6 * width + 8) + 63) / 64 + 1) * 64; }

/* The calling thread's part of `space`, which has as many bytes for each of them. */
static Own own(void *space, int64_t tokens, int64_t width) {
    char *at = (char *)space + omp_get_thread_num() * own_bytes(tokens, width);
    float *scale = (float *)at + tokens * width;
    int32_t *sums = (int32_t *)(scale + tokens * (width / 32 + 1));
    return (Own){(float *)at, (uint8_t *)(sums + tokens * (width / GROUP + 1)), scale, sums};
}

/* (token, in) -> (token, out); 1 if memory is short. */
int product(const Matrix *m, const float *x, float *y, int64_t tokens, int threads) {
    void *space = aligned_alloc(64, threads * own_bytes(tokens, m->in));
    if (!space) return 1;
#pragma omp parallel num_threads(threads)
    {
        int64_t from, to;
        share(m->out, group(m), &from, &to);
        multiply(m, input(m, x, own(space, tokens, m->in), tokens), y, tokens, from, to, 0);
    }
    free(space);
    return 0;
}

/* The same of whole numbers for many tokens, x and y in float32 or bfloat16: a thread has tokens of its own. */
int product_many(const Matrix *m, const void *x, void *y, int64_t tokens, int64_t kind, int threads) {
    const int64_t in = m->in, out = m->out, widest = in > out ? in : out;
    void *space = aligned_alloc(64, threads * own_bytes(NEAR, widest));
    if (!space) return 1;
#pragma omp parallel num_threads(threads)
    {
        int64_t from, to;
        Own mine = own(space, NEAR, widest);
        share(tokens, WIDE, &from, &to);
        for (int64_t t = from; t < to; t += NEAR) {
            const int64_t count = to - t < NEAR ? to - t : NEAR;
            const int widens = kind == BFLOAT16;
            float *into = widens ? mine.x : (float *)y + t * out;
            for (int64_t i = 0; widens && i < count * in; i++) mine.x[i] = read_one(x, t * in + i, BFLOAT16);
            multiply(m, input(m, widens ? mine.x : (const float *)x + t * in, mine, count), into, count, 0, out, 0);
            for (int64_t i = 0; widens && i < count * out; i++) ((uint16_t *)y)[t * out + i] = half(mine.x[i]);
        }
    }
    free(space);
    return 0;
}

/* The activations (token, width), in float32 or bfloat16, of a product with an INT8 matrix that torch makes. */
void quantised(const void *x, uint8_t *q, float *scale, int64_t tokens, int64_t width, int64_t kind, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        float row[kind == FLOAT32 ? 1 : width];
        for (int64_t i = 0; kind == BFLOAT16 && i < width; i++) row[i] = read_one(x, t * width + i, BFLOAT16);
        quantise(kind == FLOAT32 ? (const float *)x + t * width : row, q + t * width, scale + t, 1, width);
    }
}

/* Its result y (token, width) times the scale of each token, in place. */
void scaled(void *y, const float *scale, int64_t tokens, int64_t width, int64_t kind, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        float *at = (float *)y + t * width;
        uint16_t *half_at = (uint16_t *)y + t * width;
        for (int64_t i = 0; kind == FLOAT32 && i < width; i++) at[i] *= scale[t];
        for (int64_t i = 0; kind == BFLOAT16 && i < width; i++) half_at[i] = half(read_one(half_at, i, BFLOAT16) * scale[t]);
    }
}

/* --- log-probabilities --- */

INLINE float log_probability(const void *logits, int64_t vocab, int64_t target, int kind) {
    const int64_t whole = vocab - vocab % LANES;
    floats high = all(-INFINITY), sums = all(0);
    for (int64_t i = 0; i < whole; i += LANES) high = larger(high, read(logits, i, kind));
    float most = largest(high), total = 0;
    for (int64_t i = whole; i < vocab; i++) most = fmaxf(most, read_one(logits, i, kind));
    for (int64_t i = 0; i < whole; i += LANES) sums += exponential(read(logits, i, kind) - most);
    for (int64_t i = whole; i < vocab; i++) total += expf(read_one(logits, i, kind) - most);
    return read_one(logits, target, kind) - most - logf(total + sum(sums));
}

/* Logits (token, word) -> of each token, the log-probability of one word. */
void log_probabilities(const void *logits, const int64_t *targets, float *y, int64_t tokens, int64_t vocab,
                       int64_t kind, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        if (kind == FLOAT32) y[t] = log_probability((const float *)logits + t * vocab, vocab, targets[t], FLOAT32);
        else y[t] = log_probability((const uint16_t *)logits + t * vocab, vocab, targets[t], BFLOAT16);
    }
}

/* --- steps of a layer --- */

static void norm(const float *x, const float *weight, float *y, int64_t width, float eps) {
    floats squares = all(0);
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) squares += *(const floats *)(x + i) * *(const floats *)(x + i);
    float total = sum(squares);
    for (; i < width; i++) total += x[i] * x[i];
    const float by = 1 / sqrtf(total / width + eps);
    for (i = 0; i < width; i++) y[i] = x[i] * by * weight[i];
}

/* RMSNorm of rows (token, width) in float32 or bfloat16. */
void normed(const void *x, void *y, const float *weight, int64_t tokens, int64_t width, int64_t kind, float eps,
            int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        float row[kind == FLOAT32 ? 1 : width];
        for (int64_t i = 0; kind == BFLOAT16 && i < width; i++) row[i] = read_one(x, t * width + i, BFLOAT16);
        if (kind == FLOAT32) norm((const float *)x + t * width, weight, (float *)y + t * width, width, eps);
        else norm(row, weight, row, width, eps);
        for (int64_t i = 0; kind == BFLOAT16 && i < width; i++) ((uint16_t *)y)[t * width + i] = half(row[i]);
    }
}

INLINE void turn(float *x, const float *cos, const float *sin, int64_t dim) { /* half-split, the first sines negated */
    for (int64_t i = 0, half = dim / 2; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] + b * sin[i];
        x[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

/* Some heads of each token (token, head, dim), in float32 or bfloat16, rotated by the token's cos, sin (token, dim) in
 * place; from a token to the next are `stride` numbers.
 */
void rotated(void *x, const float *cos, const float *sin, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
             int64_t kind, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t at = t * stride + h * dim;
            float row[kind == FLOAT32 ? 1 : dim];
            for (int64_t i = 0; kind == BFLOAT16 && i < dim; i++) row[i] = read_one(x, at + i, BFLOAT16);
            turn(kind == FLOAT32 ? (float *)x + at : row, cos + t * dim, sin + t * dim, dim);
            for (int64_t i = 0; kind == BFLOAT16 && i < dim; i++) ((uint16_t *)x)[at + i] = half(row[i]);
        }
}

static void keep(void *into, int64_t slot, const float *x, int64_t dim, int64_t kind) {
    if (kind == FLOAT32) memcpy((float *)into + slot * dim, x, dim * sizeof *x);
    if (kind == BFLOAT16)
        for (int64_t i = 0; i < dim; i++) ((uint16_t *)into)[slot * dim + i] = half(x[i]);
}

/* Softmax over some keys of one query: `part` is the largest score, the sum of weights, and the weighted values. */
INLINE void attend(const float *q, const void *k, const void *v, int64_t keys, int64_t dim, float *part, int kind) {
    float weight[CHUNK + LANES];
    float most = -INFINITY, total = 0;
    for (int64_t j = 0; j < keys; j++) {
        floats product = all(0);
        for (int64_t i = 0; i < dim; i += LANES) product += *(const floats *)(q + i) * read(k, j * dim + i, kind);
        weight[j] = sum(product);
        if (weight[j] > most) most = weight[j];
    }
    for (int64_t j = keys; j < keys + LANES; j++) weight[j] = -INFINITY;
    floats sums = all(0);
    for (int64_t j = 0; j < keys; j += LANES) {
        floats one = exponential(*(floats *)(weight + j) - most);
        sums += one;
        *(floats *)(weight + j) = one;
    }
    total = sum(sums);
    part[0] = most;
    part[1] = total;
    for (int64_t first = 0; first < dim; first += 4 * LANES) { /* so many sums stay in registers */
        const int64_t width = dim - first < 4 * LANES ? dim - first : 4 * LANES;
        if (width == 4 * LANES) {
            floats a = all(0), b = all(0), c = all(0), d = all(0);
            for (int64_t j = 0; j < keys; j++) {
                const int64_t at = j * dim + first;
                a += weight[j] * read(v, at, kind);
                b += weight[j] * read(v, at + LANES, kind);
                c += weight[j] * read(v, at + 2 * LANES, kind);
                d += weight[j] * read(v, at + 3 * LANES, kind);
            }
            floats *into = (floats *)(part + 2 + first);
            into[0] = a, into[1] = b, into[2] = c, into[3] = d;
        } else
            for (int64_t i = first; i < first + width; i += LANES) {
                floats a = all(0);
                for (int64_t j = 0; j < keys; j++) a += weight[j] * read(v, j * dim + i, kind);
                *(floats *)(part + 2 + i) = a;
            }
    }
}

INLINE int64_t chunks(int64_t keys) { return (keys + CHUNK - 1) / CHUNK; }

/* Parts (token, head, chunk, 2 + dim) of all queries, which the threads share. */
static void attend_parts(const Layer *layer, const Cache *caches, const Token *tokens, int64_t count, const float *qkv,
                         float *parts, int64_t dim, int64_t room) {
    const int64_t kv = layer->kv_heads, group = layer->heads / kv, width = (layer->heads + 2 * kv) * dim;
    int64_t from, to, all = 0, task = 0;
    for (int64_t t = 0; t < count; t++) all += kv * chunks(tokens[t].keys);
    share(all, 1, &from, &to);
    for (int64_t t = 0; t < count; t++)
        for (int64_t g = 0; g < kv; g++)
            for (int64_t c = 0; c < chunks(tokens[t].keys); c++, task++) {
                if (task < from || task >= to) continue;
                const Cache *cache = caches + tokens[t].cache;
                const int64_t first = tokens[t].first + c * CHUNK, left = tokens[t].keys - c * CHUNK;
                const int64_t keys = left < CHUNK ? left : CHUNK, slot = g * cache->slots + first;
                const int size = cache->kind == FLOAT32 ? 4 : 2;
                const char *k = (char *)cache->k + slot * dim * size, *v = (char *)cache->v + slot * dim * size;
                for (int64_t h = g * group; h < (g + 1) * group; h++) {
                    const float *q = qkv + t * width + h * dim;
                    float *part = parts + ((t * layer->heads + h) * room + c) * (2 + dim);
                    if (cache->kind == FLOAT32) attend(q, k, v, keys, dim, part, FLOAT32);
                    if (cache->kind == BFLOAT16) attend(q, k, v, keys, dim, part, BFLOAT16);
                }
            }
}

/* Parts of every head -> the heads' outputs side by side (token, head * dim). */
static void merge(const float *parts, const Token *tokens, int64_t count, int64_t heads, int64_t dim, int64_t room,
                  float *y) {
    for (int64_t t = 0; t < count; t++)
        for (int64_t h = 0; h < heads; h++, y += dim) {
            const float *part = parts + (t * heads + h) * room * (2 + dim);
            const int64_t n = chunks(tokens[t].keys);
            float most = -INFINITY, total = 0;
            for (int64_t c = 0; c < n; c++) most = fmaxf(most, part[c * (2 + dim)]);
            memset(y, 0, dim * sizeof *y);
            for (int64_t c = 0; c < n; c++) {
                const float *one = part + c * (2 + dim), by = expf(one[0] - most);
                total += by * one[1];
                for (int64_t i = 0; i < dim; i++) y[i] += by * one[2 + i];
            }
            for (int64_t i = 0; i < dim; i++) y[i] /= total;
        }
}

/* Normed and rotated queries, scaled, in place; keys and values into the caches. The threads share the heads. */
static void place(const Layer *layer, const Cache *caches, const Token *tokens, int64_t count, float *qkv,
                  const float *cos, const float *sin, int64_t dim, float eps) {
    const int64_t heads = layer->heads, kv = layer->kv_heads, each = heads + 2 * kv;
    const float by = 1 / sqrtf(dim);
    int64_t from, to;
    share(count * each, 1, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t t = i / each, h = i % each;
        float *x = qkv + i * dim;
        const Cache *cache = caches + tokens[t].cache;
        if (h < heads + kv) {
            const float *weight = h < heads ? layer->q_norm : layer->k_norm;
            if (weight) norm(x, weight, x, dim, eps);
            turn(x, cos + t * dim, sin + t * dim, dim);
        }
        if (h < heads)
            for (int64_t j = 0; j < dim; j++) x[j] *= by;
        else if (h < heads + kv)
            keep(cache->k, (h - heads) * cache->slots + tokens[t].slot, x, dim, cache->kind);
        else
            keep(cache->v, (h - heads - kv) * cache->slots + tokens[t].slot, x, dim, cache->kind);
    }
}

/* silu(gate) * value of the inner units from .. to, in place of the gate. */
static void activate(float *inner, int64_t tokens, int64_t units, int64_t from, int64_t to) {
    for (int64_t t = 0; t < tokens; t++) {
        float *gate = inner + 2 * t * units, *value = gate + units;
        int64_t i = from;
        for (; i + LANES <= to; i += LANES) {
            floats *at = (floats *)(gate + i), x = *at;
            words negative = (words)(x < 0);
            floats e = exponential((floats)((words)x | 0x80000000u)); /* of -|x| */
            floats top = (floats)(((words)e & negative) | ((words)all(1) & ~negative));
            *at = x * top / (1 + e) * *(floats *)(value + i);
        }
        for (; i < to; i++) gate[i] = gate[i] / (1 + expf(-gate[i])) * value[i];
    }
}

/* silu(gate) * value of a gated MLP: inner (token, gate then value) -> y (token, unit), in float32 or bfloat16. */
void gated(const void *inner, void *y, int64_t tokens, int64_t units, int64_t kind, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t first = 2 * t * units;
        float row[2 * units];
        if (kind == FLOAT32) memcpy(row, (const float *)inner + first, sizeof row);
        for (int64_t i = 0; kind == BFLOAT16 && i < 2 * units; i++) row[i] = read_one(inner, first + i, BFLOAT16);
        activate(row, 1, units, 0, units);
        if (kind == FLOAT32) memcpy((float *)y + t * units, row, units * sizeof *row);
        for (int64_t i = 0; kind == BFLOAT16 && i < units; i++) ((uint16_t *)y)[t * units + i] = half(row[i]);
    }
}

/* States x (token, width) through layers, in place.
 *
 * caches: (layer, cache); cos, sin: (token, dim). 1 if memory is short, and nothing is changed.
 */
int through(const Layer *layers, int64_t count, const Cache *caches, int64_t each, const Token *tokens, int64_t new,
         float *x, const float *cos, const float *sin, int64_t width, int64_t dim, float eps, int threads) {
    int64_t widest = width, rows = 0, units = 0, heads = 0, room = 0;
    for (int64_t l = 0; l < count; l++) {
        if (layers[l].qkv.out > rows) rows = layers[l].qkv.out;
        if (layers[l].down.in > units) units = layers[l].down.in;
        if (layers[l].heads > heads) heads = layers[l].heads;
    }
    for (int64_t t = 0; t < new; t++) room = chunks(tokens[t].keys) > room ? chunks(tokens[t].keys) : room;
    widest = units > widest ? units : widest;
    widest = heads * dim > widest ? heads * dim : widest;
    float *qkv = malloc(new * (rows + 2 * units + heads * room * (2 + dim)) * sizeof *x);
    void *space = aligned_alloc(64, threads * own_bytes(new, widest));
    if (!qkv || !space) return free(qkv), free(space), 1;
    float *inner = qkv + new * rows, *parts = inner + 2 * new * units;
#pragma omp parallel num_threads(threads)
    {
        Own mine = own(space, new, widest);
        for (int64_t l = 0; l < count; l++) {
            const Layer *layer = layers + l;
            const Cache *kept = caches + l * each;
            int64_t from, to;
            for (int64_t t = 0; t < new; t++)
                norm(x + t * width, layer->attention_norm, mine.x + t * width, width, eps);
            share(layer->qkv.out, group(&layer->qkv), &from, &to);
            multiply(&layer->qkv, input(&layer->qkv, mine.x, mine, new), qkv, new, from, to, 0);
#pragma omp barrier
            place(layer, kept, tokens, new, qkv, cos, sin, dim, eps);
#pragma omp barrier
            attend_parts(layer, kept, tokens, new, qkv, parts, dim, room);
#pragma omp barrier
            merge(parts, tokens, new, layer->heads, dim, room, mine.x);
            share(width, group(&layer->out), &from, &to);
            multiply(&layer->out, input(&layer->out, mine.x, mine, new), x, new, from, to, 1);
#pragma omp barrier
            for (int64_t t = 0; t < new; t++) norm(x + t * width, layer->mlp_norm, mine.x + t * width, width, eps);
            const int64_t own_units = layer->down.in;
            share(own_units, group(&layer->up), &from, &to);
            Input normed = input(&layer->up, mine.x, mine, new);
            multiply(&layer->up, normed, inner, new, from, to, 0);
            multiply(&layer->up, normed, inner, new, own_units + from, own_units + to, 0);
            activate(inner, new, own_units, from, to);
#pragma omp barrier
            for (int64_t t = 0; t < new; t++)
                memcpy(mine.x + t * own_units, inner + 2 * t * own_units, own_units * sizeof *x);
            share(width, group(&layer->down), &from, &to);
            multiply(&layer->down, input(&layer->down, mine.x, mine, new), x, new, from, to, 1);
#pragma omp barrier
        }
    }
    free(qkv), free(space);
    return 0;
}
