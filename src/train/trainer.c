/* trainer.c - a model being trained: its memory and weights.
 *
 * Weights, gradients and both moments are four arrays of numbers with the tensors in the order of the
 * walk, each on a cache line of its own. The optimizer sees only these arrays, the model only the tensors.
 * A rank has only the gradients and moments that it owns (shares.h). */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "model/config.h"
#include "model/init.h"
#include "moe/ints.h"
#include "train/adamw.h"
#include "train/arrival.h"
#include "train/correction.h"
#include "train/step.h"
#include "train/tuning.h"
#include "train/units.h"

enum {
    THREADS_MAX = 1024,
    BATCH_MAX = 1 << 24,   /* tokens that go through the model at once */
    TENSORS_MAX = 1 << 22, /* limit for listing tensors before their sizes are known */
};

/* The share of available memory that a trainer takes if it can keep more or less. */
static const double largest_share = 0.9;

dsmoe_trainer_options dsmoe_trainer_options_default(void)
{
    return (dsmoe_trainer_options){.n_sequences = 8,
                                   .sequence_length = 256,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .clip_norm = 1.0,
                                   .bias_speed = 0.001};
}

/* Checked in float32, because that is how they are used. */
static bool in_unit(double x) { return x >= 0.0 && (float)x < 1.0f; }

static dsmoe_status options_check(const dsmoe_config *c, const dsmoe_trainer_options *o,
                                  dsmoe_error *error)
{
    if (o->n_sequences < 1 || o->sequence_length < 1 || o->n_sequences > BATCH_MAX ||
        o->sequence_length > BATCH_MAX / o->n_sequences)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a batch of %lld x %lld tokens is impossible", (long long)o->n_sequences,
                           (long long)o->sequence_length);
    if (!in_unit(o->beta1) || !in_unit(o->beta2) || !((float)o->eps > 0.0f) || !isfinite(o->eps) ||
        !in_unit(o->weight_decay) || !(o->clip_norm >= 0.0))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "AdamW cannot work with betas %g and %g, eps %g, decay %g, clipping %g",
                           o->beta1, o->beta2, o->eps, o->weight_decay, o->clip_norm);
    if (!(o->device_loss_alpha >= 0.0) || !isfinite(o->device_loss_alpha))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the device-level balance loss cannot have the factor %g",
                           o->device_loss_alpha);
    if (!(o->bias_speed >= 0.0) || !isfinite((float)o->bias_speed))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the bias of a gate cannot follow the load with the speed %g",
                           o->bias_speed);
    if (o->n_device_groups < 0 ||
        (o->n_device_groups > 0 && c->n_routed_experts % o->n_device_groups != 0))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%lld device groups do not divide %lld routed experts evenly",
                           (long long)o->n_device_groups, (long long)c->n_routed_experts);
    if (o->n_threads < 1 || o->n_threads > THREADS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads must be 1 to %d, not %d",
                           THREADS_MAX, o->n_threads);
    return DSMOE_OK;
}

static dsmoe_status out_of_memory(dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to train this model");
}

/* ---- places of tensors --------------------------------------------------------------------- */

typedef struct list_walk {
    dsmoe_trainer *trainer;
    size_t tensor;
} list_walk;

/* The section that a tensor belongs to: 0 for the embedding, then the layers, then the rest. */
static int64_t section_of(const dsmoe_trainer *t, const char *name)
{
    long long layer = -1;
    sscanf(name, "model.layers.%lld.", &layer);
    bool is_first = !strncmp(name, "model.embed_tokens.", strlen("model.embed_tokens."));
    return layer >= 0 ? layer + 1 : is_first ? 0 : t->config.num_hidden_layers + 1;
}

