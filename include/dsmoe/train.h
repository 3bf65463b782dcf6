/* dsmoe/train.h - training: schedule, what of a model is trained, and a trainer that makes steps. */
#ifndef DSMOE_TRAIN_H
#define DSMOE_TRAIN_H

#include "model.h"
#include "peers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dsmoe_schedule_kind {
    DSMOE_SCHEDULE_STEP = 0,   /* the paper's: times 0.316 at 80 % and again at 90 % of the steps */
    DSMOE_SCHEDULE_COSINE = 1, /* down to a tenth */
    DSMOE_SCHEDULE_CONSTANT = 2,
} dsmoe_schedule_kind;
typedef struct dsmoe_schedule {
    dsmoe_schedule_kind kind;
    double lr;        /* the highest */
    int64_t n_warmup; /* steps that climb to it in a line */
    int64_t n_steps;
} dsmoe_schedule;
/* The learning rate of a step, counted from 0. */
DSMOE_API double dsmoe_schedule_lr(const dsmoe_schedule *schedule, int64_t step);

/* What ranks divide among them, beside the batches of a step and the optimizer's work. */
typedef enum dsmoe_parallel {
    DSMOE_PARALLEL_DATA = 0,    /* nothing: each has all weights */
    DSMOE_PARALLEL_EXPERTS = 1, /* the routed experts of every layer, in ranges */
} dsmoe_parallel;

/* What of a model is trained. */
typedef enum dsmoe_train_what {
    DSMOE_TRAIN_ALL = 0,
    DSMOE_TRAIN_EXPERTS = 1, /* some routed experts (ESFT, arXiv 2407.01906) */
    DSMOE_TRAIN_LORA = 2,    /* low-rank additions: y = W·x + scale·B·(A·x) */
} dsmoe_train_what;

/* Training a part of a model. The rest stays as it is, in the type that it has, mapped and shared. */
typedef struct dsmoe_tuning {
    const dsmoe_model *base; /* it must outlive the trainer */
    dsmoe_train_what train;
    const unsigned char *experts; /* [num_hidden_layers, n_routed_experts] 1: is trained */
    /* Of low-rank additions: */
    int64_t rank;
    double alpha; /* scale = alpha / rank, */
    bool rslora;  /* or with this alpha / √rank */
    /* Words between commas: attention, shared, dense, routed, or names of modules as in PEFT's target_modules. */
    const char *targets;
} dsmoe_tuning;

/* ESFT: which routed experts a text uses. An expert's score in a layer is the mean over tokens of its gate value, 0
 * where it is not chosen, or of chosen / num_experts_per_tok. Tables are [num_hidden_layers, n_routed_experts]. */
typedef enum dsmoe_expert_score {
    DSMOE_EXPERT_SCORE_GATE = 0,
    DSMOE_EXPERT_SCORE_TOKEN = 1,
} dsmoe_expert_score;
/* By its name, "gate" or "token"; false if there is none. */
DSMOE_API bool dsmoe_expert_score_find(const char *name, dsmoe_expert_score *score);
/* The paper's share: 0.1 of gate scores, 0.2 of token scores. */
DSMOE_API double dsmoe_expert_share_default(dsmoe_expert_score score);
/* The best of each layer, until their scores sum up to `share`: 1 in chosen, otherwise 0. */
DSMOE_API void dsmoe_experts_choose(const dsmoe_config *config, const double *scores, double share,
                                    unsigned char *chosen);
/* ESFT's expert_cfg.json. */
DSMOE_API dsmoe_status dsmoe_experts_read(const char *path, const dsmoe_config *config,
                                          unsigned char *chosen, dsmoe_error *error);
DSMOE_API dsmoe_status dsmoe_experts_write(const char *path, const dsmoe_config *config,
                                           const unsigned char *chosen, dsmoe_error *error);

/* A model being trained: float32 weights, gradients, AdamW's moments, activations of one batch. Weights, gradients and
 * moments are those of what is trained alone.
 *
 * Ranks that train together have a trainer each, and make the same calls in the same order. What they
 * compute has the same bits as one rank's work on all batches. */
typedef struct dsmoe_trainer dsmoe_trainer;
typedef struct dsmoe_trainer_options {
    int64_t n_sequences; /* of a batch that goes through the model at once */
    int64_t sequence_length;
    double beta1, beta2, eps;
    double weight_decay;     /* of matrices; norms and biases have none */
    double clip_norm;        /* the gradient is scaled down to this norm; 0: never */
    int64_t n_device_groups; /* for the device-level balance loss; 0: none */
    double device_loss_alpha;
    /* Of "noaux_tc": how far an update moves the bias of each expert whose load was not the mean. */
    double bias_speed;
    bool recompute;             /* keep only each layer's input, and run it once more in backward */
    const dsmoe_tuning *tuning; /* NULL: all of the model is trained; it must outlive the trainer */
    /* With tuning: bytes that all of it may take, the base included, 0: what is available. As many layers as fit
     * keep what backward needs; the first ones are run once more. */
    size_t most_memory;
    int n_threads;            /* 0: all processors */
    const dsmoe_peers *peers; /* NULL: alone */
    dsmoe_parallel parallel;
} dsmoe_trainer_options;
/* A batch of 8 x 256; the paper's 0.9, 0.95, 1e-8, 0.1, 1.0; the 0.001 of DeepSeek-V3. */
DSMOE_API dsmoe_trainer_options dsmoe_trainer_options_default(void);

/* Bytes, known before anything is allocated; all 0 if they cannot fit. */
typedef struct dsmoe_trainer_memory {
    size_t weights, gradients, moments, activations, workspace;
    size_t base; /* of tuning: the frozen tensors, mapped */
} dsmoe_trainer_memory;
DSMOE_API dsmoe_trainer_memory dsmoe_trainer_memory_size(const dsmoe_config *config,
                                                         const dsmoe_trainer_options *options);

