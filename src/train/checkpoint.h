/* checkpoint.h - a trainer on disk: an ordinary model folder, with what resuming needs beside it.
 *
 *   RUN/checkpoints/step-00000200/
 *     config.json, generation_config.json, model.safetensors (or files of at most 5 GB and their
 *     index), tokenizer.json, tokenizer_config.json
 *     training.safetensors   both moments, flat; the weights too, if those of the model are narrower
 *                            than float32; the state below and hashes as metadata
 *     evaluation.json        its held-out loss, once it is measured
 *   RUN/latest, RUN/best     links to one of them each
 *
 * Where a part of a model is trained, it holds that part. Low-rank additions: adapter_config.json and
 * adapter_model.safetensors as PEFT has them, and no model, the exact numbers being in training.safetensors.
 * Experts: a model folder that has their matrices alone, and expert_cfg.json.
 *
 * A checkpoint is written under a temporary name, synced, and renamed: a folder with its final name is
 * whole, whatever happened. What an interrupted writer left is removed by checkpoint_prune. */
#ifndef DSMOE_TRAIN_CHECKPOINT_H
#define DSMOE_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

enum { CHECKPOINT_PATH = DSMOE_PATH + 64 }; /* bytes; the path of a run is below DSMOE_PATH */

enum { CHECKPOINT_KERNELS = 16 };

/* What a run knows beside weights and moments. Doubles come back bit for bit. */
typedef struct checkpoint_state {
    int64_t step;      /* steps of the run, skipped ones included */
    int64_t n_updates; /* AdamW's t; the trainer's when it is written */
    int64_t n_skipped;
    int64_t sequences;  /* of the data that were used */
    uint64_t data_hash; /* dsmoe_dataset_info.hash */
    double loss;        /* of the last step; NaN: it was skipped */
    double best_loss;   /* of all checkpoints before this one; NaN: none was measured */
    int64_t best_step;  /* -1: none */
    /* For patience: the lowest loss of the evaluations so far (NaN: none), those since that were not
     * below it, and the step of the last one (-1: none). */
    double lowest_loss;
    int64_t n_worse, evaluated_step;
    int64_t is_due;     /* 1: the settings ask for it, so it is measured and may become the best;
                           0: it is there because the run was stopped */
    double logged_loss; /* the mean that was logged last */
    /* Steps since the last line of the log that were not skipped, and their means. */
    int64_t interval_n;
    double interval_loss, interval_aux_loss, interval_device_loss;
    double interval_accuracy, interval_margin; /* of preferences */
    char kernels[CHECKPOINT_KERNELS];          /* that computed it: others give other bits */
    uint64_t
        base_hash; /* of the frozen model, where a part of one is trained (base_hash.h); otherwise 0 */
} checkpoint_state;

typedef struct checkpoint_options {
    const char *tokenizer; /* a folder with a tokenizer.json to copy; NULL: none */
    dsmoe_dtype dtype;     /* of the model's weights: a float type */
    size_t shard_size;     /* most bytes of tensors in a file of the model; 0: 5 GB */
    const dsmoe_layer_losses *interval_layers; /* [n_interval_layers] means as in the state */
    int64_t n_interval_layers;
    const char *base; /* the path of the frozen model; NULL: all of the model is trained */
} checkpoint_options;

/* Writes RUN/checkpoints/step-…, in place of one that is there, and puts its path into `path`. On
 * failure the older checkpoints are as they were. Then `latest` is set, where that can be done. */
dsmoe_status checkpoint_write(const char *run, dsmoe_trainer *trainer,
                              const checkpoint_options *options, const checkpoint_state *state,
                              char path[CHECKPOINT_PATH], dsmoe_error *error);
/* Bytes that one takes on the disk, without the small files. */
double checkpoint_size(int64_t n_parameters, dsmoe_dtype dtype);

/* Writes down the held-out loss of a checkpoint; NaN: the model overflows. */
dsmoe_status checkpoint_put_evaluation(const char *path, double held_out_loss, dsmoe_error *error);
/* False if it has not been measured. */
bool checkpoint_get_evaluation(const char *path, double *held_out_loss);

/* Points `best` to the checkpoint of a step (best_step < 0: there is none) and removes all checkpoints
 * but the last `keep`, at least one, and the best, and what interrupted writers left. A checkpoint with a
 * file in it that is not a checkpoint's stays as it is. */
dsmoe_status checkpoint_prune(const char *run, int64_t keep, int64_t best_step, dsmoe_error *error);

/* The newest checkpoint of a step below `below`: its step into `step`, -1 if there is none, and its path
 * into `path`. That the checkpoints cannot be listed is an error: it does not mean that there are none. */
dsmoe_status checkpoint_newest(const char *run, int64_t below, int64_t *step,
                               char path[CHECKPOINT_PATH], dsmoe_error *error);

/* Reads every byte and compares the hashes: the state if all is well, otherwise a message that names the
 * file at fault. DSMOE_ERROR_FORMAT means that the checkpoint is damaged; any other failure (no
 * permission, no memory) says nothing about it. */
dsmoe_status checkpoint_check(const char *path, checkpoint_state *state, dsmoe_error *error);

/* The same, and fills a trainer of the checkpoint's configuration (that of its config.json) with
 * weights, moments and n_updates. After a failure the trainer's numbers are any. */
dsmoe_status checkpoint_read(const char *path, dsmoe_trainer *trainer, checkpoint_state *state,
                             dsmoe_error *error);

/* The means of an interval by layers, from a checkpoint that is whole; zeros if it has not so many. */
void checkpoint_read_interval(const char *path, dsmoe_layer_losses *layers, int64_t n_layers);

/* Renames a damaged checkpoint to damaged-step-…, so that it is not taken for the newest. */
dsmoe_status checkpoint_set_aside(const char *run, int64_t step, dsmoe_error *error);

/* Where `latest` or `best` leads to a checkpoint that is no longer there, it leads to that of the given
 * step instead; a `best` whose checkpoint (best_step < 0: it has none) is gone as well is removed. */
void checkpoint_mend_links(const char *run, int64_t newest_step, int64_t best_step);

#endif
