/* scalar_latent.c - latents of every type of a cache in plain C: the specification of every other set.
 *
 * Panels and packed queries are rows of float32, one after the other. */
#include "kernels/scalar.h"

static void load_f32(int64_t n, const void *src, int64_t width, float *panel)
{
    kernels_scalar.dtypes[DSMOE_F32].widen(n * width, src, panel);
}

static void load_f16(int64_t n, const void *src, int64_t width, float *panel)
{
    kernels_scalar.dtypes[DSMOE_F16].widen(n * width, src, panel);
}

static void load_q8_0(int64_t n, const void *src, int64_t width, float *panel)
{
    kernels_scalar.dtypes[DSMOE_Q8_0].widen(n * width, src, panel);
}

static void load_floats(int64_t n, const float *from, int64_t stride, int64_t width, float *panel)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < width; k++) panel[j * width + k] = from[j * stride + k];
}

static void pack(int64_t m, const float *q, int64_t width, float *packed)
{
    for (int64_t i = 0; i < m * width; i++) packed[i] = q[i];
}

/* Each sum adds one product after the other along the columns. */
static void score(int64_t m, const float *packed, int64_t n, const float *panel, int64_t width,
                  float *scores, int64_t ld, latent_next next)
{
    (void)next; /* portable C has no prefetch */
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < width; k++) sum += packed[i * width + k] * panel[j * width + k];
            scores[i * ld + j] = sum;
        }
}

/* Each sum adds one product after the other along the rows. */
static void add(int64_t m, const float *weights, int64_t ld, int64_t n, const float *panel,
                int64_t width, float *y, int64_t n_sums)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n_sums; k++)
                y[i * n_sums + k] += weights[i * ld + j] * panel[j * width + k];
}

const latent_kernels latents_scalar[N_DTYPES] = {
    [DSMOE_F32] = {load_f32, load_floats, pack, score, add},
    [DSMOE_F16] = {load_f16, load_floats, pack, score, add},
    [DSMOE_Q8_0] = {load_q8_0, load_floats, pack, score, add},
};
