/* Products with the blocks of a GGUF file: 4, 6 or 8 bits a number, scales for 16 to 256 numbers of a row.
 * Activations have 8 bits and a scale for `near_to(in)` of them; sums of a block are exact. `blocks.py` lays the blocks out.
 */
#include <stdint.h>

#define GROUP 16 /* activations whose sum is known */

/* Activations that share a scale: as many as the largest blocks have. */
static inline int64_t near_to(int64_t in) { return in % 256 ? 32 : 256; }

enum { AFFINE4, SUPER4, SUPER6, PLAIN8 };

/* Rows of one type. Numbers of PANEL rows stand together, four of a row after another:
 * low: 4 bits; of 8 numbers the first four in the low half of each byte. PLAIN8: bytes.
 * high: 2 bits; of 16 numbers, the first four in the lowest two bits. SUPER6 alone.
 */
typedef struct {
    const uint8_t *low, *high;
    const uint8_t *scale, *offset; /* small numbers (panel, 16 or 32 numbers of a row, PANEL) */
    const uint16_t *by, *plus;     /* float16 (panel, 32 or 256 numbers of a row, PANEL) */
    int64_t rows, format;
} Blocks;

/* y (token, out) = or += x W' of the rows from .. to, which begin a panel.
 *
 * x: (token, in), 128 above what is meant; sums: (token, in / GROUP), of what is meant; scale: (token, in / near_to(in)).
 */
void multiply_blocks(const Blocks *parts, const float *bias, const uint8_t *x, const int32_t *sums, const float *scale,
                     float *y, int64_t tokens, int64_t in, int64_t out, int64_t from, int64_t to, int add);

/* The sums of activations. */
void sum_groups(const uint8_t *x, int32_t *sums, int64_t tokens, int64_t in);
