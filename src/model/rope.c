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
    double dim = (double)config_head_dim(config);
    double growth = factor * (double)length / trained - (factor - 1.0);
    return config->rope_theta * pow(growth, dim / (dim - 2.0));
}

void rope_angles(const dsmoe_config *config, int64_t position, float *cosines, float *sines)
{
    int64_t dim = config_head_dim(config);
    double base = rope_base(config, position);
    float at = (float)position;
    if (config->rope_scaling == DSMOE_ROPE_LINEAR) at /= (float)config->rope_scaling_factor;
    for (int64_t i = 0; i < dim / 2; i++) {
        float exponent = (float)(2 * i) / (float)dim;
        float frequency = 1.0f / (float)pow(base, exponent);
        float angle = at * frequency;
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
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
