/* dsmoe.h - the one header to include of libdsmoe: DeepSeekMoE in C.
 *
 * Conventions
 *   Names are those of the paper and of a checkpoint's config.json.
 *   Matrices are row-major float32; a weight is [out, in], as in a checkpoint.
 *   A fallible function returns a dsmoe_status and, if `error` is not NULL, fills it with one line
 *   that says what is wrong. The library never prints, exits or aborts.
 *   Results are bit-identical for any number of threads.
 * Each part below compiles alone; they come in the order to read them. */
#ifndef DSMOE_H
#define DSMOE_H

#include "dsmoe/base.h"    /* version, status and error, progress */
#include "dsmoe/machine.h" /* its kernels, threads, memory and speed */

/* The heart. */
#include "dsmoe/layer.h" /* the MoE layer: gate, experts, balance losses; forward and backward */

/* A model and its text. */
#include "dsmoe/config.h"  /* config.json, presets, other sizes */
#include "dsmoe/plan.h"    /* what architectures and models cost */
#include "dsmoe/model.h"   /* opening one, what it holds, making a new one */
#include "dsmoe/text.h"    /* the tokenizer, forms of conversations */
#include "dsmoe/adapter.h" /* LoRA adapters */
#include "dsmoe/engine.h"  /* many sequences at once over one model */
#include "dsmoe/sampler.h" /* the next token from logits */
#include "dsmoe/output.h"  /* what may be overwritten */
#include "dsmoe/convert.h" /* GGUF, quantised types, importances, merging, comparing */
#include "dsmoe/tasks.h"   /* questions with known answers */

/* Training. */
#include "dsmoe/peers.h"  /* several machines: ranks, a model divided over them */
#include "dsmoe/data.h"   /* files, a tokenizer for them, sequences of tokens */
#include "dsmoe/train.h"  /* schedule, what is trained, a trainer that makes steps */
#include "dsmoe/run.h"    /* a whole run, from settings to checkpoints */
#include "dsmoe/scale.h"  /* what a step takes on so many ranks */
#include "dsmoe/report.h" /* pages to look at */

#include "dsmoe/verify.h" /* this build against reference tensors */

#endif