/* The first walk counts the parameters, the second lists them. */
static dsmoe_status list_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    list_walk *walk = context;
    dsmoe_trainer *t = walk->trainer;
    long long layer, expert = -1;
    sscanf(spec->name, "model.layers.%lld.mlp.experts.%lld.", &layer, &expert);
    parameter parts[TUNING_PARTS];
    int n = tuning_parts(t, spec, parts);
    for (int i = 0; t->parameters && i < n; i++) {
        parts[i].tensor = walk->tensor;
        parts[i].section = section_of(t, spec->name);
        parts[i].expert = expert;
        if (parts[i].part != PART_WHOLE) {
            parts[i].name = tuning_name(spec->name, parts[i].part);
            if (!parts[i].name) return out_of_memory(error);
        }
        t->parameters[t->n_parameters + (size_t)i] = parts[i];
    }
    t->n_parameters += (size_t)n;
    walk->tensor++;
    return DSMOE_OK;
}

const parameter *trainer_whole(const dsmoe_trainer *t, size_t index)
{
    size_t low = 0, high = t->n_parameters;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->parameters[middle].tensor < index)
            low = middle + 1;
        else
            high = middle;
    }
    const parameter *p = &t->parameters[low];
    return low < t->n_parameters && p->tensor == index && p->part == PART_WHOLE ? p : NULL;
}

/* Points the slots of a walk into an array of numbers. */
typedef struct slot_walk {
    const dsmoe_trainer *trainer;
    float *row;
    size_t next;
} slot_walk;

static dsmoe_status slot_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    slot_walk *walk = context;
    const dsmoe_trainer *t = walk->trainer;
    size_t tensor = walk->next++;
    const parameter *p = trainer_whole(t, tensor);
    base_slot slot = {0};
    if (!p)
        slot = tuning_slot(t, tensor);
    else if (walk->row && p->begin >= 0)
        slot.vector = walk->row + p->begin;
    if (spec->n_dims == 1)
        *spec->slot.vector = slot.vector;
    else
        *spec->slot.matrix = p ? matrix_f32(slot.vector, spec->shape[1]) : slot.matrix;
    return DSMOE_OK;
}

static void set_slots(const dsmoe_trainer *t, model_weights *slots, float *row)
{
    slot_walk walk = {.trainer = t, .row = row};
    weights_each(&t->config, slots, slot_visit, &walk, NULL);
    if (t->config.tie_word_embeddings) slots->lm_head = slots->embed_tokens;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Which forms of x the weights need: see ints.h. */
static dsmoe_status form_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    dsmoe_trainer *t = context;
    if (spec->n_dims == 2) t->x_forms |= ints_forms(t->kernels, *spec->slot.matrix);
    return DSMOE_OK;
}

/* Sets up everything small: the places of the tensors, and the model that uses them. */
static dsmoe_status describe(dsmoe_trainer *t, dsmoe_error *error)
{
    list_walk count = {t, 0}, list = {t, 0};
    STATUS_TRY(weights_each(&t->config, NULL, list_visit, &count, error));
    t->parameters = calloc(t->n_parameters + 1, sizeof *t->parameters);
    t->weight_slots = weights_create(&t->config);
    t->n_moe_layers = config_moe_layers(&t->config, t->config.num_hidden_layers);
    size_t n_layers = (size_t)t->n_moe_layers + 1;
    size_t n_loads = n_layers * (size_t)(t->config.n_routed_experts + 1);
    t->expert_load = calloc(n_loads, sizeof *t->expert_load);
    t->step_load = calloc(n_loads, sizeof *t->step_load);
    t->reports = calloc((size_t)peers_size(t->options.peers), units_report_size(t));
    if (!t->parameters || !t->weight_slots || !t->expert_load || !t->step_load || !t->reports)
        return out_of_memory(error);
    t->n_parameters = 0;
    STATUS_TRY(weights_each(&t->config, NULL, list_visit, &list, error));
    STATUS_TRY(tuning_open(t, error));
    STATUS_TRY(shares_make(t, error));
    STATUS_TRY(fold_make(t, error));
    t->n_arrived = t->shares.n_sections;
    set_slots(t, t->weight_slots, NULL);
    dsmoe_generation_config generation = {.temperature = 1.0,
                                          .top_p = 1.0,
                                          .repetition_penalty = 1.0,
                                          .bos_token_id = t->config.bos_token_id};
    if (t->config.eos_token_id >= 0)
        generation.eos_token_id[generation.n_eos_token_ids++] = t->config.eos_token_id;
    STATUS_TRY(model_over(&t->config, &generation, t->weight_slots, t->kernels, &t->model, error));
    t->lowest = t->config.num_hidden_layers;
    for (size_t i = 0; i < t->n_parameters; i++) {
        parameter *p = &t->parameters[i];
        if (p->part == PART_WHOLE) p->name = t->model->tensors[p->tensor].name;
        if (p->section <= t->lowest) t->lowest = p->section > 0 ? p->section - 1 : 0;
    }
    tuning_place(t);
    if (trainer_low_rank(t)) t->model->adapter = &t->low.adapter;
    weights_each(&t->config, t->weight_slots, form_visit, t, NULL);
    t->in_halves = t->options.tuning && t->x_forms != 0;
    t->n_sharing = t->options.recompute ? t->config.num_hidden_layers : 0;
    return DSMOE_OK;
}

