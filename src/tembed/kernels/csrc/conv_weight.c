/* The gradient of a convolution's weights in float32, on channels-last maps.
 *
 * dw[o][r][t][i] = sum over images and pixels (h, w) of
 *                  g[h][w][o] x[h stride + r - padding][w stride + t - padding][i].
 *
 * Pixels are processed in chunks that fit into the caches. For each chunk, g is copied so that the channels of a tile
 * are contiguous, and x is copied with zeros around the map. A tile of 6 or 4 output channels and IN input channels, at
 * one tap (r, t) of the kernel, stays in registers during the loop over the pixels of the chunk. Each thread has its
 * own range of chunks and its own sums, which are added in the order of the threads.
 */

#include <stdint.h>
#include <string.h>

#define IN 16

typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct {
    int64_t images, height, width, channels; /* of x */
    int64_t g_height, g_width, g_channels;   /* of g */
    int64_t g_step;                          /* between neighbouring pixels of g, which may be a slice of channels */
    int64_t side, stride, padding;           /* of the kernel */
    int64_t chunk_images, chunk_rows;        /* of g, in a chunk */
    int32_t threads;
} conv_shape;

const int64_t tembed_conv_weight_struct_bytes = sizeof(conv_shape);

/* The pixels of g in a chunk, and the height and width of the copy of x. */
typedef struct {
    int64_t image, row, images, rows, copy_width, copy_height;
} chunk;

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* dw[o][i] += sum over the pixels of g[o] x[i], for `outs` channels of g. */
static inline __attribute__((always_inline)) void add_tile(const conv_shape *s, const chunk *b, const float *x,
                                                           const float *g, const int outs, float *dw) {
    vector sum[6][2] = {0};
    for (int64_t n = 0; n < b->images; n++)
        for (int64_t h = 0; h < b->rows; h++) {
            const float *from = x + (n * b->copy_height + h * s->stride) * b->copy_width * IN;
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

/* One tile at every tap of the kernel. */
static inline __attribute__((always_inline)) void add_taps(const conv_shape *s, const chunk *b, const float *x,
                                                           const float *g, const int outs, float *dw) {
    for (int64_t r = 0; r < s->side; r++)
        for (int64_t t = 0; t < s->side; t++)
            add_tile(s, b, x + (r * b->copy_width + t) * IN, g, outs, dw + (r * s->side + t) * s->channels);
}

/* The output channels of the tile at `o`: any even number from 4 on is a sum of sixes and at most two fours. */
static inline int outs_at(const conv_shape *s, int64_t o) {
    int64_t left = s->g_channels - o;
    return left == 4 || left == 8 ? 4 : 6;
}

static inline __attribute__((always_inline)) void copy_tile(const float *g, int64_t step, int64_t pixels,
                                                            const int outs, float *to) {
    for (int64_t p = 0; p < pixels; p++, g += step, to += outs) memcpy(to, g, outs * sizeof(float));
}

/* Copy the channels of g, tile by tile. */
static void copy_g(const conv_shape *s, const chunk *b, const float *g, float *to) {
    int64_t pixels = b->images * b->rows * s->g_width;
    g += (b->image * s->g_height + b->row) * s->g_width * s->g_step;
    for (int64_t o = 0; o < s->g_channels; o += outs_at(s, o))
        if (outs_at(s, o) == 6)
            copy_tile(g + o, s->g_step, pixels, 6, to + o * pixels);
        else
            copy_tile(g + o, s->g_step, pixels, 4, to + o * pixels);
}

/* Copy IN channels of x, with zeros outside the map. */
static void copy_x(const conv_shape *s, const chunk *b, const float *x, float *to) {
    for (int64_t n = b->image; n < b->image + b->images; n++)
        for (int64_t h = b->row * s->stride - s->padding, end = h + b->copy_height; h < end; h++)
            for (int64_t w = -s->padding; w < b->copy_width - s->padding; w++, to += IN)
                if (h < 0 || h >= s->height || w < 0 || w >= s->width)
                    memset(to, 0, IN * sizeof(float));
                else
                    memcpy(to, x + ((n * s->height + h) * s->width + w) * s->channels, IN * sizeof(float));
}

static void add_chunk(const conv_shape *s, const chunk *b, const float *x, const float *g, float *g_copy,
                      float *x_copy, float *dw) {
    int64_t pixels = b->images * b->rows * s->g_width, step = s->side * s->side * s->channels;
    copy_g(s, b, g, g_copy);
    for (int64_t i = 0; i < s->channels; i += IN) {
        copy_x(s, b, x + i, x_copy);
        for (int64_t o = 0; o < s->g_channels; o += outs_at(s, o))
            if (outs_at(s, o) == 6)
                add_taps(s, b, x_copy, g_copy + o * pixels, 6, dw + o * step + i);
            else
                add_taps(s, b, x_copy, g_copy + o * pixels, 4, dw + o * step + i);
    }
}

/* dw: the result, g_channels x side x side x channels. sums: scratch of that size for each thread but the first, which
 * sums into dw. copies: scratch of `room` numbers for each thread; the copy of g takes the first `g_room` of them. */
void tembed_conv_weight(const conv_shape *s, const float *x, const float *g, float *dw, float *sums, float *copies,
                        int64_t g_room, int64_t room) {
    int64_t down = (s->g_height + s->chunk_rows - 1) / s->chunk_rows;
    int64_t chunks = down * ((s->images + s->chunk_images - 1) / s->chunk_images);
    int64_t size = s->g_channels * s->side * s->side * s->channels;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int n = 0; n < s->threads; n++) {
        float *sum = n ? sums + (n - 1) * size : dw;
        memset(sum, 0, size * sizeof(float));
        for (int64_t k = chunks * n / s->threads; k < chunks * (n + 1) / s->threads; k++) {
            chunk b = {k / down * s->chunk_images, k % down * s->chunk_rows};
            b.images = smaller(s->chunk_images, s->images - b.image);
            b.rows = smaller(s->chunk_rows, s->g_height - b.row);
            b.copy_width = (s->g_width - 1) * s->stride + s->side;
            b.copy_height = (b.rows - 1) * s->stride + s->side;
            add_chunk(s, &b, x, g, copies + n * room, copies + n * room + g_room, sum);
        }
    }
    for (int n = 1; n < s->threads; n++)
        for (int64_t k = 0; k < size; k++) dw[k] += sums[(n - 1) * size + k];
}
