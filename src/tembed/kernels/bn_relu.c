/* Batch normalisation and ReLU in float32, fused, on a map whose channels lie innermost: rows of C numbers.
 *
 * The map may be some channels of a wider one (DenseNet's): its rows begin every `step` numbers. What the next
 * convolution reads, y, and its gradient g have rows of their own, close together.
 * Forward reads the map twice and writes it once, backward reads map and gradient twice and writes once; whether the
 * ReLU was open is found again from the map. A thread takes a run of rows, one after the other: several at a time save
 * loads of what belongs to a channel, but the processor then no longer foresees what it will need from memory, which
 * costs more. Sums are float over SPAN rows and double over spans, in an order that depends on the threads alone.
 */

#include <stdint.h>
#include <string.h>

#define SPAN 64

typedef struct {
    int64_t rows, channels, step;
    int32_t threads, accumulate; /* accumulate: add the gradient for the map to what is there */
} plan;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t first_row(const plan *s, int thread) { return s->rows * thread / s->threads; }

/* a and b grow by the sums of x - base and of its square. */
static void add_rows(const float *restrict x, const float *restrict base, int64_t rows, int64_t step, int64_t C,
                     float *restrict a, float *restrict b) {
    for (int64_t r = 0; r < rows; r++, x += step)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float p = x[c] - base[c];
            a[c] += p;
            b[c] += p * p;
        }
}

/* The gradient where the ReLU is open. */
static inline float passed(float x, float g, float scale, float shift) { return x * scale + shift > 0 ? g : 0.0f; }

/* a and b grow by the sums of the passed gradient and of its product with x - mean. */
static void add_gradients(const float *restrict x, const float *restrict g, const float *restrict mean,
                          const float *restrict scale, const float *restrict shift, int64_t rows, int64_t step,
                          int64_t C, float *restrict a, float *restrict b) {
    for (int64_t r = 0; r < rows; r++, x += step, g += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float p = passed(x[c], g[c], scale[c], shift[c]);
            a[c] += p;
            b[c] += p * (x[c] - mean[c]);
        }
}

static inline float positive(float z) { return z < 0 ? 0.0f : z; } /* NaN stays NaN */

/* y = relu(x * scale + shift). */
static void normalize_rows(const float *restrict x, const float *restrict scale, const float *restrict shift,
                           int64_t rows, int64_t step, int64_t C, float *restrict y) {
    for (int64_t r = 0; r < rows; r++, x += step, y += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) y[c] = positive(x[c] * scale[c] + shift[c]);
}

/* dx = scale g + (x - mean) slope + offset, with the passed g, added to what is there or not. */
static inline __attribute__((always_inline)) void differentiate_rows(
    const float *restrict x, const float *restrict g, const float *restrict mean, const float *restrict scale,
    const float *restrict shift, const float *restrict slope, const float *restrict offset, int64_t rows, int64_t step,
    int64_t C, int kept, float *restrict dx) {
    for (int64_t r = 0; r < rows; r++, x += step, g += C, dx += step)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float d = passed(x[c], g[c], scale[c], shift[c]) * scale[c] + ((x[c] - mean[c]) * slope[c] + offset[c]);
            dx[c] = kept ? dx[c] + d : d;
        }
}

/* What a thread has added up over a span, moved on. */
static void into_double(float *restrict from, double *restrict to, int64_t n) {
    for (int64_t c = 0; c < n; c++) to[c] += from[c];
    memset(from, 0, n * sizeof(float));
}

/* The threads' sums, added up in their order into the first one's. */
static void gather(const plan *s, double *sums) {
    int64_t n = 2 * s->channels;
    for (int t = 1; t < s->threads; t++)
        for (int64_t c = 0; c < n; c++) sums[c] += sums[t * n + c];
}

/* Mean and biased variance of each channel. Scratch: sums, threads * 2 C doubles; part, threads * 2 C floats. */
void tembed_bn_statistics(const plan *s, const float *x, double *sums, float *part, float *mean, float *variance) {
    int64_t C = s->channels;
    memset(sums, 0, s->threads * 2 * C * sizeof(double));
    memset(part, 0, s->threads * 2 * C * sizeof(float));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        float *mine = part + t * 2 * C;
        for (int64_t r = first_row(s, t), end = first_row(s, t + 1); r < end; r += SPAN) {
            /* counted from the first row, so that a large mean costs no digits */
            add_rows(x + r * s->step, x, least(SPAN, end - r), s->step, C, mine, mine + C);
            into_double(mine, sums + t * 2 * C, 2 * C);
        }
    }
    gather(s, sums);
    for (int64_t c = 0; c < C; c++) {
        double m = sums[c] / s->rows, square = sums[C + c] / s->rows - m * m;
        mean[c] = (float)(x[c] + m);
        variance[c] = square < 0 ? 0.0f : (float)square;
    }
}

/* y = relu(x * scale + shift). */
void tembed_bn_relu(const plan *s, const float *x, const float *scale, const float *shift, float *y) {
    int64_t C = s->channels;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        int64_t r = first_row(s, t), rows = first_row(s, t + 1) - r;
        normalize_rows(x + r * s->step, scale, shift, rows, s->step, C, y + r * C);
    }
}

/* The gradients of relu(bn(x)) from g, that of its output: for the map, for the scale gamma and for the bias.
 * Scratch as above, and 2 C floats more in part. */
void tembed_bn_relu_backward(const plan *s, const float *x, const float *g, const float *mean, const float *scale,
                             const float *shift, const float *invstd, double *sums, float *part, float *dx,
                             float *dgamma, float *dbeta) {
    int64_t C = s->channels, step = s->step;
    float *slope = part + s->threads * 2 * C, *offset = slope + C;
    memset(sums, 0, s->threads * 2 * C * sizeof(double));
    memset(part, 0, s->threads * 2 * C * sizeof(float));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        float *mine = part + t * 2 * C;
        for (int64_t r = first_row(s, t), end = first_row(s, t + 1); r < end; r += SPAN) {
            int64_t rows = least(SPAN, end - r);
            add_gradients(x + r * step, g + r * C, mean, scale, shift, rows, step, C, mine, mine + C);
            into_double(mine, sums + t * 2 * C, 2 * C);
        }
    }
    gather(s, sums);
    for (int64_t c = 0; c < C; c++) { /* dx = scale (g - E[g] - (x - mean) / std^2 E[g (x - mean)]) */
        double share = scale[c] / (double)s->rows;
        dbeta[c] = (float)sums[c];
        dgamma[c] = (float)(sums[C + c] * invstd[c]);
        slope[c] = (float)(-share * sums[C + c] * invstd[c] * invstd[c]);
        offset[c] = (float)(-share * sums[c]);
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        int64_t r = first_row(s, t), rows = first_row(s, t + 1) - r;
        const float *at = x + r * step, *from = g + r * C;
        float *to = dx + r * step;
        if (s->accumulate)
            differentiate_rows(at, from, mean, scale, shift, slope, offset, rows, step, C, 1, to);
        else
            differentiate_rows(at, from, mean, scale, shift, slope, offset, rows, step, C, 0, to);
    }
}
