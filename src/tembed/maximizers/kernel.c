/* The exact perturbed maximizer in float32: the integral of P2 and its closed-form gradient, all nodes fused.
 *
 * The pixels are taken LANES at a time. Of each block of pixels the distances to the largest activation are
 * copied into scratch memory, (K + 1) rows of LANES with the slack's row last, and stay in the cache while the nodes
 * pass over them. Plain C that a compiler vectorises along the lanes; no reassociation is needed, so that the
 * result does not depend on the vector width or on the number of threads.
 */

#include <stdint.h>
#include <string.h>

#define LANES 16
#define FAR 6.0f /* past 6 deviations phi is 6e-9 and Phi is 1 - 1e-9: nothing in float32 */

typedef struct {
    int64_t pixels, kernels, inner; /* pixel q lies at outer step q / inner and inner step q % inner */
    int64_t outer_step, kernel_step, inner_step;
    int64_t mu_outer_step, mu_inner_step;
    float eps, first, step; /* nodes at first + n * step past the largest activation */
    int32_t nodes, threads;
} plan;

/* exp(x) for -72 <= x <= 0. */
static inline float exp_negative(float x) {
    float n = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the rounded integer */
    int32_t bits;
    memcpy(&bits, &n, 4);
    n -= 12582912.0f;
    float f = x - n * 0.693359375f + n * 2.12194440e-4f;
    float y = 1.3836835e-3f;
    y = y * f + 8.3748242e-3f;
    y = y * f + 4.1668225e-2f;
    y = y * f + 1.6666420e-1f;
    y = y * f + 4.9999991e-1f;
    y = y * f + 1.0f;
    y = y * f + 1.0f;
    int32_t scale = (int32_t)((uint32_t)(bits + 127) << 23);
    float power;
    memcpy(&power, &scale, 4);
    return y * power;
}

/* Phi(u), and phi(u) / Phi(u), for u >= -5. Phi(-|u|) is phi times Mills' ratio, a polynomial in 1 / (1 + 0.3 |u|). */
static inline float normal(float u, float *ratio) {
    u = u > 12.0f ? 12.0f : u; /* so written that NaN stays NaN */
    float x = u < 0.0f ? -u : u;
    float e = exp_negative(-0.5f * u * u);
    float t = 1.0f / (1.0f + 0.3f * x);
    float m = 2.9756941e-2f;
    m = m * t - 1.2425882e-1f;
    m = m * t + 1.2822795e-1f;
    m = m * t + 4.9350988e-2f;
    m = m * t + 4.5938417e-2f;
    m = m * t + 1.4115861e-1f;
    m = m * t + 1.0823534e-1f;
    m = m * t + 1.2174267e-1f;
    m = m * t - 1.5208234e-4f;
    float tail = e * m;
    float cdf = u < 0.0f ? tail : 1.0f - tail;
    *ratio = 0.39894228f * e / cdf;
    return cdf;
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

/* Scaled distances below the largest of [a; mu], and each row's nearest one. */
static void load(const plan *s, const float *a, const float *mu, const int64_t *at, const int64_t *mu_at, float *far,
                 float *nearest) {
    float top[LANES];
    for (int l = 0; l < LANES; l++) top[l] = far[s->kernels * LANES + l] = mu[mu_at[l]];
    for (int64_t k = 0; k < s->kernels; k++)
        for (int l = 0; l < LANES; l++) {
            float v = far[k * LANES + l] = a[at[l] + k * s->kernel_step];
            top[l] = v > top[l] ? v : top[l];
        }
    for (int64_t k = 0; k <= s->kernels; k++) {
        float near = 3e38f;
        for (int l = 0; l < LANES; l++) {
            float d = far[k * LANES + l] = s->eps * (top[l] - far[k * LANES + l]);
            near = d < near || d != d ? d : near; /* NaN stays, and is never far */
        }
        nearest[k] = near;
    }
}

/* The node at t: r = phi / Phi of each row within reach, and mass = step * prod Phi. Returns whether any is. */
static int visit(const plan *s, float t, const float *far, const float *nearest, float *r, float *mass) {
    int any = 0;
    for (int l = 0; l < LANES; l++) mass[l] = s->step;
    for (int64_t k = 0; k <= s->kernels; k++) {
        if (nearest[k] + t > FAR) continue;
        any = 1;
#pragma omp simd
        for (int l = 0; l < LANES; l++) mass[l] *= normal(far[k * LANES + l] + t, &r[k * LANES + l]);
    }
    return any;
}

/* p_k = integral of phi(u_k) prod_{j != k} Phi(u_j). Scratch: 4 (K + 1) LANES floats for each thread. */
void tembed_forward(const plan *s, const float *a, const float *mu, float *p, float *scratch) {
    int64_t rows = (s->kernels + 1) * LANES;
    int64_t blocks = (s->pixels + LANES - 1) / LANES;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int thread = 0; thread < s->threads; thread++) {
        float *far = scratch + thread * 4 * rows, *r = far + rows, *sum = r + rows, *nearest = sum + rows;
        float mass[LANES];
        int64_t at[LANES], mu_at[LANES];
        for (int64_t b = blocks * thread / s->threads; b < blocks * (thread + 1) / s->threads; b++) {
            int real = locate(s, b * LANES, at, mu_at);
            load(s, a, mu, at, mu_at, far, nearest);
            memset(sum, 0, rows * sizeof(float));
            for (int n = 0; n < s->nodes; n++) {
                float t = s->first + n * s->step;
                if (!visit(s, t, far, nearest, r, mass)) break;
                for (int64_t k = 0; k < s->kernels; k++) {
                    if (nearest[k] + t > FAR) continue;
#pragma omp simd
                    for (int l = 0; l < LANES; l++) sum[k * LANES + l] += mass[l] * r[k * LANES + l];
                }
            }
            for (int64_t k = 0; k < s->kernels; k++)
                for (int l = 0; l < real; l++) p[at[l] + k * s->kernel_step] = sum[k * LANES + l];
        }
    }
}

