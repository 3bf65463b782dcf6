/* gate_bias.c - the bias of gates, for people and programs. */
#include "cli/gate_bias.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "study/gate_bias.h"

void gate_bias_print(const dsmoe_model *model)
{
    const char *head = "bias of gates layer    lowest      mean   highest\n";
    for (int64_t i = 0; i < dsmoe_model_config(model)->num_hidden_layers; i++) {
        gate_bias bias = gate_bias_of(model, i);
        if (!bias.values) continue;
        fputs(head, stdout);
        head = "";
        printf("              %5" PRId64 " %9.4f %9.4f %9.4f\n", i, bias.low, bias.mean, bias.high);
    }
}

void gate_bias_print_json(const dsmoe_model *model)
{
    const char *before = ",\n \"gate_bias\": [";
    bool is_there = false;
    for (int64_t i = 0; i < dsmoe_model_config(model)->num_hidden_layers; i++) {
        gate_bias bias = gate_bias_of(model, i);
        if (!bias.values) continue;
        printf("%s{\"layer\": %" PRId64 ", \"low\": %.6g, \"mean\": %.6g, \"high\": %.6g}", before,
               i, bias.low, bias.mean, bias.high);
        before = ", ";
        is_there = true;
    }
    if (is_there) putchar(']');
}
