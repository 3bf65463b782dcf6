/* dsmoe/train.h - training: the schedule, which part of a model is trained, and the trainer. */
#ifndef DSMOE_TRAIN_H
#define DSMOE_TRAIN_H

#include "model.h"
#include "peers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dsmoe_schedule_kind {
    DSMOE_SCHEDULE_STEP = 0,   /* the paper's: times 0.316 at 80 % and again at 90 % of the steps */
    DSMOE_SCHEDULE_COSINE = 1, /* down to a tenth of lr */
    DSMOE_SCHEDULE_CONSTANT = 2,
} dsmoe_schedule_kind;
typedef struct dsmoe_schedule {
    dsmoe_schedule_kind kind;
    double lr;        /* the highest rate */
    int64_t n_warmup; /* steps of linear rise to lr */
    int64_t n_steps;
} dsmoe_schedule;
/* The learning rate of a step, counted from 0. */
DSMOE_API double dsmoe_schedule_lr(const dsmoe_schedule *schedule, int64_t step);

/* What ranks divide among themselves, besides the batches of a step and the optimizer's work. */
typedef enum dsmoe_parallel {
    DSMOE_PARALLEL_DATA = 0,    /* nothing: each rank has all weights */
    DSMOE_PARALLEL_EXPERTS = 1, /* the routed experts of every layer, in ranges */
} dsmoe_parallel;

/* The part of a model that is trained. */
typedef enum dsmoe_train_what {
    DSMOE_TRAIN_ALL = 0,
    DSMOE_TRAIN_EXPERTS = 1, /* some routed experts (ESFT, arXiv 2407.01906) */
    DSMOE_TRAIN_LORA = 2,    /* low-rank additions: y = W·x + scale·B·(A·x) */
} dsmoe_train_what;

/* Trains part of a model. The rest stays as it is, in its own type, mapped and shared. */
typedef struct dsmoe_tuning {
    const dsmoe_model *base; /* must outlive the trainer */
    dsmoe_train_what train;
    const unsigned char *experts; /* [num_hidden_layers, n_routed_experts] 1: trained */
    /* For low-rank additions: */
    int64_t rank;
    double alpha; /* scale = alpha / rank */
    bool rslora;  /* scale = alpha / √rank instead */
    /* Words separated by commas: attention, shared, dense, routed, or names of modules as in PEFT's
     * target_modules. */
    const char *targets;
} dsmoe_tuning;

/* ESFT: which routed experts a text uses. An expert's score in a layer is a mean over all tokens: GATE, of
 * its gate value (0 if the token did not choose it); TOKEN, of 1 / num_experts_per_tok if the token chose it,
 * otherwise 0. Tables are [num_hidden_layers, n_routed_experts]. */
typedef enum dsmoe_expert_score {
    DSMOE_EXPERT_SCORE_GATE = 0,
    DSMOE_EXPERT_SCORE_TOKEN = 1,
} dsmoe_expert_score;
/* Finds a score by name, "gate" or "token"; false for any other name. */
DSMOE_API bool dsmoe_expert_score_find(const char *name, dsmoe_expert_score *score);
/* The paper's share: 0.1 for gate scores, 0.2 for token scores. */
DSMOE_API double dsmoe_expert_share_default(dsmoe_expert_score score);
/* Chooses the best experts of each layer until their scores add up to `share`: 1 in `chosen`, otherwise 0. */
DSMOE_API void dsmoe_experts_choose(const dsmoe_config *config, const double *scores, double share,
                                    unsigned char *chosen);
/* Read and write ESFT's expert_cfg.json. */
DSMOE_API dsmoe_status dsmoe_experts_read(const char *path, const dsmoe_config *config,
                                          unsigned char *chosen, dsmoe_error *error);
DSMOE_API dsmoe_status dsmoe_experts_write(const char *path, const dsmoe_config *config,
                                           const unsigned char *chosen, dsmoe_error *error);

/* A model being trained: float32 weights, gradients, AdamW's moments, activations of one batch. It has
 * weights, gradients and moments only for what is trained.
 *
 * Ranks that train together have one trainer each, and make the same calls in the same order. What they
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
    /* For "noaux_tc": how far an update moves the bias of each expert whose load differed from the mean. */
    double bias_speed;
    bool recompute; /* keep only each layer's input, and run the layer again in backward */
    const dsmoe_tuning *tuning; /* NULL: all of the model is trained; must outlive the trainer */
    /* With tuning: bytes that training may take, the base included; 0: what is available. As many layers as
     * fit keep what backward needs; the first ones are run again. */
    size_t most_memory;
    int n_threads;            /* 0: all processors */
    const dsmoe_peers *peers; /* NULL: alone */
    dsmoe_parallel parallel;
} dsmoe_trainer_options;
/* A batch of 8 x 256; from the paper beta1 0.9, beta2 0.95, eps 1e-8, weight_decay 0.1 and clip_norm 1.0;
 * from DeepSeek-V3 bias_speed 0.001. */
DSMOE_API dsmoe_trainer_options dsmoe_trainer_options_default(void);

/* Bytes, known before anything is allocated; all 0 if they do not fit. */
typedef struct dsmoe_trainer_memory {
    size_t weights, gradients, moments, activations, workspace;
    size_t base; /* with tuning: the frozen tensors, mapped */
} dsmoe_trainer_memory;
DSMOE_API dsmoe_trainer_memory dsmoe_trainer_memory_size(const dsmoe_config *config,
                                                         const dsmoe_trainer_options *options);

/* Weights are zero until dsmoe_trainer_init or dsmoe_trainer_load. */
DSMOE_API dsmoe_status dsmoe_trainer_create(const dsmoe_config *config,
                                            const dsmoe_trainer_options *options,
                                            dsmoe_trainer **trainer, dsmoe_error *error);
