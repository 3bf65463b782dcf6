/* latent_gguf.h - writes folders with latent attention as GGUF files of the architecture deepseek2, in the
 * old and the new layout, with faults where a test wants them. Keys, names and the places of numbers are
 * written down here a second time, independently of the library. */
#ifndef DSMOE_TESTS_LATENT_GGUF_H
#define DSMOE_TESTS_LATENT_GGUF_H

#include "made_keys.h"

typedef struct latent_gguf_options {
    bool old;             /* the old layout: attn_kv_b, attention described without absorbing */
    bool both;            /* the tensors of the other layout as well */
    const char *type;     /* of the tensors from kv_b_proj; NULL: as in the folder */
    const char *left_out; /* a tensor's name in the GGUF file */
    const char *longer;   /* a tensor whose slowest dimension is one more; its last part is zeros */
    const char *alone;    /* the only tensor to write */
    const made_key *keys; /* [n_keys] */
    int n_keys;
} latent_gguf_options;

/* `options` may be NULL. */
void latent_gguf_write(const char *folder, const char *to, const latent_gguf_options *options);

#endif
