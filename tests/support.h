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

/* Makes JSON easier to read in C strings: returns a copy with " for every ', to be freed. */
char *quoted(const char *text);

/* ---- arrays -------------------------------------------------------------------------------- */

/* n floats, the first of them `offset` floats after an aligned address. Under a sanitizer nothing follows
 * them; otherwise guards do, which floats_free checks. */
typedef struct floats {
    float *at;
    int64_t n;
    void *memory;
} floats;

floats floats_make(int64_t n, int offset);
/* Normally distributed numbers, which depend only on the seed. */
floats floats_random(int64_t n, int offset, uint64_t seed);
void floats_free(floats f);

void fill_random(float *values, int64_t n, uint64_t seed, double deviation);

/* Fills outputs with a guard value, which shows whether they were written. */
void fill_guard(float *values, int64_t n);
bool is_guard(float value);

/* The largest |ours - expected| divided by the largest |expected|; 0 if they are the same. */
double worst_difference(const float *ours, const double *expected, int64_t n);
/* The same for two float arrays; all numbers must be finite. */
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
    dsmoe_workspace workspace; /* enough for every kind of pass */
    dsmoe_layer_losses losses;
} fixture;

dsmoe_layer_config small_config(int64_t hidden, int64_t width, int64_t n_routed, int64_t k,
                                int64_t n_shared);

/* Random weights, x and dy; outputs and gradients are filled with guards. Memory without slack. */
fixture fixture_make(dsmoe_layer_config config, int64_t n_sequences, int64_t sequence_length,
                     int n_threads, uint64_t seed);
void fixture_free(fixture *f);

/* Each fails the test on an error. */
void fixture_infer(fixture *f);
void fixture_forward(fixture *f);
void fixture_backward(fixture *f, bool accumulate);

/* ---- the layer in plain double arithmetic --------------------------------------------------- */

enum { PLAIN_X, PLAIN_GATE, PLAIN_EXPERTS }; /* indices of tensors */

/* Copies of x and of all weights, which a test may change, and the results. */
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
    double *gates;   /* like `chosen` */
    double *hidden;  /* one row of the widest expert */
    double aux_loss, device_loss;
    double margin; /* smallest distance from the last chosen expert or group to the next */
} plain;

plain plain_of(const fixture *f);
void plain_free(plain *p);
void plain_run(plain *p);

/* The gate alone, for one token that may not use its n_masked best experts. Turns logits into scores in
 * place, and writes the chosen experts by falling score (plus bias) and their gate values. Returns the
 * token's margin, as above. Only "noaux_tc" reads `bias`. */
double plain_gate(const dsmoe_layer_config *config, const double *bias, int64_t n_masked,
                  double *scores, int64_t *chosen, double *gates);

#endif
