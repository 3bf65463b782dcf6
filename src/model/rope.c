/* rope.c - rotary position embedding. Angles are rounded to float32 where the public model does, so
 * that far positions agree with it. */
#include "model/rope.h"

#include <math.h>

#include "model/config.h"

/* With dynamic scaling the base grows once a sequence is longer than what the model was trained on,
 * so that the slowest pair just covers it. The length is the one that the sequence has with this
 * token as its last: so angles are the same however the tokens come, one by one or together. */
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

/* 0.1·mscale·ln(factor) + 1 */
static double yarn_growth(const dsmoe_config *config, double mscale)
{
    return 0.1 * mscale * log(config->rope_scaling_factor) + 1.0;
}

/* The pair that turns so many times within the original length, as a real number. */
static double yarn_pair(const dsmoe_config *config, double turns)
{
    double length = (double)config->original_max_position_embeddings;
    return (double)config_rope_dim(config) * log(length / (turns * 2.0 * M_PI)) /
           (2.0 * log(config->rope_theta));
}

/* YaRN keeps fast pairs as they are and slows slow ones down by the factor; in between a ramp leads from one to the
 * other. */
static float yarn_frequency(const dsmoe_config *config, int64_t pair, float power)
{
    double dim = (double)config_rope_dim(config);
    float low = (float)fmax(floor(yarn_pair(config, config->beta_fast)), 0.0);
    float high = (float)fmin(ceil(yarn_pair(config, config->beta_slow)), dim - 1.0);
    if (low == high) high += 0.001f;
    float slowed = fminf(fmaxf(((float)pair - low) / (high - low), 0.0f), 1.0f);
    float fast = 1.0f / power, slow = 1.0f / ((float)config->rope_scaling_factor * power);
    float kept = 1.0f - slowed;
    return slow * (1.0f - kept) + fast * kept;
}

void rope_angles(const dsmoe_config *config, int64_t position, float *cosines, float *sines)
{
    int64_t dim = config_rope_dim(config);
    double base = rope_base(config, position);
    bool is_yarn = config->rope_scaling == DSMOE_ROPE_YARN;
    float at = (float)position, growth = 1.0f;
    if (config->rope_scaling == DSMOE_ROPE_LINEAR) at /= (float)config->rope_scaling_factor;
    if (is_yarn)
        growth = (float)(yarn_growth(config, config->mscale) /
                         yarn_growth(config, config->mscale_all_dim));
    for (int64_t i = 0; i < dim / 2; i++) {
        float exponent = (float)(2 * i) / (float)dim;
        float power = (float)pow(base, exponent);
        float angle = at * (is_yarn ? yarn_frequency(config, i, power) : 1.0f / power);
        cosines[i] = (float)cos(angle) * growth;
        sines[i] = (float)sin(angle) * growth;
    }
}

float rope_scale(const dsmoe_config *config)
{
    double scale = 1.0 / sqrt((double)config_head_dim(config));
    if (config->rope_scaling != DSMOE_ROPE_YARN) return (float)scale;
    double growth = yarn_growth(config, config->mscale_all_dim);
    return (float)(scale * growth * growth);
}

void rope_turn(int64_t head_dim, const float *cosines, const float *sines, float *x)
{
    int64_t half = head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = b * cosines[i] + a * sines[i];
    }
}

void rope_turn_pairs(int64_t head_dim, const float *cosines, const float *sines, float *x)
{
    for (int64_t i = 0; i < head_dim / 2; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosines[i] - b * sines[i];
        x[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
}
