/* Batch normalisation and ReLU in float32, fused, on a map whose channels lie innermost: rows of C numbers.
 *
 * The map may be some channels of a wider one (DenseNet's): its rows begin every `step` numbers. What the next
 * convolution reads, y, and its gradient g have rows of their own, close together.
 * Forward reads the map twice and writes it once, backward reads map and gradient twice and writes once, or, where
 * several gradients meet in one map, reads them once; whether the
 * ReLU was open is found again from the map. A thread takes a run of rows, one after the other: several at a time save
 * loads of what belongs to a channel, but the processor then no longer foresees what it will need from memory, which
 * costs more. Sums are float over SPAN rows and double over spans, in an order that depends on the threads alone.
 */

#include <stdint.h>
#include <string.h>

#define SPAN 64

typedef struct {
    int64_t rows, channels, step;
    int32_t threads;
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

/* a and b grow by the sums of the passed gradient and of its product with x - mean; it goes into dx too, if asked. */
static inline __attribute__((always_inline)) void add_gradients(
    const float *restrict x, const float *restrict g, const float *restrict mean, const float *restrict scale,
    const float *restrict shift, int64_t rows, int64_t step, int64_t C, int pass_on, float *restrict a,
    float *restrict b, float *restrict dx) {
    for (int64_t r = 0; r < rows; r++, x += step, g += C, dx += pass_on ? step : 0)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float p = passed(x[c], g[c], scale[c], shift[c]);
            a[c] += p;
            b[c] += p * (x[c] - mean[c]);
            if (pass_on) dx[c] += scale[c] * p;
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

/* dx = scale g + (x - mean) slope + offset, with the passed g, and other, if there is some. */
static inline __attribute__((always_inline)) void differentiate_rows(
    const float *restrict x, const float *restrict g, const float *restrict mean, const float *restrict scale,
    const float *restrict shift, const float *restrict slope, const float *restrict offset, int64_t rows, int64_t C,
    const float *restrict other, float *restrict dx) {
    for (int64_t i = 0; i < rows * C; i += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float d = passed(x[i + c], g[i + c], scale[c], shift[c]) * scale[c];
            d += (x[i + c] - mean[c]) * slope[c] + offset[c];
            dx[i + c] = other ? other[i + c] + d : d;
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

/* The sums over all rows of the passed gradient, and of its product with x - mean, into the first 2 C of sums. */
static inline __attribute__((always_inline)) void sum_gradients(const plan *s, const float *x, const float *g,
                                                                const float *mean, const float *scale,
                                                                const float *shift, int pass_on, double *sums,
                                                                float *part, float *dx) {
    int64_t C = s->channels, step = s->step;
    memset(sums, 0, s->threads * 2 * C * sizeof(double));
    memset(part, 0, s->threads * 2 * C * sizeof(float));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        float *mine = part + t * 2 * C;
        for (int64_t r = first_row(s, t), end = first_row(s, t + 1); r < end; r += SPAN) {
            add_gradients(x + r * step, g + r * C, mean, scale, shift, least(SPAN, end - r), step, C, pass_on, mine,
                          mine + C, pass_on ? dx + r * step : dx);
            into_double(mine, sums + t * 2 * C, 2 * C);
        }
    }
    gather(s, sums);
}

/* From the sums: the gradients for the scale gamma and the bias, and the line in x that is part of the map's, since
 * dx = scale (g - E[g] - (x - mean) / std^2 E[g (x - mean)]). */
static void finish(const plan *s, const double *sums, const float *scale, const float *invstd, float *dgamma,
                   float *dbeta, float *slope, float *offset) {
    int64_t C = s->channels;
    for (int64_t c = 0; c < C; c++) {
        double share = scale[c] / (double)s->rows;
        dbeta[c] = (float)sums[c];
        dgamma[c] = (float)(sums[C + c] * invstd[c]);
        slope[c] += (float)(-share * sums[C + c] * invstd[c] * invstd[c]);
        offset[c] += (float)(-share * sums[c]);
    }
}

/* The gradients of relu(bn(x)) from g, that of its output: for the map, close together, for the scale gamma and for the
 * bias. What else the map's gradient has, other, is added if it is not NULL. Scratch as above; line: 2 C zeros. */
void tembed_bn_relu_backward(const plan *s, const float *x, const float *g, const float *mean, const float *scale,
                             const float *shift, const float *invstd, double *sums, float *part, float *line,
                             const float *other, float *dx, float *dgamma, float *dbeta) {
    int64_t C = s->channels;
    sum_gradients(s, x, g, mean, scale, shift, 0, sums, part, dx);
    finish(s, sums, scale, invstd, dgamma, dbeta, line, line + C);
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        int64_t r = first_row(s, t), rows = first_row(s, t + 1) - r, at = r * C;
        if (other)
            differentiate_rows(x + at, g + at, mean, scale, shift, line, line + C, rows, C, other + at, dx + at);
        else
            differentiate_rows(x + at, g + at, mean, scale, shift, line, line + C, rows, C, NULL, dx + at);
    }
}

/* The same for a map that has several readers: in one pass, the passed gradient is added to dx. The rest is a line in
 * x, other for each reader but about the same mean: slope and offset grow, and tembed_bn_add_line adds them once. */
void tembed_bn_relu_backward_part(const plan *s, const float *x, const float *g, const float *mean, const float *scale,
                                  const float *shift, const float *invstd, double *sums, float *part, float *slope,
                                  float *offset, float *dx, float *dgamma, float *dbeta) {
    sum_gradients(s, x, g, mean, scale, shift, 1, sums, part, dx);
    finish(s, sums, scale, invstd, dgamma, dbeta, slope, offset);
}

/* dx += (x - mean) slope + offset. */
void tembed_bn_add_line(const plan *s, const float *x, const float *mean, const float *slope, const float *offset,
                        float *dx) {
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++)
        for (int64_t i = first_row(s, t) * s->step, end = first_row(s, t + 1) * s->step; i < end; i += s->step)
#pragma omp simd
            for (int64_t c = 0; c < s->channels; c++) dx[i + c] += (x[i + c] - mean[c]) * slope[c] + offset[c];
}
