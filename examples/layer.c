/* layer.c - the smallest program that runs a DeepSeekMoE layer. */
#include <dsmoe.h>
#include <stdio.h>

int main(void)
{
    dsmoe_layer_config config = dsmoe_layer_config_default();
    config.hidden_size = 64;
    config.moe_intermediate_size = 32;
    config.n_routed_experts = 16;
    config.n_shared_experts = 2;
    config.num_experts_per_tok = 4;

    dsmoe_error error;
    dsmoe_layer_weights *weights = NULL;
    dsmoe_layer *layer = NULL;
    if (dsmoe_layer_weights_create(&config, &weights, &error) ||
        dsmoe_layer_weights_init(&config, weights, 0.02f, 1, 2, &error) ||
        dsmoe_layer_create(&config, weights, &layer, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    float x[3 * 64] = {[0] = 1, [64] = 2, [128] = 3}, y[3 * 64];
    size_t size = dsmoe_layer_workspace_size(layer, 3, 2);
    dsmoe_workspace workspace = {dsmoe_memory_alloc(size), size, 2};
    int failed = dsmoe_layer_forward(layer, x, 3, y, &workspace, &error);
    if (failed)
        fprintf(stderr, "%s\n", error.message);
    else
        printf("y[0] = %g\n", (double)y[0]);
    dsmoe_memory_free(workspace.memory);
    dsmoe_layer_free(layer);
    dsmoe_layer_weights_free(weights);
    return failed != 0;
}
