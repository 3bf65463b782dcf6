/* run_change.c - changed settings of a run that has begun, and what messages call a setting. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run.h"

const char *run_setting_name(const run *r, const char *key)
{
    return r->options.setting_name ? r->options.setting_name(key) : key;
}

bool run_is_given(const run *r, const char *key)
{
    for (int i = 0; i < r->options.n_given; i++)
        if (!strcmp(r->options.given[i], key)) return true;
    return false;
}

/* Makes given paths absolute, as the run has them. */
static dsmoe_status find_paths(const run *r, dsmoe_run_settings *given, dsmoe_error *error)
{
    if (run_is_given(r, "tokenizer"))
        STATUS_TRY(run_make_absolute(r, given->tokenizer, "tokenizer", error));
    if (run_is_given(r, "config")) STATUS_TRY(run_make_absolute(r, given->config, "config", error));
    if (run_is_given(r, "init")) STATUS_TRY(run_make_absolute(r, given->init, "init", error));
    if (run_is_given(r, "experts"))
        STATUS_TRY(run_make_absolute(r, given->experts, "experts", error));
    if (run_is_given(r, "out") && memchr(given->out, '\0', DSMOE_PATH) &&
        run_is_folder(r, given->out))
        memcpy(given->out, r->settings.out, sizeof given->out); /* the folder may have moved */
    if (run_is_given(r, "data"))
        for (int i = 0; i < DSMOE_MAX_DATA && *given->data[i]; i++)
            STATUS_TRY(run_make_absolute(r, given->data[i], "data", error));
    if (run_is_given(r, "eval_data"))
        for (int i = 0; i < DSMOE_MAX_DATA && *given->eval_data[i]; i++)
            STATUS_TRY(run_make_absolute(r, given->eval_data[i], "eval_data", error));
    return DSMOE_OK;
}

/* Checks what depends on the state of the run. */
static dsmoe_status check_changes(const run *r, dsmoe_error *error)
{
    const dsmoe_run_settings *s = &r->settings;
    STATUS_TRY(settings_check(s, "settings", error));
    if (!*s->data[0])
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s names no text to learn from",
                           run_setting_name(r, "data"));
    if (s->aux_loss_alpha < 0 && r->before.aux_loss_alpha >= 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s cannot be unset in a run that has begun: give a factor",
                           run_setting_name(r, "aux_loss_alpha"));
    int64_t done = r->saved_step < 0 ? 0 : r->saved_step;
    if (s->steps != r->before.steps && s->steps <= done)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s %" PRId64 " is too few: %" PRId64 " steps of this run are done",
                           run_setting_name(r, "steps"), s->steps, done);
    if (!run_is_done(r)) return DSMOE_OK;
    bool impatient = run_is_out_of_patience(r);
    char why[DSMOE_PATH + 128];
    run_describe_end(r, why, sizeof why);
    if (done < s->steps && run_is_enough(r))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s, and it is to stop after %" PRId64
                           ": nothing is left that a change could affect",
                           why, r->options.stop_after);
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "%s: nothing is left that a change could affect; give %s %s", why,
                       impatient ? "a larger" : "more",
                       run_setting_name(r, impatient ? "patience" : "steps"));
}

dsmoe_status run_change_settings(run *r, const dsmoe_run_settings *given, dsmoe_error *error)
{
    r->before = r->settings;
    if (r->options.n_given == 0) return DSMOE_OK;
    if (!given) return status_fail(error, DSMOE_ERROR_ARGUMENT, "keys are given, but no settings");
    dsmoe_run_settings wanted = *given;
    STATUS_TRY(find_paths(r, &wanted, error));
    for (int i = 0; i < r->options.n_given; i++) {
        const char *key = r->options.given[i];
        STATUS_TRY(settings_change(&r->settings, &wanted, key, run_setting_name(r, key), error));
    }
    return settings_differ(&r->before, &r->settings) ? check_changes(r, error) : DSMOE_OK;
}

void run_name_settings(const run *r, const char *const *keys, int n_keys, dsmoe_error *error)
{
    dsmoe_error reason = *error;
    char list[384] = "";
    for (int i = 0, used = 0; i < n_keys && used < (int)sizeof list; i++) {
        char *value = settings_describe(&r->settings, keys[i]);
        bool is_on = value && !strcmp(value, "true");
        if (value && strcmp(value, "not set") && strcmp(value, "false"))
            used +=
                snprintf(list + used, sizeof list - (size_t)used, "%s%s%s%s", used ? ", " : " (",
                         run_setting_name(r, keys[i]), is_on ? "" : " ", is_on ? "" : value);
        free(value);
    }
    status_fail(error, reason.status, "%s%s%s", reason.message, list, *list ? ")" : "");
}
