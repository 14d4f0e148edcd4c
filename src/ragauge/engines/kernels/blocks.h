/* Products with the blocks of a GGUF file, whose bytes are as in the file: 4 to 8 bits a number, scales for 16 to 256
 * numbers of a row. Activations have 8 bits and a scale for `near_to(in)` of them; sums of a block are exact.
 */
#include <stdint.h>

#define PANEL 16 /* rows of a matrix of whole numbers that stand together */
#define GROUP 16 /* activations whose sum is known */

enum { Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K };

/* Rows of one type. Each field of a block stands by itself: (panel, block, word, PANEL, bytes of a word), the rows of a
 * panel together. Words have 4 bytes; of `by` and `plus` 2, of `scale` in Q6_K 1.
 */
typedef struct {
    const uint8_t *low;        /* 4 bits of two numbers, or the 8 bits of one */
    const uint8_t *high;       /* the further bits */
    const uint8_t *scale;      /* small numbers for 16 or 32 numbers */
    const uint16_t *by, *plus; /* float16: what numbers are multiplied with; what is added, in Q4_K subtracted */
    int64_t rows, format;
} Blocks;

/* Activations that share a scale: as many as the largest blocks have. */
static inline int64_t near_to(int64_t in) { return in % 256 ? 32 : 256; }

/* y (token, out) = or += x W' of the rows from .. to, which begin a panel.
 *
 * x: (token, in), signed; sums: (token, in / GROUP), of what is meant; scale: (token, in / near_to(in)).
 */
void multiply_blocks(const Blocks *parts, const float *bias, const uint8_t *x, const int32_t *sums, const float *scale,
                     float *y, int64_t tokens, int64_t in, int64_t out, int64_t from, int64_t to, int add);

/* The sums of activations (token, in) that are 128 above what is meant; afterwards they are signed. */
void sum_groups(uint8_t *x, int32_t *sums, int64_t tokens, int64_t in);