/* The layers have copies of the pointers to weights, so they are created once the pointers are known. */
static dsmoe_status make_layers(dsmoe_trainer *t, dsmoe_error *error)
{
    for (int64_t i = 0; i < t->config.num_hidden_layers; i++) dsmoe_layer_free(t->model->layers[i]);
    free(t->model->layers);
    STATUS_TRY(model_create_layers(t->model, error));
    for (int64_t i = 0; i < t->config.num_hidden_layers; i++) {
        if (!t->model->layers[i]) continue;
        t->model->layers[i]->config.n_device_groups = t->options.n_device_groups;
        t->model->layers[i]->config.device_loss_alpha = (float)t->options.device_loss_alpha;
        t->model->layers[i]->low_rank = trainer_low_rank(t);
        if (trainer_low_rank(t)) t->model->layers[i]->low_rank_width = t->low.adapter.most_rank;
        if (trainer_divides_experts(t))
            layer_join(t->model->layers[i], t->options.peers,
                       t->options.n_sequences * t->options.sequence_length);
    }
    return DSMOE_OK;
}

/* Bytes of the frozen tensors. */
static dsmoe_status size_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    double *size = context;
    if (spec->n_dims == 2)
        *size += (double)spec->slot.matrix->stride * (double)spec->shape[0];
    else
        *size += (double)spec->shape[0] * sizeof(float);
    return DSMOE_OK;
}

static size_t base_size(const dsmoe_trainer *t)
{
    double size = 0.0;
    if (!t->options.tuning) return 0;
    weights_each(&t->config, t->weight_slots, size_visit, &size, NULL);
    for (size_t i = 0; i < t->n_parameters; i++)
        if (t->parameters[i].part == PART_WHOLE) size -= (double)t->parameters[i].n * sizeof(float);
    return (size_t)size;
}

static dsmoe_trainer_memory measure(const dsmoe_trainer *t)
{
    dsmoe_trainer_memory none = {0}, m;
    arena a = arena_over(NULL);
    step_place(&a, t, &m.activations);
    arena_take(&a, 1, adamw_size(t));
    size_t all = arena_size(&a);
    /* This cannot overflow: the configuration was checked, so there are fewer than 2^58 numbers of 4
     * bytes. */
    m.weights = (size_t)t->n_numbers * sizeof(float);
    m.gradients = (size_t)t->shares.n_own * sizeof(float);
    m.moments = 2 * m.gradients;
    m.gradients += fold_size(t);
    m.workspace = all - m.activations;
    m.base = base_size(t);
    return all ? m : none;
}

