/* fuzz_adapter_config.c - any bytes as adapter_config.json: refused, or every module that is a target has
 * a rank. */
#include "adapt/peft.h"
#include "fuzz.h"

static const char *const modules[] = {"model.layers.0.self_attn.q_proj",
                                      "model.layers.27.mlp.experts.63.down_proj", "lm_head"};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    peft_config *config;
    dsmoe_error error = {0};
    dsmoe_status status = peft_config_parse((const char *)bytes, size, "fuzz", &config, &error);
    require((status == DSMOE_OK) == (config != NULL));
    if (status != DSMOE_OK) require_error(status, &error);
    for (int i = 0; config && i < 3; i++) {
        int64_t rank = 0;
        float scale;
        error = (dsmoe_error){0};
        status = peft_config_of(config, modules[i], &rank, &scale, &error);
        if (status != DSMOE_OK)
            require_error(status, &error);
        else
            require(rank >= 1 && rank <= 65536);
    }
    peft_config_free(config);
    return 0;
}
