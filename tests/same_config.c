/* same_config.c - compares two configurations member by member. */
#include "same_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* Padding may differ, after flags and after enums. */
void assert_same_config(const dsmoe_config *a, const dsmoe_config *b)
{
    assert_memory_equal(a, b, offsetof(dsmoe_config, tie_word_embeddings) + sizeof(bool));
    assert_memory_equal(&a->aux_loss_alpha, &b->aux_loss_alpha,
                        offsetof(dsmoe_config, rope_scaling) -
                            offsetof(dsmoe_config, aux_loss_alpha));
    assert_int_equal(a->rope_scaling, b->rope_scaling);
    assert_true(a->rope_scaling_factor == b->rope_scaling_factor);
    assert_int_equal(a->bos_token_id, b->bos_token_id);
    assert_int_equal(a->eos_token_id, b->eos_token_id);
    assert_int_equal(a->model_type, b->model_type);
    assert_memory_equal(&a->q_lora_rank, &b->q_lora_rank,
                        offsetof(dsmoe_config, scoring_func) - offsetof(dsmoe_config, q_lora_rank));
    assert_int_equal(a->scoring_func, b->scoring_func);
    assert_int_equal(a->topk_method, b->topk_method);
    assert_memory_equal(&a->n_group, &b->n_group, sizeof *a - offsetof(dsmoe_config, n_group));
}
