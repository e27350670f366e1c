/* The exact perturbed maximizer in float32: the integral of P2 and its closed-form gradient, all nodes fused.
 *
 * The pixels are taken LANES at a time. What the nodes need of a block of pixels is copied into scratch memory, K + 1
 * rows of LANES with the slack's row last, and stays in the cache while the nodes pass over it. From one node to the
 * next, exp(-u^2 / 2) follows by one multiplication. Plain C, for the compiler to vectorise along the lanes.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define FAR 6.0f /* past 6 deviations phi is 6e-9 and Phi is 1 - 1e-9: nothing in float32 */
#define OUT 8.0f /* who lies 8 deviations below the largest wins in 8e-9 of the cases: left out */
#define TINY 1e-10f /* a mass that does not count */

typedef struct {
    int64_t pixels, kernels, inner; /* pixel q lies at outer step q / inner and inner step q % inner */
    int64_t outer_step, kernel_step, inner_step;
    int64_t mu_outer_step, mu_inner_step;
    float eps, first, step; /* nodes at first + n * step past the largest activation */
    int32_t nodes, threads;
} plan;

static inline int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float float_of(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* a where the mask is all ones, b where it is zero. A conditional would do, but gcc then computes both branches'
 * quotients, and the divisions are what costs. */
static inline float pick(int32_t mask, float a, float b) {
    return float_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

/* Scratch memory of one thread: K + 1 rows of LANES each, the slack's last. */
typedef struct {
    float *far, *density, *decay, *r, *sum, *g, *nearest;
} rows;

static rows share(const plan *s, float *scratch, int thread) {
    int64_t n = (s->kernels + 1) * LANES;
    float *p = scratch + thread * 7 * n;
    return (rows){p, p + n, p + 2 * n, p + 3 * n, p + 4 * n, p + 5 * n, p + 6 * n};
}

/* exp(x) for |x| < 80. */
static inline float exp_bounded(float x) {
    float n = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the rounded integer */
    int32_t exponent = bits_of(n) - (0x4B400000 - 127);
    n -= 12582912.0f;
    float f = x - n * 0.693359375f + n * 2.12194440e-4f;
    float f2 = f * f;
    float y = (1.0f + f) + f2 * ((4.9999991e-1f + 1.6666420e-1f * f) +
                                 f2 * ((4.1668225e-2f + 8.3748242e-3f * f) + f2 * 1.3836835e-3f));
    return y * float_of(exponent << 23);
}

/* Phi(u), and phi(u) / Phi(u), for -5 <= u <= 14, given e = exp(-u^2 / 2). Phi(-x) = e N(x) / D(x) for x >= 0, to 6e-8
 * of itself up to x = 6. The two quotients share one division, by S D, where S = D Phi(u). */
static inline float normal(float u, float e, int may_be_negative, float *ratio) {
    float x = may_be_negative ? fabsf(u) : u, x2 = u * u;
    float N = (0.49999997f + 0.33460274f * x) + x2 * (0.10448240f + 0.013632773f * x);
    float D = (1.0f + 1.4670864f * x) + x2 * ((0.87956470f + 0.26134598f * x) + x2 * 0.034192875f);
    float m = e * N;
    int32_t negative = may_be_negative ? bits_of(u) >> 31 : 0;
    float S = pick(negative, m, D - m);
    float inverse = 1.0f / (S * D);
    float tail = m * S * inverse;
    *ratio = 0.39894228f * e * D * (D * inverse);
    return pick(negative, tail, 1.0f - tail);
}

/* Where the block's pixels begin in memory; lanes past the end repeat the last pixel. Returns how many are real. */
static int locate(const plan *s, int64_t start, int64_t *at, int64_t *mu_at) {
    for (int l = 0; l < LANES; l++) {
        int64_t q = start + l < s->pixels ? start + l : s->pixels - 1;
        at[l] = q / s->inner * s->outer_step + q % s->inner * s->inner_step;
        mu_at[l] = q / s->inner * s->mu_outer_step + q % s->inner * s->mu_inner_step;
    }
    return s->pixels - start < LANES ? (int)(s->pixels - start) : LANES;
}

/* Of each row: how far it lies below the largest of [a; mu], in deviations, and its nearest lane. */
static void load(const plan *s, const float *a, const float *mu, const int64_t *at, const int64_t *mu_at, rows *x) {
    float top[LANES];
    for (int l = 0; l < LANES; l++) top[l] = x->far[s->kernels * LANES + l] = mu[mu_at[l]];
    for (int64_t k = 0; k < s->kernels; k++)
        for (int l = 0; l < LANES; l++) {
            float v = x->far[k * LANES + l] = a[at[l] + k * s->kernel_step];
            top[l] = v > top[l] ? v : top[l];
        }
    for (int64_t k = 0; k <= s->kernels; k++) {
        float nearest = OUT;
        for (int l = 0; l < LANES; l++) {
            float d = s->eps * (top[l] - x->far[k * LANES + l]);
            d = d > OUT ? OUT : d; /* so written that NaN stays NaN */
            x->far[k * LANES + l] = d;
            nearest = d >= nearest ? nearest : d; /* NaN is near */
        }
        x->nearest[k] = nearest;
    }
}

/* Make ready to walk the nodes from t by steps: exp(-(far + t)^2 / 2) / exp(-t^2 / 2), and its factor a step. */
static void aim(const plan *s, rows *x, float t, float step) {
    int64_t n = (s->kernels + 1) * LANES;
    float *restrict far = x->far, *restrict density = x->density, *restrict decay = x->decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = far[i], in = d >= OUT ? 0.0f : 1.0f;
        density[i] = in * exp_bounded(-d * (0.5f * d + t));
        decay[i] = exp_bounded(-d * step);
    }
}

/* One row at the node t: its ratios, and its factor of the mass. */
static inline void step_row(const float *restrict far, float *restrict density, const float *restrict decay,
                            float *restrict r, float *restrict mass, float t, float scale, int may_be_negative) {
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        mass[l] *= normal(far[l] + t, density[l] * scale, may_be_negative, &r[l]);
        density[l] *= decay[l];
    }
}