static double memory_sum(const dsmoe_trainer_memory *m)
{
    return (double)m->weights + (double)m->gradients + (double)m->moments + (double)m->activations +
           (double)m->workspace + (double)m->base;
}

/* With tuning, only as many layers share memory as necessary, from the lowest trained one up. Nothing is
 * kept below it. */
static void choose_sharing(dsmoe_trainer *t)
{
    if (!t->options.tuning || t->options.recompute) return;
    double most = (double)t->options.most_memory;
    if (most == 0.0) most = largest_share * (double)memory_available();
    for (t->n_sharing = t->lowest; t->n_sharing < t->config.num_hidden_layers; t->n_sharing++) {
        dsmoe_trainer_memory m = measure(t);
        if (m.workspace > 0 && memory_sum(&m) <= most) return;
    }
}

/* A system that overcommits would grant memory that it does not have, and kill the process later. */
dsmoe_status trainer_check_memory(const dsmoe_trainer_memory *m, dsmoe_error *error)
{
    double state = (double)m->weights + (double)m->gradients + (double)m->moments;
    double batch = (double)m->activations + (double)m->workspace;
    double available = (double)memory_available(), base = (double)m->base;
    if (state + batch + base <= available) return DSMOE_OK;
    if (base > 0.0)
        return status_fail(
            error, DSMOE_ERROR_MEMORY,
            "training takes %.1f GB (the base %.1f GB, weights, gradients and moments of what is "
            "trained %.1f GB, activations and workspace of a batch %.1f GB), and %.1f GB is "
            "available here: use %s",
            (state + batch + base) / 1e9, base / 1e9, state / 1e9, batch / 1e9, available / 1e9,
            base + state > available ? "a base with fewer bits, or train less of it"
                                     : "a smaller batch, shorter sequences or recompute");
    return status_fail(
        error, DSMOE_ERROR_MEMORY,
        "training takes %.1f GB (weights, gradients and moments %.1f GB, activations "
        "and workspace of a batch %.1f GB), and %.1f GB is available here: use %s",
        (state + batch) / 1e9, state / 1e9, batch / 1e9, available / 1e9,
        state > available ? "a smaller model; a smaller batch is not enough"
                          : "a smaller batch, shorter sequences or recompute");
}

static dsmoe_status allocate(dsmoe_trainer *t, dsmoe_error *error)
{
    dsmoe_trainer_memory m = measure(t);
    size_t all = m.activations + m.workspace;
    if (all == 0)
        return status_fail(
            error, DSMOE_ERROR_MEMORY,
            "a batch of %lld x %lld tokens of this model does not fit into any memory",
            (long long)t->options.n_sequences, (long long)t->options.sequence_length);
    STATUS_TRY(trainer_check_memory(&m, error));
    float **rows_of[] = {&t->weights, &t->gradients, &t->first_moment, &t->second_moment};
    for (int i = 0; all && i < 4; i++) {
        *rows_of[i] = memory_alloc(i == 0 ? m.weights : m.moments / 2);
        if (!*rows_of[i]) all = 0;
    }
    t->memory = all ? memory_alloc(all) : NULL;
    if (!t->memory)
        return status_fail(
            error, DSMOE_ERROR_MEMORY,
            "not enough memory: %.1f GB for weights, gradients and moments, %.1f GB for "
            "activations and workspace",
            (double)(m.weights + m.gradients + m.moments) / 1e9,
            (double)(m.activations + m.workspace) / 1e9);
    set_slots(t, t->weight_slots, t->weights);
    tuning_place(t);
    STATUS_TRY(fold_allocate(t, error));
    STATUS_TRY(make_layers(t, error));
    arena a = arena_over(t->memory);
    size_t activations;
    t->space = step_place(&a, t, &activations);
    t->norms = arena_take(&a, 1, adamw_size(t));
    step_begin(t);
    return DSMOE_OK;
}

