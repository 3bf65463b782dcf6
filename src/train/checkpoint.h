/* checkpoint.h - a trainer on disk: an ordinary model folder, and next to it what resuming needs.
 *
 *   RUN/checkpoints/step-00000200/
 *     config.json, generation_config.json, model.safetensors (or files of at most 5 GB and their
 *     index), tokenizer.json, tokenizer_config.json
 *     training.safetensors   both moments, flat; the weights too, if those of the model are narrower
 *                            than float32; the state below and hashes as metadata
 *     evaluation.json        its held-out loss, once it is measured
 *   RUN/latest, RUN/best     links to one checkpoint each
 *
 * If only a part of a model is trained, a checkpoint holds that part. Low-rank additions are stored as PEFT
 * does it, in adapter_config.json and adapter_model.safetensors; there is no model, and the exact numbers are
 * in training.safetensors. Experts are stored as a model folder that has only their matrices, and
 * expert_cfg.json.
 *
 * A checkpoint is written under a temporary name, synced, and renamed, so a folder with its final name is
 * always whole. checkpoint_prune removes what an interrupted write left. */
#ifndef DSMOE_TRAIN_CHECKPOINT_H
#define DSMOE_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

enum { CHECKPOINT_PATH = DSMOE_PATH + 64 }; /* bytes; a run's path is below DSMOE_PATH */

enum { CHECKPOINT_KERNELS = 16 };

/* The state of a run besides weights and moments. Doubles are restored bit for bit. */
typedef struct checkpoint_state {
    int64_t step;      /* steps of the run, skipped ones included */
    int64_t n_updates; /* AdamW's t; writing takes it from the trainer */
    int64_t n_skipped;
    int64_t sequences;  /* sequences of the data used so far */
    uint64_t data_hash; /* dsmoe_dataset_info.hash */
    double loss;        /* of the last step; NaN: it was skipped */
    double best_loss;   /* lowest of all earlier checkpoints; NaN: none was measured */
    int64_t best_step;  /* -1: none */
    /* For patience: the lowest loss of the evaluations so far (NaN: none), how many since then were not
     * below it, and the step of the last evaluation (-1: none). */
    double lowest_loss;
    int64_t n_worse, evaluated_step;
    /* 1: the settings ask for this checkpoint, so it is measured and may become the best; 0: it was written
     * because the run was stopped. */
    int64_t is_due;
    double logged_loss; /* the last logged mean */
    /* How many steps since the last line of the log were not skipped, and their means. */
    int64_t interval_n;
    double interval_loss, interval_aux_loss, interval_device_loss;
    double interval_accuracy, interval_margin; /* of preferences */
    char kernels[CHECKPOINT_KERNELS]; /* the kernel set in use: others give different bits */
    uint64_t base_hash;               /* hash of the frozen model (base_hash.h); 0: there is none */
} checkpoint_state;

typedef struct checkpoint_options {
    const char *tokenizer; /* a folder with a tokenizer.json to copy; NULL: none */
    dsmoe_dtype dtype;     /* of the model's weights; must be a float type */
    size_t shard_size;     /* most bytes of tensors in a file of the model; 0: 5 GB */
    const dsmoe_layer_losses *interval_layers; /* [n_interval_layers] means, as in the state */
    int64_t n_interval_layers;
    const char *base; /* the path of the frozen model; NULL: all of the model is trained */
} checkpoint_options;

/* Writes RUN/checkpoints/step-…, replacing an existing one, and puts its path into `path`. A failure
 * leaves the older checkpoints unchanged. Then `latest` is set, if links can be made. */
dsmoe_status checkpoint_write(const char *run, dsmoe_trainer *trainer,
                              const checkpoint_options *options, const checkpoint_state *state,
                              char path[CHECKPOINT_PATH], dsmoe_error *error);
/* Bytes that a checkpoint takes on the disk, without the small files. */
double checkpoint_size(int64_t n_parameters, dsmoe_dtype dtype);

/* Stores the held-out loss of a checkpoint; NaN: the model overflows. */
dsmoe_status checkpoint_put_evaluation(const char *path, double held_out_loss, dsmoe_error *error);
/* False if it has not been measured. */
bool checkpoint_get_evaluation(const char *path, double *held_out_loss);

/* Points `best` to the checkpoint of a step (best_step < 0: there is none). Removes all checkpoints except
 * the last `keep` (at least one) and the best, and the remains of interrupted writes. A checkpoint that
 * contains a foreign file is kept. */
dsmoe_status checkpoint_prune(const char *run, int64_t keep, int64_t best_step, dsmoe_error *error);

/* The newest checkpoint of a step below `below`: puts its step into `step`, -1 if there is none, and its
 * path into `path`. If the checkpoints cannot be listed, that is an error: it does not mean that there are
 * none. */
dsmoe_status checkpoint_newest(const char *run, int64_t below, int64_t *step,
                               char path[CHECKPOINT_PATH], dsmoe_error *error);

/* Reads every byte and compares the hashes. Gives the state if all is well, otherwise a message that names
 * the file at fault. DSMOE_ERROR_FORMAT means that the checkpoint is damaged; other failures (no
 * permission, no memory) say nothing about the checkpoint. */
dsmoe_status checkpoint_check(const char *path, checkpoint_state *state, dsmoe_error *error);

/* The same, and fills a trainer, which must have the configuration of the checkpoint's config.json, with
 * weights, moments and n_updates. After a failure the trainer's numbers are undefined. */
dsmoe_status checkpoint_read(const char *path, dsmoe_trainer *trainer, checkpoint_state *state,
                             dsmoe_error *error);

/* The interval's means by layer, from a checkpoint that is whole; zeros if it does not have n_layers of
 * them. */
void checkpoint_read_interval(const char *path, dsmoe_layer_losses *layers, int64_t n_layers);

/* Renames a damaged checkpoint to damaged-step-…, so that it is not found as the newest. */
dsmoe_status checkpoint_set_aside(const char *run, int64_t step, dsmoe_error *error);

/* If `latest` or `best` points to a checkpoint that no longer exists, points it to the checkpoint of the
 * given step. A `best` without such a checkpoint (best_step < 0: there is none) is removed. */
void checkpoint_mend_links(const char *run, int64_t newest_step, int64_t best_step);

#endif
