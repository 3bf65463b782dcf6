/* rope.c - rotary position embedding. Angles are rounded to float32 where the public model does, so
 * that far positions agree with it. */
#include "model/rope.h"

#include <math.h>

#include "model/config.h"

/* With dynamic scaling the base grows once a sequence is longer than what the model was trained on,
 * so that the slowest pair just covers it. The length counts up to this token, so that angles are the
 * same whether tokens come one by one or together. */
static double rope_base(const dsmoe_config *config, int64_t position)
{
    double trained = (double)config->max_position_embeddings, factor = config->rope_scaling_factor;
    int64_t length = position + 1;
    if (config->rope_scaling != DSMOE_ROPE_DYNAMIC || length <= config->max_position_embeddings)
        return config->rope_theta;
    double dim = (double)config_rope_dim(config);
    double growth = factor * (double)length / trained - (factor - 1.0);
    return config->rope_theta * pow(growth, dim / (dim - 2.0));
}

/* YaRN's multiplier for lengths beyond the trained one; `mscale` is one of the configuration's two. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* The pair that makes `rotations` rotations within the trained length. */
static double yarn_pair(const dsmoe_config *config, double rotations)
{
    const double two_pi = 6.283185307179586;
    double trained = (double)config->original_max_position_embeddings;
    return (double)config_rope_dim(config) * log(trained / (rotations * two_pi)) /
           (2.0 * log(config->rope_theta));
}

/* The share of pair i's frequency that is divided by the factor: from 0 for pairs that rotate often within
 * the trained length to 1 for pairs that hardly rotate, with a ramp between them. */
static float yarn_ramp(const dsmoe_config *config, int64_t i)
{
    double last = (double)(config_rope_dim(config) - 1);
    double low = fmax(floor(yarn_pair(config, config->beta_fast)), 0.0);
    double high = fmin(ceil(yarn_pair(config, config->beta_slow)), last);
    if (low == high) high += 0.001;
    return (float)fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
}

static float frequency_of(const dsmoe_config *config, double base, int64_t i)
{
    float exponent = (float)(2 * i) / (float)config_rope_dim(config);
    float turns = (float)pow(base, exponent);
    if (config->rope_scaling != DSMOE_ROPE_YARN) return 1.0f / turns;
    float slowed = yarn_ramp(config, i);
    return 1.0f / ((float)config->rope_scaling_factor * turns) * slowed +
           1.0f / turns * (1.0f - slowed);
}

void rope_angles(const dsmoe_config *config, int64_t position, float *cosines, float *sines)
{
    double base = rope_base(config, position), factor = config->rope_scaling_factor, length = 1.0;
    float at = (float)position;
    if (config->rope_scaling == DSMOE_ROPE_LINEAR) at /= (float)factor;
    if (config->rope_scaling == DSMOE_ROPE_YARN)
        length = yarn_mscale(factor, config->mscale) / yarn_mscale(factor, config->mscale_all_dim);
    for (int64_t i = 0; i < config_rope_dim(config) / 2; i++) {
        float angle = at * frequency_of(config, base, i);
        cosines[i] = (float)cos(angle) * (float)length;
        sines[i] = (float)sin(angle) * (float)length;
    }
}

double rope_score_scale(const dsmoe_config *config)
{
    double scale = 1.0 / sqrt((double)config_head_dim(config));
    if (config->rope_scaling != DSMOE_ROPE_YARN) return scale;
    double m = yarn_mscale(config->rope_scaling_factor, config->mscale_all_dim);
    return scale * m * m;
}

void rope_turn(int64_t dim, const float *cosines, const float *sines, float *x)
{
    int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = b * cosines[i] + a * sines[i];
    }
}

void rope_turn_pairs(int64_t dim, const float *cosines, const float *sines, float *x)
{
    for (int64_t i = 0; i < dim / 2; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosines[i] - b * sines[i];
        x[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
}