dsmoe_status trainer_open_small(const dsmoe_config *config, const dsmoe_trainer_options *options,
                                dsmoe_trainer **trainer, dsmoe_error *error)
{
    dsmoe_trainer_options o = *options;
    if (o.n_threads == 0) o.n_threads = (int)moe_min(THREADS_MAX, threads_available());
    if (o.peers && o.peers->size == 1) o.peers = NULL;
    STATUS_TRY(config_check(config, error));
    STATUS_TRY(options_check(config, &o, error));
    STATUS_TRY(tuning_check(config, &o, error));
    if ((double)config->num_hidden_layers * (3.0 * (double)config->n_routed_experts + 16) >
        TENSORS_MAX)
        return status_fail(
            error, DSMOE_ERROR_MEMORY, "%lld layers of %lld experts are too many to train",
            (long long)config->num_hidden_layers, (long long)config->n_routed_experts);
    dsmoe_trainer *made = calloc(1, sizeof *made);
    if (!made) return out_of_memory(error);
    made->config = *config;
    made->options = o;
    if (o.peers) {
        timed_peers_open(&made->timed, o.peers);
        made->options.peers = &made->timed.table;
    }
    made->kernels = kernels_get();
    dsmoe_status status = describe(made, error);
    if (status == DSMOE_OK) status = make_layers(made, error);
    if (status == DSMOE_OK) choose_sharing(made);
    if (status != DSMOE_OK) {
        dsmoe_trainer_free(made);
        return status;
    }
    *trainer = made;
    return DSMOE_OK;
}

dsmoe_trainer_memory dsmoe_trainer_memory_size(const dsmoe_config *config,
                                               const dsmoe_trainer_options *options)
{
    dsmoe_trainer_memory size = {0};
    dsmoe_trainer *small;
    if (!config || !options || trainer_open_small(config, options, &small, NULL) != DSMOE_OK)
        return size;
    size = measure(small);
    dsmoe_trainer_free(small);
    return size;
}

dsmoe_status dsmoe_trainer_create(const dsmoe_config *config, const dsmoe_trainer_options *options,
                                  dsmoe_trainer **trainer, dsmoe_error *error)
{
    if (!config || !options || !trainer)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no configuration, no options or no place for the trainer given");
    *trainer = NULL;
    dsmoe_trainer *made;
    STATUS_TRY(trainer_open_small(config, options, &made, error));
    dsmoe_status status = allocate(made, error);
    if (status != DSMOE_OK) {
        dsmoe_trainer_free(made);
        return status;
    }
    *trainer = made;
    return DSMOE_OK;
}

void dsmoe_trainer_free(dsmoe_trainer *t)
{
    if (!t) return;
    dsmoe_model_free(t->model);
    weights_free(t->weight_slots);
    shares_free(&t->shares);
    fold_free(&t->fold);
    tuning_close(t);
    free(t->parameters);
    free(t->expert_load);
    free(t->step_load);
    free(t->reports);
    free(t->weights);
    free(t->gradients);
    free(t->first_moment);
    free(t->second_moment);
    free(t->memory);
    free(t);
}

/* ---- weights ------------------------------------------------------------------------------- */

typedef struct init_job {
    dsmoe_trainer *trainer;
    uint64_t seed;
} init_job;

static void init_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const init_job *job = context;
    const parameter *p = &job->trainer->parameters[task];
    if (p->begin < 0) return;
    if (p->part != PART_WHOLE) {
        tuning_init(p, job->seed, job->trainer->weights + p->begin);
        return;
    }
    init_numbers(&job->trainer->config, job->seed, p->name, p->role, 0, p->n,
                 job->trainer->weights + p->begin);
}

void dsmoe_trainer_init(dsmoe_trainer *trainer, uint64_t seed)
{
    init_job job = {trainer, seed};
    threads_for(trainer->options.n_threads, (int64_t)trainer->n_parameters, init_task, &job);
}

