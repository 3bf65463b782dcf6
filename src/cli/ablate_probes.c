/* ablate_probes.c - losses of a trained model, as it is and under the paper's probes. */
#include <math.h>
#include <stdio.h>

#include "cli/ablate.h"
#include "cli/cli.h"

static bool is_missing(const ablate_entry *entry, int seed, int which)
{
    return loss_is_asked(entry->model, &entry->config, which) &&
           isnan(entry->runs[seed].losses[which]);
}

bool ablate_is_measured(const ablate_entry *entry, int seed)
{
    for (int which = 0; which < N_LOSSES; which++)
        if (is_missing(entry, seed, which)) return false;
    return true;
}

static bool show_progress(void *context, double done, double total)
{
    progress_update(context, done, total);
    return !cli_interrupted();
}

static int measure_loss(ablation *a, int entry, int seed, int which, const dsmoe_model *model)
{
    char name[LOSS_NAME], label[96];
    snprintf(label, sizeof label, "%s, seed %d, %s", architectures[entry].name, seed + 1,
             loss_name(which, name));
    progress bar = progress_start(label, "sequences");
    dsmoe_held_out_options options = {
        .n_threads = (int)a->options->n_threads, .progress = show_progress, .context = &bar};
    dsmoe_probe probe = loss_probe(which);
    dsmoe_model *probed = NULL;
    dsmoe_error error;
    double loss = NAN;
    dsmoe_status status = DSMOE_OK;
    if (which != LOSS_PLAIN) status = dsmoe_model_probe(model, &probe, &probed, &error);
    if (status == DSMOE_OK)
        status = dsmoe_held_out_loss(probed ? probed : model, a->dataset, &options, &loss, &error);
    dsmoe_model_free(probed);
    progress_finish(&bar);
    if (cli_interrupted()) return CLI_INTERRUPTED;
    if (status == DSMOE_OK && !isfinite(loss))
        return cli_failure("ablate", "%s: the held-out loss is not a finite number", label);
    if (status != DSMOE_OK) return cli_failure("ablate", "%s: %s", label, error.message);
    return ablate_folder_add(a, entry, seed, which, loss);
}

int ablate_measure(ablation *a, int entry, int seed)
{
    char path[ABLATE_PATH];
    dsmoe_model *model;
    dsmoe_error error;
    if (ablate_is_measured(&a->entries[entry], seed)) return CLI_OK;
    if (!ablate_path(a, path, "runs/%s-seed%d/latest", architectures[entry].name, seed + 1))
        return CLI_FAILURE;
    if (dsmoe_model_open(path, &model, &error) != DSMOE_OK)
        return cli_failure("ablate", "%s", error.message);
    int exit_code = CLI_OK;
    for (int which = 0; exit_code == CLI_OK && which < N_LOSSES; which++)
        if (is_missing(&a->entries[entry], seed, which))
            exit_code = measure_loss(a, entry, seed, which, model);
    dsmoe_model_free(model);
    return exit_code;
}
