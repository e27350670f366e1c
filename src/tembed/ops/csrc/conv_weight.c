/* The gradient of a convolution's weights in float32, on maps whose channels lie innermost.
 *
 * dw[o][r][t][i] = sum over images and pixels (h, w) of g[h][w][o] x[h stride + r - padding][w stride + t - padding][i].
 *
 * Pixels come in blocks that fit into the caches. Of a block, g is copied so that the channels of a tile lie together,
 * and so is x, with zeros around the map. A tile of 6 or 4 output and IN input channels, at one place (r, t) of the
 * kernel, is kept in registers while the pixels of a block go by. A thread has a run of blocks and sums of its own,
 * which are added up in the order of the threads.
 */

#include <stdint.h>
#include <string.h>

#define IN 16

typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct {
    int64_t images, height, width, channels; /* of x */
    int64_t g_height, g_width, g_channels;   /* of g */
    int64_t g_step;                          /* from a pixel of g to the next: in a slice more than its channels */
    int64_t side, stride, padding;           /* of the kernel */
    int64_t block_images, block_rows;        /* of g, in a block */
    int32_t threads;
} shape;

/* The pixels of a block: of g, and how many of x lie side by side in the copy. */
typedef struct {
    int64_t image, row, images, rows, wide, high;
} block;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* dw[o][i] += sum over the pixels of g[o] x[i], for `outs` channels of g. */
static inline __attribute__((always_inline)) void add_tile(const shape *s, const block *b, const float *x,
                                                           const float *g, const int outs, float *dw) {
    vector sum[6][2] = {0};
    for (int64_t n = 0; n < b->images; n++)
        for (int64_t h = 0; h < b->rows; h++) {
            const float *from = x + (n * b->high + h * s->stride) * b->wide * IN;
            for (int64_t w = 0; w < s->g_width; w++, from += s->stride * IN, g += outs) {
                vector low = *(const vector *)from, high = *(const vector *)(from + 8);
#pragma GCC unroll 6
                for (int o = 0; o < outs; o++) {
                    sum[o][0] += g[o] * low;
                    sum[o][1] += g[o] * high;
                }
            }
        }
    for (int o = 0; o < outs; o++, dw += s->side * s->side * s->channels) {
        *(vector *)dw += sum[o][0];
        *(vector *)(dw + 8) += sum[o][1];
    }
}

/* A tile at every place of the kernel. */
static inline __attribute__((always_inline)) void add_places(const shape *s, const block *b, const float *x,
                                                             const float *g, const int outs, float *dw) {
    for (int64_t r = 0; r < s->side; r++)
        for (int64_t t = 0; t < s->side; t++)
            add_tile(s, b, x + (r * b->wide + t) * IN, g, outs, dw + (r * s->side + t) * s->channels);
}

/* How many channels the tile at `o` has: an even number from 4 on is some sixes and at most two fours. */
static inline int outs_at(const shape *s, int64_t o) {
    int64_t left = s->g_channels - o;
    return left == 4 || left == 8 ? 4 : 6;
}

static inline __attribute__((always_inline)) void copy_tile(const float *g, int64_t step, int64_t pixels,
                                                            const int outs, float *to) {
    for (int64_t p = 0; p < pixels; p++, g += step, to += outs) memcpy(to, g, outs * sizeof(float));
}

/* The channels of g, tile by tile. */
static void copy_g(const shape *s, const block *b, const float *g, float *to) {
    int64_t pixels = b->images * b->rows * s->g_width;
    g += (b->image * s->g_height + b->row) * s->g_width * s->g_step;
    for (int64_t o = 0; o < s->g_channels; o += outs_at(s, o))
        if (outs_at(s, o) == 6)
            copy_tile(g + o, s->g_step, pixels, 6, to + o * pixels);
        else
            copy_tile(g + o, s->g_step, pixels, 4, to + o * pixels);
}

/* IN channels of x. */
static void copy_x(const shape *s, const block *b, const float *x, float *to) {
    for (int64_t n = b->image; n < b->image + b->images; n++)
        for (int64_t h = b->row * s->stride - s->padding, end = h + b->high; h < end; h++)
            for (int64_t w = -s->padding; w < b->wide - s->padding; w++, to += IN)
                if (h < 0 || h >= s->height || w < 0 || w >= s->width)
                    memset(to, 0, IN * sizeof(float));
                else
                    memcpy(to, x + ((n * s->height + h) * s->width + w) * s->channels, IN * sizeof(float));
}

static void add_block(const shape *s, const block *b, const float *x, const float *g, float *g_copy, float *x_copy,
                      float *dw) {
    int64_t pixels = b->images * b->rows * s->g_width, step = s->side * s->side * s->channels;
    copy_g(s, b, g, g_copy);
    for (int64_t i = 0; i < s->channels; i += IN) {
        copy_x(s, b, x + i, x_copy);
        for (int64_t o = 0; o < s->g_channels; o += outs_at(s, o))
            if (outs_at(s, o) == 6)
                add_places(s, b, x_copy, g_copy + o * pixels, 6, dw + o * step + i);
            else
                add_places(s, b, x_copy, g_copy + o * pixels, 4, dw + o * step + i);
    }
}

/* sums: for each thread as many numbers as there are weights, g_channels x side x side x channels; the first thread's
 * are the result. copies: for each thread `room` numbers, of which those of g take the first `g_room`. */
void tembed_conv_weight(const shape *s, const float *x, const float *g, float *sums, float *copies, int64_t g_room,
                        int64_t room) {
    int64_t down = (s->g_height + s->block_rows - 1) / s->block_rows;
    int64_t blocks = down * ((s->images + s->block_images - 1) / s->block_images);
    int64_t size = s->g_channels * s->side * s->side * s->channels;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int n = 0; n < s->threads; n++) {
        memset(sums + n * size, 0, size * sizeof(float));
        for (int64_t k = blocks * n / s->threads; k < blocks * (n + 1) / s->threads; k++) {
            block b = {k / down * s->block_images, k % down * s->block_rows};
            b.images = least(s->block_images, s->images - b.image);
            b.rows = least(s->block_rows, s->g_height - b.row);
            b.wide = (s->g_width - 1) * s->stride + s->side;
            b.high = (b.rows - 1) * s->stride + s->side;
            add_block(s, &b, x, g, copies + n * room, copies + n * room + g_room, sums + n * size);
        }
    }
    for (int n = 1; n < s->threads; n++)
        for (int64_t k = 0; k < size; k++) sums[k] += sums[n * size + k];
}
