/* The exact perturbed maximizer in float32: the integral of P2 and its closed-form gradient, with all nodes fused.
 *
 * Pixels are processed in chunks of LANES. A chunk is copied into scratch memory, K + 1 rows of LANES numbers with the
 * slack's row last, and stays in the cache during the loop over the nodes. From one node to the next, exp(-u^2 / 2) is
 * updated by one multiplication. The compiler vectorises this plain C along the lanes.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define NEGLIGIBLE 6.0f /* beyond 6 deviations, phi is 6e-9 and Phi is 1 - 1e-9, which float32 cannot tell from 1 */
#define EXCLUDED 8.0f   /* an activation 8 deviations below the largest wins with probability 8e-9: ignored */
#define TINY 1e-10f     /* a mass that contributes nothing */

typedef struct {
    int64_t pixels, kernels, inner; /* pixel q is at outer index q / inner and inner index q % inner */
    int64_t outer_step, kernel_step, inner_step;
    int64_t mu_outer_step, mu_inner_step;
    float eps, first, step; /* node n is at first + n * step, relative to the largest of [a; mu] */
    int32_t nodes, threads;
} integral;

const int64_t tembed_perturbed_struct_bytes = sizeof(integral);

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

/* a where the mask is all ones, b where it is zero. With a conditional, gcc would compute the quotients of both
 * branches, and the divisions dominate the cost. */
static inline float pick(int32_t mask, float a, float b) {
    return float_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

/* Scratch memory of one thread: K + 1 rows of LANES each, the slack's last. */
typedef struct {
    float *below, *density, *decay, *r, *sum, *g, *nearest;
} rows;

static rows rows_of_thread(const integral *s, float *scratch, int thread) {
    int64_t n = (s->kernels + 1) * LANES;
    float *p = scratch + thread * 7 * n;
    return (rows){p, p + n, p + 2 * n, p + 3 * n, p + 4 * n, p + 5 * n, p + 6 * n};
}

/* exp(x) for |x| < 80. */
static inline float exp_bounded(float x) {
    float n = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the low bits of the sum are the rounded integer */
    int32_t exponent = bits_of(n) - (0x4B400000 - 127);
    n -= 12582912.0f;
    float f = x - n * 0.693359375f + n * 2.12194440e-4f;
    float f2 = f * f;
    float y = (1.0f + f) + f2 * ((4.9999991e-1f + 1.6666420e-1f * f) +
                                 f2 * ((4.1668225e-2f + 8.3748242e-3f * f) + f2 * 1.3836835e-3f));
    return y * float_of(exponent << 23);
}

/* Phi(u), and phi(u) / Phi(u), for -5 <= u <= 14, given e = exp(-u^2 / 2). Phi(-x) = e N(x) / D(x) for x >= 0, with a
 * relative error of 6e-8 up to x = 6. The two quotients share one division, by S D, where S = D Phi(u). */
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

/* The offsets of a chunk's pixels in memory; lanes past the end repeat the last pixel. Returns the number of pixels. */
static int find_offsets(const integral *s, int64_t start, int64_t *at, int64_t *mu_at) {
    for (int l = 0; l < LANES; l++) {
        int64_t q = start + l < s->pixels ? start + l : s->pixels - 1;
        at[l] = q / s->inner * s->outer_step + q % s->inner * s->inner_step;
        mu_at[l] = q / s->inner * s->mu_outer_step + q % s->inner * s->mu_inner_step;
    }
    return s->pixels - start < LANES ? (int)(s->pixels - start) : LANES;
}

/* For each row: its distance below the largest of [a; mu] in deviations, and the smallest distance of its lanes. A pixel
 * whose largest value is NaN or infinite is NaN in every row. */
static void load_chunk(const integral *s, const float *a, const float *mu, const int64_t *at, const int64_t *mu_at,
                       rows *x) {
    float top[LANES];
    for (int l = 0; l < LANES; l++) top[l] = x->below[s->kernels * LANES + l] = mu[mu_at[l]];
    for (int64_t k = 0; k < s->kernels; k++)
        for (int l = 0; l < LANES; l++) {
            float v = x->below[k * LANES + l] = a[at[l] + k * s->kernel_step];
            top[l] = v > top[l] || v != v ? v : top[l];
        }
    for (int l = 0; l < LANES; l++) top[l] += top[l] - top[l]; /* infinite becomes NaN */
    for (int64_t k = 0; k <= s->kernels; k++) {
        float nearest = EXCLUDED;
        for (int l = 0; l < LANES; l++) {
            float d = s->eps * (top[l] - x->below[k * LANES + l]);
            d = d > EXCLUDED ? EXCLUDED : d; /* written so that NaN stays NaN */
            x->below[k * LANES + l] = d;
            float n = d == d ? d : -1.0f; /* NaN counts as near */
            nearest = n < nearest ? n : nearest;
        }
        x->nearest[k] = nearest;
    }
}

/* Prepare a walk over the nodes from t: exp(-(below + t)^2 / 2) / exp(-t^2 / 2), and its factor per step. */
static void prepare_walk(const integral *s, rows *x, float t, float step) {
    int64_t n = (s->kernels + 1) * LANES;
    float *restrict below = x->below, *restrict density = x->density, *restrict decay = x->decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = below[i], in = d >= EXCLUDED ? 0.0f : 1.0f;
        density[i] = in * exp_bounded(-d * (0.5f * d + t));
        decay[i] = exp_bounded(-d * step);
    }
}

