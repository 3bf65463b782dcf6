/* rope.h - rotary position embedding: pairs (i, i + d/2) of a head rotate by an angle that grows with the
 * position; in GGUF files the same pairs are neighbours. Latent attention rotates only a part of a head,
 * whose pairs are always neighbours. */
#ifndef DSMOE_MODEL_ROPE_H
#define DSMOE_MODEL_ROPE_H

#include "base/status.h"

/* Cosines and sines [config_rope_dim / 2] of a position. With YaRN their length is not 1, since they include
 * its scale of queries and keys. */
void rope_angles(const dsmoe_config *config, int64_t position, float *cosines, float *sines);

/* The factor of scores: 1 / √(a head's width), and larger with YaRN. */
double rope_score_scale(const dsmoe_config *config);

/* Rotates dim numbers of a head in place. */
typedef void rope_turn_fn(int64_t dim, const float *cosines, const float *sines, float *x);
rope_turn_fn rope_turn;       /* pairs (i, i + d/2) */
rope_turn_fn rope_turn_pairs; /* pairs (2i, 2i + 1) */

#endif