/* Weights are zero until one of the two after it. */
DSMOE_API dsmoe_status dsmoe_trainer_create(const dsmoe_config *config,
                                            const dsmoe_trainer_options *options,
                                            dsmoe_trainer **trainer, dsmoe_error *error);
DSMOE_API void dsmoe_trainer_free(dsmoe_trainer *trainer);
/* The numbers that dsmoe_model_init writes for this seed. */
DSMOE_API void dsmoe_trainer_init(dsmoe_trainer *trainer, uint64_t seed);
/* The weights of a model of the same configuration. */
DSMOE_API dsmoe_status dsmoe_trainer_load(dsmoe_trainer *trainer, const dsmoe_model *model,
                                          dsmoe_error *error);
/* The model as it is now, for engines: valid as long as the trainer, changed by every update. */
DSMOE_API const dsmoe_model *dsmoe_trainer_model(const dsmoe_trainer *trainer);

typedef struct dsmoe_batch_losses {
    /* The mean -log probability of the targets, or the loss of preferences: see dsmoe_batch. */
    double loss;
    /* Of preferences, means over the pairs: 1 where what was chosen has gained on what was rejected, otherwise 0; and
     * beta times by how much, in nats. */
    double accuracy, margin;
    double aux_loss, device_loss;     /* balance losses, the sum over all layers */
    const dsmoe_layer_losses *layers; /* [n_moe_layers]; valid until the next batch */
} dsmoe_batch_losses;
/* Each array is [n_sequences, sequence_length].
 *
 * A sequence may hold several conversations, one after the other: a token sees those of its own conversation alone,
 * from its position 0 on. The balance losses are then taken over each conversation (without seq_aux, and among device
 * groups, over all tokens of the batch) and count by its number of tokens, so that they do not depend on which
 * conversations share a sequence. Padding reaches no loss and no expert's load.
 *
 * The objective of a step of several batches is the sum over its targets over their number: its update takes the mean
 * of the batches, so each of them is to be divided by the mean numbers of targets and tokens of a batch.
 *
 * With `beta` it learns from preferences (DPO, arXiv 2305.18290), by low-rank additions only: the conversations of
 * each sequence are pairs, what was chosen and then what was rejected, and the loss is the mean over the pairs of -log
 * σ(beta·((log p(chosen) - log p(rejected)) - (log q(chosen) - log q(rejected)))), with log p the sum over the targets
 * and q the base without the additions. */
typedef struct dsmoe_batch {
    const int32_t *tokens;
    const int32_t *targets; /* what should come next; -1: does not count */
    /* Of each token in its conversation: 0, 1, 2 … up to the next 0; -1: padding, with any token and no target.
     * NULL: each sequence is one conversation. */
    const int32_t *positions;
    /* Of a batch of the step, the mean, padding apart; 0: those of this one. With beta n_targets are pairs. */
    double n_targets, n_tokens;
    double beta; /* not 0: preferences */
} dsmoe_batch;
/* Forward and backward of one batch. The first one after an update writes the gradients of loss + balance losses,
 * the next ones add theirs, each computed from zero. `losses` may be NULL. DSMOE_ERROR_NONFINITE if the
 * loss is not a finite number: the next update then skips.
 * Ranks that train together bring a batch each, or none (NULL, or no tokens), which are added in their order; the
 * losses are those of this rank's batch. */
DSMOE_API dsmoe_status dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                              dsmoe_batch_losses *losses, dsmoe_error *error);

typedef struct dsmoe_update {
    double grad_norm; /* of the mean gradient of the batches since the last update, unclipped */
    bool skipped;     /* something was not finite: weights and moments are as before */
} dsmoe_update;
/* Clips and takes one step of AdamW with the mean gradient of the batches since the last one. Unless it skips, gates
 * with "noaux_tc" then follow the load of those batches, of all ranks: the bias of an expert goes up by bias_speed
 * where fewer tokens than the mean chose it, and down where more did. */
DSMOE_API dsmoe_status dsmoe_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                            dsmoe_error *error);

/* Tokens that chose each expert since dsmoe_trainer_reset_load, of all ranks: [n_moe_layers,
 * n_routed_experts]. */
DSMOE_API const int64_t *dsmoe_trainer_expert_load(const dsmoe_trainer *trainer);
DSMOE_API void dsmoe_trainer_reset_load(dsmoe_trainer *trainer);
/* The worst layer's largest load over its mean. */
DSMOE_API double dsmoe_trainer_imbalance(const dsmoe_trainer *trainer);

/* What is trained. All of a model: the tensors of dsmoe_model_tensor(dsmoe_trainer_model(…), index). Low-rank additions
 * have the names that PEFT gives them. */
DSMOE_API size_t dsmoe_trainer_parameter_count(const dsmoe_trainer *trainer);
DSMOE_API dsmoe_tensor_info dsmoe_trainer_parameter(const dsmoe_trainer *trainer, size_t index);
/* Their numbers; NULL where another rank has them. */
DSMOE_API const float *dsmoe_trainer_weight(const dsmoe_trainer *trainer, size_t index);
DSMOE_API const float *dsmoe_trainer_gradient(const dsmoe_trainer *trainer, size_t index);

/* Where the time went since the last call, in seconds; the last two with several ranks only. */
typedef struct dsmoe_trainer_times {
    double attention, experts, router, head, optimizer, rest;
    /* Gradients, weights and rows of experts to and from other ranks, their sums included. */
    double sending;
    double waiting; /* for the other ranks to be as far as this one */
} dsmoe_trainer_times;
DSMOE_API dsmoe_trainer_times dsmoe_trainer_take_times(dsmoe_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
