/* support.h - what several tests share: made-up numbers, arrays without slack, a layer with all its
 * memory, and the same layer in plain double arithmetic. */
#ifndef DSMOE_TESTS_SUPPORT_H
#define DSMOE_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dsmoe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* JSON in C strings is easier to read with ' for ": a copy with ", to be freed. */
char *quoted(const char *text);

/* ---- arrays -------------------------------------------------------------------------------- */

/* n floats, the first of them `offset` floats after an aligned address. Nothing lies after them
 * where a sanitizer watches; elsewhere guards do, which floats_free looks at. */
typedef struct floats {
    float *at;
    int64_t n;
    void *memory;
} floats;

floats floats_make(int64_t n, int offset);
/* Normally distributed, the same for the same seed. */
floats floats_random(int64_t n, int offset, uint64_t seed);
void floats_free(floats f);

void fill_random(float *values, int64_t n, uint64_t seed, double deviation);

/* What an output is filled with to see whether it was written. */
void fill_guard(float *values, int64_t n);
bool is_guard(float value);

/* Largest |ours - expected| over the largest |expected|; 0 if they are the same. */
double worst_difference(const float *ours, const double *expected, int64_t n);
/* The same for numbers that are all finite. */
double worst_distance(const float *ours, const float *others, int64_t n);

/* ---- a layer and its memory ----------------------------------------------------------------- */

typedef struct tensor {
    char name[48];
    float *data;
    int64_t n;
} tensor;

/* All matrices of a layer under the names of a checkpoint, the router first. */
enum { MAX_TENSORS = 128 };
int layer_tensors(const dsmoe_layer_config *config, const dsmoe_layer_weights *weights,
                  tensor list[MAX_TENSORS]);

typedef struct fixture {
    dsmoe_layer_config config;
    int64_t n_sequences, sequence_length, n_tokens;
    dsmoe_layer_weights *weights, *gradients;
    dsmoe_layer *layer;
    float *x, *dy, *y, *dx;
    void *saved;
    size_t saved_size;
    dsmoe_workspace workspace; /* enough for every pass */
    dsmoe_layer_losses losses;
} fixture;

dsmoe_layer_config small_config(int64_t hidden, int64_t width, int64_t n_routed, int64_t k,
                                int64_t n_shared);

/* Random weights, x and dy; outputs and gradients full of guards. Memory without slack. */
fixture fixture_make(dsmoe_layer_config config, int64_t n_sequences, int64_t sequence_length,
                     int n_threads, uint64_t seed);
void fixture_free(fixture *f);

/* Each fails the test on an error. */
void fixture_infer(fixture *f);
void fixture_forward(fixture *f);
void fixture_backward(fixture *f, bool accumulate);

/* ---- the layer in plain double arithmetic --------------------------------------------------- */

enum { PLAIN_X, PLAIN_GATE, PLAIN_EXPERTS }; /* places of tensors */

/* Copies of x and of all weights that a test may change, and what comes out. */
typedef struct plain {
    dsmoe_layer_config config;
    int64_t n_sequences, sequence_length, n_tokens;
    int n_tensors;
    int64_t sizes[MAX_TENSORS + 1];
    double *tensors[MAX_TENSORS + 1];
    double *bias;    /* e_score_correction_bias; NULL: none */
    double *y;       /* [n_tokens, hidden_size] */
    double *scores;  /* [n_tokens, n_routed_experts] */
    int64_t *chosen; /* [n_tokens, num_experts_per_tok] by falling score */
    double *gates;   /* the same */
    double *hidden;  /* one row of the widest expert */
    double aux_loss, device_loss;
    double
        margin; /* smallest distance between the last chosen and the next one, experts or groups */
} plain;

plain plain_of(const fixture *f);
void plain_free(plain *p);
void plain_run(plain *p);

/* The gate alone, for one token that may not use its n_masked first experts: from its logits to scores, in place,
 * choices by falling score (plus bias) and gate values. Returns the token's margin, as above. `bias` is read with
 * "noaux_tc" only. */
double plain_gate(const dsmoe_layer_config *config, const double *bias, int64_t n_masked,
                  double *scores, int64_t *chosen, double *gates);

#endif
