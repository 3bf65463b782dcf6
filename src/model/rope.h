/* rope.h - rotary position embedding: pairs (i, i + d/2) of a head turn by an angle that grows with
 * the position; in GGUF files the same pairs lie side by side. */
#ifndef DSMOE_MODEL_ROPE_H
#define DSMOE_MODEL_ROPE_H

#include "base/status.h"

/* Cosines and sines [config_rope_dim / 2] of a position. */
void rope_angles(const dsmoe_config *config, int64_t position, float *cosines, float *sines);

/* What scores of queries and keys are multiplied with: 1/sqrt of their width, and more with YaRN. */
float rope_scale(const dsmoe_config *config);

/* Turns one head [head_dim] in place. */
typedef void rope_turn_fn(int64_t head_dim, const float *cosines, const float *sines, float *x);
rope_turn_fn rope_turn;       /* pairs (i, i + d/2) */
rope_turn_fn rope_turn_pairs; /* pairs (2i, 2i + 1) */

#endif
