/* tuning.c - the tensors that are trained on top of a frozen base. */
#include "train/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/config.h"
#include "model/init.h"
#include "model/kv_b.h"
#include "train/targets.h"

/* ---- checks ------------------------------------------------------------------------------------ */

static dsmoe_status check_lora(const dsmoe_config *c, const dsmoe_tuning *tuning,
                               dsmoe_error *error)
{
    if (tuning->rank < 1 || tuning->rank > LOW_RANK_MOST)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "rank must be 1 to %d, not %lld",
                           LOW_RANK_MOST, (long long)tuning->rank);
    if (!(tuning->alpha > 0.0) || !isfinite((float)tuning->alpha))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "alpha must be a positive number, not %g",
                           tuning->alpha);
    return targets_check(c, tuning->targets, error);
}

static dsmoe_status check_experts(const dsmoe_config *c, const dsmoe_tuning *tuning,
                                  dsmoe_error *error)
{
    int64_t n = c->num_hidden_layers * c->n_routed_experts, chosen = 0;
    for (int64_t i = 0; tuning->experts && i < n; i++)
        chosen += tuning->experts[i] && dsmoe_config_layer_is_moe(c, i / c->n_routed_experts);
    if (chosen > 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "no routed expert is chosen to be trained");
}

dsmoe_status tuning_check(const dsmoe_config *c, const dsmoe_trainer_options *o, dsmoe_error *error)
{
    const dsmoe_tuning *tuning = o->tuning;
    if (!tuning) return DSMOE_OK;
    if (!tuning->base)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "to train a part of a model, its base must be given");
    if (o->peers && o->parallel == DSMOE_PARALLEL_EXPERTS)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "experts of a frozen model cannot be divided over ranks: each rank "
                           "maps the whole file");
    if (tuning->base->peers)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a model that is divided over ranks cannot be trained");
    return tuning->train == DSMOE_TRAIN_LORA ? check_lora(c, tuning, error)
                                             : check_experts(c, tuning, error);
}

/* ---- the base ---------------------------------------------------------------------------------- */

typedef struct base_walk {
    dsmoe_trainer *trainer;
    size_t next;
} base_walk;

static dsmoe_status base_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    base_walk *walk = context;
    (void)error;
    base_slot *slot = &walk->trainer->base_slots[walk->next++];
    memcpy(slot->shape, spec->shape, sizeof slot->shape);
    if (spec->n_dims == 2) {
        slot->matrix = *spec->slot.matrix;
        slot->matrix.home = NULL; /* octets outside the file would need its memory a second time */
        slot->matrix.id = 0;      /* the trainer assigns one */
    } else {
        slot->vector = *spec->slot.vector;
    }
    return DSMOE_OK;
}

/* A GGUF file has kv_b_proj in two halves; training needs it whole. */
static dsmoe_status join_kv_b(dsmoe_trainer *t, dsmoe_error *error)
{
    const dsmoe_config *c = &t->config;
    const model_weights *base = t->options.tuning->base->weights;
    if (!base->kv_b_split) return DSMOE_OK;
    int64_t n_rows = c->num_attention_heads * (c->qk_nope_head_dim + c->v_head_dim);
    int64_t width = c->kv_lora_rank;
    t->kv_b = memory_alloc((size_t)(c->num_hidden_layers * n_rows * width) * sizeof *t->kv_b);
    if (!t->kv_b)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "not enough memory for kv_b_proj of %lld layers",
                           (long long)c->num_hidden_layers);
    float *at = t->kv_b;
    for (size_t i = 0; i < t->n_tensors; i++) {
        if (t->base_slots[i].matrix.data || t->base_slots[i].vector) continue;
        int64_t layer = (at - t->kv_b) / (n_rows * width);
        for (int64_t r = 0; r < n_rows; r++)
            kv_b_whole(t->kernels, c, &base->layers[layer], r, at + r * width);
        t->base_slots[i].matrix = matrix_f32(at, width);
        at += n_rows * width;
    }
    return DSMOE_OK;
}

static dsmoe_status same_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    base_walk *walk = context;
    const base_slot *slot = &walk->trainer->base_slots[walk->next++];
    if (!memcmp(slot->shape, spec->shape, sizeof slot->shape)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "the base differs from the model to train at %s",
                       spec->name);
}

static dsmoe_status count_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)spec;
    (void)error;
    ++*(size_t *)context;
    return DSMOE_OK;
}