DSMOE_API void dsmoe_trainer_free(dsmoe_trainer *trainer);
/* Sets the weights that dsmoe_model_init writes for this seed. */
DSMOE_API void dsmoe_trainer_init(dsmoe_trainer *trainer, uint64_t seed);
/* Takes the weights of a model of the same configuration. */
DSMOE_API dsmoe_status dsmoe_trainer_load(dsmoe_trainer *trainer, const dsmoe_model *model,
                                          dsmoe_error *error);
/* The model in its present state, for engines; valid until the trainer is freed, changed by every update. */
DSMOE_API const dsmoe_model *dsmoe_trainer_model(const dsmoe_trainer *trainer);

typedef struct dsmoe_batch_losses {
    /* The mean -log probability of the targets, or the loss of preferences: see dsmoe_batch. */
    double loss;
    /* For preferences, means over the pairs. accuracy: 1 if what was chosen has gained on what was rejected,
     * otherwise 0. margin: beta times that gain, in nats. */
    double accuracy, margin;
    double aux_loss, device_loss;     /* balance losses, the sum over all layers */
    const dsmoe_layer_losses *layers; /* [n_moe_layers]; valid until the next batch */
} dsmoe_batch_losses;
/* Each array is [n_sequences, sequence_length].
 *
 * A sequence may hold several conversations, one after the other. A token sees only those of its own
 * conversation, from position 0 on. The balance losses are then taken over each conversation and weighted by
 * its number of tokens, so that they do not depend on which conversations share a sequence. (Without seq_aux,
 * and for device groups, they are taken over all tokens of the batch.) Padding counts in no loss and in no
 * expert's load.
 *
 * The objective of a step of several batches is the mean over all targets of the step. An update takes the
 * mean of the batches, so each batch must be divided by the mean numbers of targets and tokens per batch.
 *
 * With `beta` the model learns from preferences (DPO, arXiv 2305.18290), with low-rank additions only. The
 * conversations of each sequence are pairs: first what was chosen, then what was rejected. The loss is the
 * mean over the pairs of -log σ(beta·((log p(chosen) - log p(rejected)) - (log q(chosen) - log
 * q(rejected)))), where log p is the sum over the targets, and q is the base without the additions. */
typedef struct dsmoe_batch {
    const int32_t *tokens;
    const int32_t *targets; /* what should come next; -1: does not count */
    /* The position of each token in its conversation: 0, 1, 2 … up to the next 0; -1: padding, with any token
     * and no target. NULL: each sequence is one conversation. */
    const int32_t *positions;
    /* The means of all batches of the step, without padding; 0: those of this batch. With beta n_targets
     * counts pairs. */
    double n_targets, n_tokens;
    double beta; /* not 0: preferences */
} dsmoe_batch;
/* Forward and backward of one batch. The first batch after an update writes the gradients of loss + balance
 * losses; the next ones add theirs, each computed from zero. `losses` may be NULL. DSMOE_ERROR_NONFINITE if
 * the loss is not a finite number; the next update is then skipped. Ranks that train together pass one batch
 * each, or none (NULL, or no tokens). Gradients are added in the order of the ranks, and the losses are those
 * of this rank's batch. */
DSMOE_API dsmoe_status dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                              dsmoe_batch_losses *losses, dsmoe_error *error);

typedef struct dsmoe_update {
    double grad_norm; /* of the mean gradient of the batches since the last update, unclipped */
    bool skipped;     /* something was not finite; weights and moments are unchanged */
} dsmoe_update;
/* Clips and takes one step of AdamW with the mean gradient of the batches since the last update. Unless the
 * step is skipped, gates with "noaux_tc" then follow the load of those batches, over all ranks: the bias of
 * an expert goes up by bias_speed if fewer tokens than the mean chose it, and down if more did. */
DSMOE_API dsmoe_status dsmoe_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                            dsmoe_error *error);

/* Tokens that chose each expert since dsmoe_trainer_reset_load, over all ranks: [n_moe_layers,
 * n_routed_experts]. */
DSMOE_API const int64_t *dsmoe_trainer_expert_load(const dsmoe_trainer *trainer);
DSMOE_API void dsmoe_trainer_reset_load(dsmoe_trainer *trainer);
/* The largest load of an expert over the mean of its layer, for the worst layer. */
DSMOE_API double dsmoe_trainer_imbalance(const dsmoe_trainer *trainer);

/* The tensors that are trained. If all of a model is trained, those are
 * dsmoe_model_tensor(dsmoe_trainer_model(…), index). Low-rank additions have the names that PEFT gives
 * them. */
DSMOE_API size_t dsmoe_trainer_parameter_count(const dsmoe_trainer *trainer);
DSMOE_API dsmoe_tensor_info dsmoe_trainer_parameter(const dsmoe_trainer *trainer, size_t index);
/* Weights and gradients of a tensor; NULL if another rank has them. */
DSMOE_API const float *dsmoe_trainer_weight(const dsmoe_trainer *trainer, size_t index);
DSMOE_API const float *dsmoe_trainer_gradient(const dsmoe_trainer *trainer, size_t index);

/* Where the time went since the last call, in seconds; the last two with several ranks only. */
typedef struct dsmoe_trainer_times {
    double attention, experts, router, head, optimizer, rest;
    /* Gradients, weights and rows of experts to and from other ranks, their sums included. */
    double sending;
    double waiting; /* for other ranks to catch up with this one */
} dsmoe_trainer_times;
DSMOE_API dsmoe_trainer_times dsmoe_trainer_take_times(dsmoe_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
