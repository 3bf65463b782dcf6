/* mixture.h - the type of each matrix in a GGUF file, by the rules of llama.cpp's quantiser.
 *
 *   vectors and routers      F32
 *   output.weight            at least Q6_K; so does token_embd.weight if the head is tied to it
 *   q4_k_m                   Q6_K for attn_v and ffn_down in the first and last eighth of the layers and
 *                            in every third layer between, otherwise Q4_K
 *   rows that 256 does not divide    Q4_K becomes Q5_0, Q5_K Q5_1, Q6_K Q8_0
 *   rows that 32 does not divide     F16 */
#ifndef DSMOE_CONVERT_MIXTURE_H
#define DSMOE_CONVERT_MIXTURE_H

#include "convert/source.h"

typedef struct mixture {
    bool as_is;       /* matrices keep their types */
    dsmoe_dtype type; /* otherwise the type of most matrices */
    bool medium;      /* q4_k_m */
} mixture;

/* `name` is the name of a dsmoe_dtype, "q4_k_m", or NULL for as_is. */
dsmoe_status mixture_parse(const char *name, mixture *m, dsmoe_error *error);

/* The type that a tensor of the source gets in the file; `gguf_name` is its name there. */
dsmoe_dtype mixture_type(const mixture *m, const source *s, const source_tensor *t,
                         const char *gguf_name);

/* general.file_type; `most` is the type of most numbers in the file. */
uint32_t mixture_file_type(const mixture *m, dsmoe_dtype most);

#endif
