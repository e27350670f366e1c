/* Batch normalisation and ReLU, fused, on channels-last maps: each pixel is a row of C numbers.
 *
 * The maps are float32, or bfloat16 if BFLOAT16 is defined. All else, and all arithmetic, is float32.
 * Forward reads x twice and writes y once. Backward reads x and g twice and writes dx once. Whether the ReLU was open
 * is recomputed from x.
 * A thread takes a contiguous range of pixels and walks it one pixel at a time. Several pixels at a time would save
 * loads of the per-channel numbers, but the hardware prefetcher then misses, which costs more. Sums are float over SPAN
 * pixels and double over spans, in an order that depends only on the number of threads.
 */

#include <stdint.h>
#include <string.h>

#define SPAN 64

typedef struct {
    int64_t pixels, channels;
    int32_t threads;
} map_layout;

const int64_t tembed_bn_relu_struct_bytes = sizeof(map_layout);

#ifdef BFLOAT16
typedef uint16_t number;

static inline float load(number x) {
    union { uint32_t bits; float value; } wide = {.bits = (uint32_t)x << 16};
    return wide.value;
}

/* Rounds to the nearest, ties to even. NaN stays NaN. */
static inline number store(float x) {
    union { float value; uint32_t bits; } wide = {.value = x};
    uint32_t rounded = (wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16;
    return (number)(x != x ? 0x7fc0 : rounded);
}
#else
typedef float number;

static inline float load(number x) { return x; }

static inline number store(float x) { return x; }
#endif

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t first_pixel(const map_layout *s, int thread) { return s->pixels * thread / s->threads; }

/* Add the sums of x - base and of its square to a and b. */
static void add_pixels(const number *restrict x, const number *restrict base, int64_t pixels, int64_t C,
                       float *restrict a, float *restrict b) {
    for (int64_t r = 0; r < pixels; r++, x += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float p = load(x[c]) - load(base[c]);
            a[c] += p;
            b[c] += p * p;
        }
}

/* The gradient where the ReLU is open, else 0. */
static inline float passed(float x, float g, float scale, float shift) { return x * scale + shift > 0 ? g : 0.0f; }

/* Add the sums of the passed gradient and of its product with x - mean to a and b. */
static void add_gradients(const number *restrict x, const number *restrict g, const float *restrict mean,
                          const float *restrict scale, const float *restrict shift, int64_t pixels, int64_t C,
                          float *restrict a, float *restrict b) {
    for (int64_t r = 0; r < pixels; r++, x += C, g += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float v = load(x[c]), p = passed(v, load(g[c]), scale[c], shift[c]);
            a[c] += p;
            b[c] += p * (v - mean[c]);
        }
}

static inline float relu(float z) { return z < 0 ? 0.0f : z; } /* written so that NaN stays NaN */

/* y = relu(x * scale + shift). */
static void normalize_pixels(const number *restrict x, const float *restrict scale, const float *restrict shift,
                             int64_t pixels, int64_t C, number *restrict y) {
    for (int64_t r = 0; r < pixels; r++, x += C, y += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) y[c] = store(relu(load(x[c]) * scale[c] + shift[c]));
}

/* dx = scale * passed g + (x - mean) slope + offset. */
static void differentiate_pixels(const number *restrict x, const number *restrict g, const float *restrict mean,
                                 const float *restrict scale, const float *restrict shift,
                                 const float *restrict slope, const float *restrict offset, int64_t pixels, int64_t C,
                                 number *restrict dx) {
    for (int64_t i = 0; i < pixels * C; i += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float v = load(x[i + c]), d = passed(v, load(g[i + c]), scale[c], shift[c]) * scale[c];
            dx[i + c] = store(d + ((v - mean[c]) * slope[c] + offset[c]));
        }
}

/* Move a thread's float sums of one span into its double sums. */
static void move_to_double(float *restrict from, double *restrict to, int64_t n) {
    for (int64_t c = 0; c < n; c++) to[c] += from[c];
    memset(from, 0, n * sizeof(float));
}

/* Add the sums of all threads, in order, into those of the first. */
static void reduce_threads(const map_layout *s, double *sums) {
    int64_t n = 2 * s->channels;
    for (int t = 1; t < s->threads; t++)
        for (int64_t c = 0; c < n; c++) sums[c] += sums[t * n + c];
}

/* Mean and biased variance of each channel. Scratch: threads * 2 C doubles in sums, as many floats in spans. */
void tembed_bn_statistics(const map_layout *s, const number *x, double *sums, float *spans, float *mean,
                          float *variance) {
    int64_t C = s->channels;
    memset(sums, 0, s->threads * 2 * C * sizeof(double));
    memset(spans, 0, s->threads * 2 * C * sizeof(float));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        float *span = spans + t * 2 * C;
        for (int64_t r = first_pixel(s, t), end = first_pixel(s, t + 1); r < end; r += SPAN) {
            /* relative to the first pixel, so that a large mean loses no digits */
            add_pixels(x + r * C, x, smaller(SPAN, end - r), C, span, span + C);
            move_to_double(span, sums + t * 2 * C, 2 * C);
        }
    }
    reduce_threads(s, sums);
    for (int64_t c = 0; c < C; c++) {
        double m = sums[c] / s->pixels, square = sums[C + c] / s->pixels - m * m;
        mean[c] = (float)(load(x[c]) + m);
        variance[c] = square < 0 ? 0.0f : (float)square;
    }
}