enum { COUNTS, SKIP, END };

/* The node t: r = phi / Phi of each row within reach, and mass = step * prod Phi. Returns whether it counts, and
 * whether the walk ends: going down (way 0) when the mass has vanished, going up when no row is in reach any more. */
static int visit(const plan *s, int way, float t, float reach, const rows *x, float *mass) {
    int any = 0, heavy = 0;
    float scale = exp_bounded(-0.5f * t * t);
    for (int l = 0; l < LANES; l++) mass[l] = s->step;
    for (int64_t k = 0; k <= s->kernels; k++) {
        if (x->nearest[k] >= reach) continue;
        any = 1;
        int64_t i = k * LANES;
        if (way == 0)
            step_row(x->far + i, x->density + i, x->decay + i, x->r + i, mass, t, scale, 1);
        else
            step_row(x->far + i, x->density + i, x->decay + i, x->r + i, mass, t, scale, 0);
    }
    for (int l = 0; l < LANES; l++) heavy |= !(mass[l] <= TINY); /* NaN counts */
    return !any || (!heavy && way == 0) ? END : heavy ? COUNTS : SKIP;
}

/* The walk down from the largest activation (way 0), or up (way 1): its first node, its step and its length. */
static int way_of(const plan *s, int way, float *t, float *step) {
    int below = (int)(-s->first / s->step) + 1; /* nodes under 0 */
    *step = way ? s->step : -s->step;
    *t = s->first + (way ? below : below - 1) * s->step;
    return way ? s->nodes - below : below;
}

/* The node's part of p_k = integral of phi(u_k) prod_{j != k} Phi(u_j). */
static void add_value(const plan *s, float reach, const rows *x, const float *mass) {
    for (int64_t k = 0; k < s->kernels; k++) {
        if (x->nearest[k] >= reach) continue;
        float *restrict sum = x->sum + k * LANES, *restrict r = x->r + k * LANES;
#pragma omp simd
        for (int l = 0; l < LANES; l++) sum[l] += mass[l] * r[l];
    }
}

/* The node's part of the integral of E r_i (g_i R - G), with R = sum_j r_j and G = sum_j g_j r_j. */
static void add_gradient(const plan *s, float reach, const rows *x, const float *mass) {
    float R[LANES] = {0}, G[LANES] = {0};
    for (int64_t k = 0; k <= s->kernels; k++) {
        if (x->nearest[k] >= reach) continue;
        float *restrict r = x->r + k * LANES, *restrict g = x->g + k * LANES;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            R[l] += r[l];
            G[l] += r[l] * g[l];
        }
    }
    for (int64_t k = 0; k <= s->kernels; k++) {
        if (x->nearest[k] >= reach) continue;
        float *restrict sum = x->sum + k * LANES, *restrict r = x->r + k * LANES, *restrict g = x->g + k * LANES;
#pragma omp simd
        for (int l = 0; l < LANES; l++) sum[l] += mass[l] * r[l] * (g[l] * R[l] - G[l]);
    }
}

/* Both walks over the nodes, for the block of pixels that is loaded. */
static void integrate(const plan *s, rows *x) {
    float mass[LANES], start, step;
    memset(x->sum, 0, (s->kernels + 1) * LANES * sizeof(float));
    for (int way = 0; way < 2; way++) {
        int nodes = way_of(s, way, &start, &step);
        aim(s, x, start, step);
        for (int n = 0; n < nodes; n++) {
            float t = start + n * step;
            float reach = way ? FAR - t : OUT; /* a row that is out of it stays so for the rest of the walk */
            int verdict = visit(s, way, t, reach, x, mass);
            if (verdict == END) break;
            if (verdict == SKIP) continue;
            if (x->g)
                add_gradient(s, reach, x, mass);
            else
                add_value(s, reach, x, mass);
        }
    }
}

/* p for g = NULL, else J^T g for the activations and, one number a pixel in the pixels' order, for mu.
 * Scratch: threads * 7 * (kernels + 1) * LANES floats. */
void tembed_perturbed(const plan *s, const float *a, const float *mu, const float *g, float *out, float *grad_mu,
                      float *scratch) {
    int64_t blocks = (s->pixels + LANES - 1) / LANES;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int thread = 0; thread < s->threads; thread++) {
        rows x = share(s, scratch, thread);
        int64_t at[LANES], mu_at[LANES];
        float scale = g ? s->eps : 1.0f;
        if (!g) x.g = NULL;
        for (int64_t b = blocks * thread / s->threads; b < blocks * (thread + 1) / s->threads; b++) {
            int real = locate(s, b * LANES, at, mu_at);
            load(s, a, mu, at, mu_at, &x);
            if (g) {
                memset(x.g + s->kernels * LANES, 0, LANES * sizeof(float)); /* the slack's */
                for (int64_t k = 0; k < s->kernels; k++)
                    for (int l = 0; l < LANES; l++) x.g[k * LANES + l] = g[at[l] + k * s->kernel_step];
            }
            integrate(s, &x);
            for (int64_t k = 0; k < s->kernels; k++)
                for (int l = 0; l < real; l++) out[at[l] + k * s->kernel_step] = scale * x.sum[k * LANES + l];
            if (g)
                for (int l = 0; l < real; l++) grad_mu[b * LANES + l] = scale * x.sum[s->kernels * LANES + l];
        }
    }
}