/* grad_i = eps * integral of E r_i (g_i R - G), with R = sum_j r_j and G = sum_j g_j r_j; g of the slack is 0.
 * grad_mu holds one number a pixel, in the pixels' order. */
void tembed_backward(const plan *s, const float *a, const float *mu, const float *g, float *grad, float *grad_mu,
                     float *scratch) {
    int64_t rows = (s->kernels + 1) * LANES;
    int64_t blocks = (s->pixels + LANES - 1) / LANES;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int thread = 0; thread < s->threads; thread++) {
        float *far = scratch + thread * 5 * rows, *r = far + rows, *sum = r + rows, *go = sum + rows,
              *nearest = go + rows;
        float mass[LANES], R[LANES], G[LANES];
        int64_t at[LANES], mu_at[LANES];
        for (int64_t b = blocks * thread / s->threads; b < blocks * (thread + 1) / s->threads; b++) {
            int real = locate(s, b * LANES, at, mu_at);
            load(s, a, mu, at, mu_at, far, nearest);
            memset(sum, 0, rows * sizeof(float));
            for (int64_t k = 0; k < s->kernels; k++)
                for (int l = 0; l < LANES; l++) go[k * LANES + l] = g[at[l] + k * s->kernel_step];
            memset(go + s->kernels * LANES, 0, LANES * sizeof(float));
            for (int n = 0; n < s->nodes; n++) {
                float t = s->first + n * s->step;
                if (!visit(s, t, far, nearest, r, mass)) break;
                memset(R, 0, sizeof R);
                memset(G, 0, sizeof G);
                for (int64_t k = 0; k <= s->kernels; k++) {
                    if (nearest[k] + t > FAR) continue;
#pragma omp simd
                    for (int l = 0; l < LANES; l++) {
                        R[l] += r[k * LANES + l];
                        G[l] += r[k * LANES + l] * go[k * LANES + l];
                    }
                }
                for (int64_t k = 0; k <= s->kernels; k++) {
                    if (nearest[k] + t > FAR) continue;
#pragma omp simd
                    for (int l = 0; l < LANES; l++)
                        sum[k * LANES + l] += mass[l] * r[k * LANES + l] * (go[k * LANES + l] * R[l] - G[l]);
                }
            }
            for (int64_t k = 0; k < s->kernels; k++)
                for (int l = 0; l < real; l++) grad[at[l] + k * s->kernel_step] = s->eps * sum[k * LANES + l];
            for (int l = 0; l < real; l++) grad_mu[b * LANES + l] = s->eps * sum[s->kernels * LANES + l];
        }
    }
}