/* y = relu(x * scale + shift). */
void tembed_bn_relu(const map_layout *s, const number *x, const float *scale, const float *shift, number *y) {
    int64_t C = s->channels;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        int64_t r = first_pixel(s, t), pixels = first_pixel(s, t + 1) - r;
        normalize_pixels(x + r * C, scale, shift, pixels, C, y + r * C);
    }
}

/* The sums over all pixels of the passed gradient, and of its product with x - mean, into the first 2 C of sums. */
static void sum_gradients(const map_layout *s, const number *x, const number *g, const float *mean, const float *scale,
                          const float *shift, double *sums, float *spans) {
    int64_t C = s->channels;
    memset(sums, 0, s->threads * 2 * C * sizeof(double));
    memset(spans, 0, s->threads * 2 * C * sizeof(float));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        float *span = spans + t * 2 * C;
        for (int64_t r = first_pixel(s, t), end = first_pixel(s, t + 1); r < end; r += SPAN) {
            add_gradients(x + r * C, g + r * C, mean, scale, shift, smaller(SPAN, end - r), C, span, span + C);
            move_to_double(span, sums + t * 2 * C, 2 * C);
        }
    }
    reduce_threads(s, sums);
}

/* From the sums: the gradients for gamma and beta, and the coefficients of the term of dx that is linear in x, because
 * dx = scale (g - E[g] - (x - mean) / std^2 E[g (x - mean)]). */
static void finish_sums(const map_layout *s, const double *sums, const float *scale, const float *invstd,
                        float *dgamma, float *dbeta, float *slope, float *offset) {
    int64_t C = s->channels;
    for (int64_t c = 0; c < C; c++) {
        double share = scale[c] / (double)s->pixels;
        dbeta[c] = (float)sums[c];
        dgamma[c] = (float)(sums[C + c] * invstd[c]);
        slope[c] = (float)(-share * sums[C + c] * invstd[c] * invstd[c]);
        offset[c] = (float)(-share * sums[c]);
    }
}

/* The gradients of relu(bn(x)) for x, gamma and beta, given the gradient g of the output. Scratch as in tembed_bn_statistics; line: 2 C floats. */
void tembed_bn_relu_backward(const map_layout *s, const number *x, const number *g, const float *mean,
                             const float *scale, const float *shift, const float *invstd, double *sums, float *spans,
                             float *line, number *dx, float *dgamma, float *dbeta) {
    int64_t C = s->channels;
    sum_gradients(s, x, g, mean, scale, shift, sums, spans);
    finish_sums(s, sums, scale, invstd, dgamma, dbeta, line, line + C);
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        int64_t r = first_pixel(s, t), pixels = first_pixel(s, t + 1) - r, at = r * C;
        differentiate_pixels(x + at, g + at, mean, scale, shift, line, line + C, pixels, C, dx + at);
    }
}