dsmoe_status tuning_open(dsmoe_trainer *t, dsmoe_error *error)
{
    if (!t->options.tuning) return DSMOE_OK;
    const dsmoe_model *base = t->options.tuning->base;
    model_weights whole = *base->weights;
    size_t n_base = 0, n = 0;
    whole.kv_b_split = false; /* it is trained as a whole */
    weights_each(&base->config, &whole, count_visit, &n_base, NULL);
    weights_each(&t->config, NULL, count_visit, &n, NULL);
    if (n != n_base)
        return status_fail(error, DSMOE_ERROR_CONFIG, "the base is not the model to be trained");
    t->n_tensors = n;
    t->base_slots = calloc(n, sizeof *t->base_slots);
    t->low_of = calloc(n + 1, sizeof *t->low_of);
    if (!t->base_slots || !t->low_of)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to train this model");
    base_walk walk = {.trainer = t}, same = {.trainer = t};
    STATUS_TRY(weights_each(&base->config, &whole, base_visit, &walk, error));
    STATUS_TRY(weights_each(&t->config, NULL, same_visit, &same, error));
    STATUS_TRY(join_kv_b(t, error));
    t->weight_slots->rope_pairs = base->weights->rope_pairs;
    return DSMOE_OK;
}

void tuning_close(dsmoe_trainer *t)
{
    for (size_t i = 0; t->parameters && i < t->n_parameters; i++)
        if (t->parameters[i].part != PART_WHOLE) free((char *)t->parameters[i].name);
    free(t->base_slots);
    free(t->low_of);
    free(t->kv_b);
}

base_slot tuning_slot(const dsmoe_trainer *t, size_t index) { return t->base_slots[index]; }

/* ---- trained parameters ------------------------------------------------------------------------ */

static bool is_chosen_expert(const dsmoe_trainer *t, const weight_spec *spec)
{
    long long layer, expert;
    return sscanf(spec->name, "model.layers.%lld.mlp.experts.%lld.", &layer, &expert) == 2 &&
           t->options.tuning->experts[layer * t->config.n_routed_experts + expert];
}

int tuning_parts(const dsmoe_trainer *t, const weight_spec *spec, parameter parts[TUNING_PARTS])
{
    const dsmoe_tuning *tuning = t->options.tuning;
    parts[0] = (parameter){.shape = {spec->shape[0], spec->shape[1]},
                           .n_dims = spec->n_dims,
                           .decays = spec->n_dims == 2,
                           .role = spec->role};
    int n = 1;
    if (tuning && tuning->train == DSMOE_TRAIN_EXPERTS) n = is_chosen_expert(t, spec);
    if (tuning && tuning->train == DSMOE_TRAIN_LORA) {
        parts[1] = parts[0];
        parts[0].part = PART_LORA_A;
        parts[0].shape[0] = tuning->rank;
        parts[1].part = PART_LORA_B;
        parts[1].shape[1] = tuning->rank;
        n = targets_match(tuning->targets, spec) ? 2 : 0;
    }
    for (int i = 0; i < n; i++) parts[i].n = parts[i].shape[0] * parts[i].shape[1];
    return n;
}

char *tuning_name(const char *tensor, parameter_part part)
{
    static const char before[] = "base_model.model.";
    size_t stem = strlen(tensor) - strlen(".weight"), size = sizeof before + stem + 32;
    char *name = malloc(size);
    if (name)
        snprintf(name, size, "%s%.*s.lora_%c.weight", before, (int)stem, tensor,
                 part == PART_LORA_A ? 'A' : 'B');
    return name;
}

void tuning_place(dsmoe_trainer *t)
{
    const dsmoe_tuning *tuning = t->options.tuning;
    if (!tuning || tuning->train != DSMOE_TRAIN_LORA) return;
    double rank = (double)tuning->rank;
    float scale = (float)(tuning->alpha / (tuning->rslora ? sqrt(rank) : rank));
    for (size_t i = 0; i < t->n_parameters; i += 2) {
        const parameter *a = &t->parameters[i], *b = a + 1;
        t->low_of[a->tensor + 1] = (low_rank){.a = t->weights ? t->weights + a->begin : NULL,
                                              .b = t->weights ? t->weights + b->begin : NULL,
                                              .rank = tuning->rank,
                                              .scale = scale};
    }
    t->low.adapter = (adapter){t->low_of, (int64_t)t->n_tensors + 1, tuning->rank};
    t->low.range = (adapter_range){&t->low.adapter, 1.0f, 0, INT32_MAX};
}

void tuning_place_gradients(const dsmoe_trainer *t, low_rank_gradient *table,
                            float *(*where)(const void *context, const parameter *p),
                            const void *context)
{
    for (size_t i = 0; i < t->n_parameters; i++) {
        const parameter *p = &t->parameters[i];
        if (p->part == PART_LORA_A) table[p->tensor + 1].a = where(context, p);
        if (p->part == PART_LORA_B) table[p->tensor + 1].b = where(context, p);
    }
}

void tuning_init(const parameter *p, uint64_t seed, float *numbers)
{
    float bound = (float)(1.0 / sqrt((double)p->shape[1]));
    if (p->part == PART_LORA_A)
        rng_uniform(numbers, p->n, seed, init_stream(p->name), 0, -bound, bound);
    else
        memset(numbers, 0, (size_t)p->n * sizeof *numbers);
}
