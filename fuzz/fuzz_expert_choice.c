/* fuzz_expert_choice.c - any bytes as expert_cfg.json: refused, or a choice among the experts that the
 * model has. */
#include "fuzz.h"
#include "train/expert_choice.h"

enum { N_LAYERS = 4, N_EXPERTS = 9 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const dsmoe_config config = {.num_hidden_layers = N_LAYERS,
                                        .n_routed_experts = N_EXPERTS,
                                        .first_k_dense_replace = 1,
                                        .moe_layer_freq = 1};
    unsigned char *chosen = malloc(N_LAYERS * N_EXPERTS); /* exact, for the sanitizer */
    dsmoe_error error = {0};
    require(chosen != NULL);
    dsmoe_status status =
        expert_choice_parse((const char *)bytes, size, "fuzz", &config, chosen, &error);
    if (status != DSMOE_OK) require_error(status, &error);
    for (int i = 0; status == DSMOE_OK && i < N_LAYERS * N_EXPERTS; i++)
        require(chosen[i] == 0 || (chosen[i] == 1 && i >= N_EXPERTS)); /* layer 0 has no experts */
    free(chosen);
    return 0;
}