/* One row at the node t: its ratios r, and its factor of the mass. */
static inline void step_row(const float *restrict below, float *restrict density, const float *restrict decay,
                            float *restrict r, float *restrict mass, float t, float scale, int may_be_negative) {
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        mass[l] *= normal(below[l] + t, density[l] * scale, may_be_negative, &r[l]);
        density[l] *= decay[l];
    }
}

enum { DOWN, UP };
enum { COUNTS, SKIP, END };

/* The node t: r = phi / Phi of each row within reach, and mass = step * prod Phi. Returns whether the node counts and
 * whether the walk ends: going down when the mass has vanished, going up when no row is within reach. */
static int evaluate_node(const integral *s, int direction, float t, float reach, const rows *x, float *mass) {
    int any = 0, heavy = 0;
    float scale = exp_bounded(-0.5f * t * t);
    for (int l = 0; l < LANES; l++) mass[l] = s->step;
    for (int64_t k = 0; k <= s->kernels; k++) {
        if (x->nearest[k] >= reach) continue;
        any = 1;
        int64_t i = k * LANES;
        if (direction == DOWN)
            step_row(x->below + i, x->density + i, x->decay + i, x->r + i, mass, t, scale, 1);
        else
            step_row(x->below + i, x->density + i, x->decay + i, x->r + i, mass, t, scale, 0);
    }
    for (int l = 0; l < LANES; l++) heavy |= !(mass[l] <= TINY); /* NaN counts */
    return !any || (!heavy && direction == DOWN) ? END : heavy ? COUNTS : SKIP;
}

/* The walk down or up from the largest activation: its first node, its step and its number of nodes. */
static int find_walk(const integral *s, int direction, float *t, float *step) {
    int negative = (int)(-s->first / s->step) + 1; /* nodes below 0 */
    *step = direction == UP ? s->step : -s->step;
    *t = s->first + (direction == UP ? negative : negative - 1) * s->step;
    return direction == UP ? s->nodes - negative : negative;
}

/* The node's contribution to p_k = integral of phi(u_k) prod_{j != k} Phi(u_j). */
static void add_value(const integral *s, float reach, const rows *x, const float *mass) {
    for (int64_t k = 0; k < s->kernels; k++) {
        if (x->nearest[k] >= reach) continue;
        float *restrict sum = x->sum + k * LANES, *restrict r = x->r + k * LANES;
#pragma omp simd
        for (int l = 0; l < LANES; l++) sum[l] += mass[l] * r[l];
    }
}

/* The node's contribution to the integral of E r_i (g_i R - G), with R = sum_j r_j and G = sum_j g_j r_j. */
static void add_gradient(const integral *s, float reach, const rows *x, const float *mass) {
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

/* Both walks over the nodes, for the loaded chunk. */
static void integrate(const integral *s, rows *x) {
    float mass[LANES], start, step;
    memset(x->sum, 0, (s->kernels + 1) * LANES * sizeof(float));
    for (int direction = DOWN; direction <= UP; direction++) {
        int nodes = find_walk(s, direction, &start, &step);
        prepare_walk(s, x, start, step);
        for (int n = 0; n < nodes; n++) {
            float t = start + n * step;
            float reach = direction == UP ? NEGLIGIBLE - t : EXCLUDED; /* once out of reach, a row stays so */
            int outcome = evaluate_node(s, direction, t, reach, x, mass);
            if (outcome == END) break;
            if (outcome == SKIP) continue;
            if (x->g)
                add_gradient(s, reach, x, mass);
            else
                add_value(s, reach, x, mass);
        }
    }
}

/* out: p if g is NULL, else J^T g. grad_mu: J^T g for mu, one number per pixel, in the order of the pixels.
 * Scratch: threads * 7 * (kernels + 1) * LANES floats. */
void tembed_perturbed(const integral *s, const float *a, const float *mu, const float *g, float *out, float *grad_mu,
                      float *scratch) {
    int64_t chunks = (s->pixels + LANES - 1) / LANES;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int thread = 0; thread < s->threads; thread++) {
        rows x = rows_of_thread(s, scratch, thread);
        int64_t at[LANES], mu_at[LANES];
        float scale = g ? s->eps : 1.0f;
        if (!g) x.g = NULL;
        for (int64_t b = chunks * thread / s->threads; b < chunks * (thread + 1) / s->threads; b++) {
            int real = find_offsets(s, b * LANES, at, mu_at);
            load_chunk(s, a, mu, at, mu_at, &x);
            if (g) {
                memset(x.g + s->kernels * LANES, 0, LANES * sizeof(float)); /* g of the slack is 0 */
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