const dsmoe_model *dsmoe_trainer_model(const dsmoe_trainer *trainer) { return trainer->model; }

size_t dsmoe_trainer_parameter_count(const dsmoe_trainer *trainer) { return trainer->n_parameters; }

dsmoe_tensor_info dsmoe_trainer_parameter(const dsmoe_trainer *trainer, size_t index)
{
    dsmoe_tensor_info none = {0};
    if (index >= trainer->n_parameters) return none;
    const parameter *p = &trainer->parameters[index];
    return (dsmoe_tensor_info){.name = p->name,
                               .dtype = DSMOE_F32,
                               .n_dims = p->n_dims,
                               .shape = {p->shape[0], p->shape[1]},
                               .size = (size_t)p->n * sizeof(float)};
}

const float *dsmoe_trainer_weight(const dsmoe_trainer *trainer, size_t index)
{
    if (index >= trainer->n_parameters || trainer->parameters[index].begin < 0) return NULL;
    return trainer->weights + trainer->parameters[index].begin;
}

const float *dsmoe_trainer_gradient(const dsmoe_trainer *trainer, size_t index)
{
    if (index >= trainer->n_parameters) return NULL;
    const parameter *p = &trainer->parameters[index];
    share_range own = shares_range(trainer, index, peers_rank(trainer->options.peers));
    if (own.end - own.first < p->n) return NULL;
    return trainer->gradients + shares_chunk(trainer, p->first_chunk).own;
}

/* ---- an update ----------------------------------------------------------------------------- */

dsmoe_status trainer_update(dsmoe_trainer *t, double lr, dsmoe_update *update, dsmoe_error *error)
{
    if (!t || t->n_batches == 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "an update needs a batch before it");
    if (!isfinite(lr) || lr < 0.0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the learning rate must be a finite number of at least 0, not %g", lr);
    dsmoe_update done = {NAN, true};
    dsmoe_status status = DSMOE_OK;
    if (!t->poisoned) status = adamw_update(t, lr, t->norms, &done, error);
    correction_update(t, done.skipped);
    t->n_batches = 0;
    t->poisoned = false;
    if (update) *update = done;
    if (!done.skipped) arrival_expect(t);
    return status;
}

dsmoe_status dsmoe_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                  dsmoe_error *error)
{
    STATUS_TRY(trainer_update(trainer, lr, update, error));
    STATUS_TRY(arrival_finish(trainer, error));
    trainer_start_lap(trainer); /* counts the sending in this step, not in the next */
    return DSMOE_OK;
}

/* ---- load and times ------------------------------------------------------------------------ */

const int64_t *dsmoe_trainer_expert_load(const dsmoe_trainer *trainer)
{
    return trainer->expert_load;
}

void dsmoe_trainer_reset_load(dsmoe_trainer *trainer)
{
    memset(trainer->expert_load, 0,
           (size_t)(trainer->n_moe_layers * trainer->config.n_routed_experts) *
               sizeof *trainer->expert_load);
}

double dsmoe_trainer_imbalance(const dsmoe_trainer *trainer)
{
    int64_t n = trainer->config.n_routed_experts;
    double worst = 0.0;
    for (int64_t i = 0; i < trainer->n_moe_layers; i++) {
        double most = 0.0, sum = 0.0;
        for (int64_t e = 0; e < n; e++) {
            double load = (double)trainer->expert_load[i * n + e];
            sum += load;
            if (load > most) most = load;
        }
        if (sum > 0.0 && most * (double)n / sum > worst) worst = most * (double)n / sum;
    }
    return worst;
}

double trainer_start_lap(dsmoe_trainer *t)
{
    t->times.sending += timed_peers_take(&t->timed);
    return clock_seconds();
}

dsmoe_trainer_times dsmoe_trainer_take_times(dsmoe_trainer *trainer)
{
    dsmoe_trainer_times times = trainer->times;
    trainer->times = (dsmoe_trainer_times){0};
    return times;
}
