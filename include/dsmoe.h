/* dsmoe.h - the header to include for libdsmoe: DeepSeekMoE in C.
 *
 * Conventions
 *   Names are those of the paper and of a checkpoint's config.json.
 *   Matrices are row-major float32; a weight is [out, in], as in a checkpoint.
 *   A function that can fail returns a dsmoe_status. On failure, if `error` is not NULL, it also writes one
 *   line there that says what is wrong. The library never prints, exits or aborts.
 *   Results are bit-identical for any number of threads.
 * Each header below compiles on its own. They are listed in the order to read them. */
#ifndef DSMOE_H
#define DSMOE_H

#include "dsmoe/base.h"    /* version, status and error, progress */
#include "dsmoe/machine.h" /* the machine: kernels, threads, memory, speed */

/* The MoE layer. */
#include "dsmoe/layer.h" /* gate, experts, balance losses; forward and backward */

/* Models and text. */
#include "dsmoe/config.h"  /* config.json, presets, other sizes */
#include "dsmoe/plan.h"    /* what architectures and models cost */
#include "dsmoe/model.h"   /* open a model, see what it holds, make a new one */
#include "dsmoe/text.h"    /* the tokenizer, chat forms */
#include "dsmoe/adapter.h" /* LoRA adapters */
#include "dsmoe/engine.h"  /* many sequences at once through one model */
#include "dsmoe/sampler.h" /* the next token from logits */
#include "dsmoe/output.h"  /* which files may be overwritten */
#include "dsmoe/convert.h" /* GGUF, quantised types, importances, merging, comparing */
#include "dsmoe/tasks.h"   /* questions with known answers */

/* Training. */
#include "dsmoe/peers.h"  /* several machines: ranks, a model divided among them */
#include "dsmoe/data.h"   /* files, training a tokenizer, sequences of tokens */
#include "dsmoe/train.h"  /* schedule, what is trained, the trainer */
#include "dsmoe/run.h"    /* a whole run, from settings to checkpoints */
#include "dsmoe/scale.h"  /* predicts a training step on several ranks */
#include "dsmoe/report.h" /* HTML pages of runs and comparisons */

#include "dsmoe/verify.h" /* checks this build against reference tensors */

#endif
