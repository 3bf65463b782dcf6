/* run_prepare.c - prepares what a run needs before it can start: the tokenizer, the model's configuration,
 * the data. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/documents.h"
#include "formats/folder.h"
#include "formats/gguf_magic.h"
#include "model/config.h"
#include "text/tokenizer_files.h"
#include "train/run.h"

enum {
    VOCAB_MULTIPLE = 64,  /* so that the head has whole cache lines */
    DEFAULT_VOCAB = 8192, /* for a preset, if shards of tokens come without a tokenizer */
};

/* ---- the tokenizer --------------------------------------------------------------------------- */

static int list_paths(const char data[][DSMOE_PATH], const char *paths[DSMOE_MAX_DATA])
{
    int n = 0;
    for (; n < DSMOE_MAX_DATA && *data[n]; n++) paths[n] = data[n];
    return n;
}

/* Whether there is text among the data: shards alone need no tokenizer. */
static dsmoe_status find_text(const run *r, bool *has_text, dsmoe_error *error)
{
    const char *paths[DSMOE_MAX_DATA];
    int n_paths = list_paths(r->settings.data, paths);
    document_list list = {0};
    dsmoe_status status =
        document_list_open(paths, n_paths, settings_bad_bytes(&r->settings), &list, error);
    *has_text = false;
    for (size_t i = 0; status == DSMOE_OK && i < list.n_sources; i++)
        *has_text = *has_text || list.sources[i].form != DOCUMENT_SHARD;
    document_list_close(&list);
    return status;
}

/* Whether the model to continue from has a tokenizer. */
static bool init_has_tokenizer(const char *init)
{
    char path[CHECKPOINT_PATH];
    struct stat info;
    if (!gguf_magic_at(init))
        return !run_path(init, "tokenizer.json", path, NULL) && stat(path, &info) == 0;
    gguf *file = NULL;
    bool has_one = gguf_open(init, &file, NULL) == DSMOE_OK && gguf_tokenizer_present(file);
    gguf_close(file);
    return has_one;
}

/* The path of the tokenizer; NULL if one will be trained, or none is needed. */
static const char *tokenizer_source(const run *r)
{
    const dsmoe_run_settings *s = &r->settings;
    if (*s->tokenizer) return s->tokenizer;
    return *s->init && init_has_tokenizer(s->init) ? s->init : NULL;
}

static dsmoe_status copy_tokenizer(const run *r, const char *source, dsmoe_error *error)
{
    if (run_has_own_tokenizer(r)) return DSMOE_OK;
    tokenizer_files files;
    STATUS_TRY(tokenizer_files_open(&files, source, error));
    dsmoe_status status = tokenizer_files_write(&files, r->folder, error);
    tokenizer_files_close(&files);
    return status;
}

static dsmoe_status train_tokenizer(run *r, dsmoe_error *error)
{
    const char *paths[DSMOE_MAX_DATA];
    dsmoe_tokenizer_train_options options = {.paths = paths,
                                             .n_paths = list_paths(r->settings.data, paths),
                                             .vocab_size = r->settings.vocab_size,
                                             .n_threads = r->options.n_threads,
                                             .held_out = settings_share(&r->settings),
                                             .bad_bytes = settings_bad_bytes(&r->settings)};
    run_progress progress = {r, "training a tokenizer"};
    dsmoe_status status =
        dsmoe_tokenizer_train(&options, r->folder, run_show_progress, &progress, error);
    if (status == DSMOE_ERROR_ARGUMENT && r->settings.vocab_size)
        run_name_settings(r, (const char *const[]){"vocab_size"}, 1, error);
    return status;
}

/* A model that learns conversations in the named form will read and write them in that form, so the
 * tokenizer's files record it. */
static dsmoe_status record_form(const run *r, dsmoe_error *error)
{
    const char *name = r->settings.chat_form;
    const dsmoe_chat_form *form, *own;
    dsmoe_tokenizer *tokenizer;
    if (!*name || !run_has(r, "tokenizer.json") || run_has_own_tokenizer(r)) return DSMOE_OK;
    STATUS_TRY(dsmoe_tokenizer_open(r->folder, &tokenizer, error));
    bool is_known = dsmoe_chat_form_find(tokenizer, name, &form, NULL) == DSMOE_OK;
    bool has_it = dsmoe_chat_form_find(tokenizer, NULL, &own, NULL) == DSMOE_OK && own == form;
    dsmoe_tokenizer_free(tokenizer);
    if (!is_known || has_it) return DSMOE_OK; /* the first conversation reports what is wrong */
    tokenizer_files files;
    STATUS_TRY(tokenizer_files_open(&files, r->folder, error));
    dsmoe_status status = tokenizer_files_set_form(&files, form, error);
    if (status == DSMOE_OK) status = tokenizer_files_write(&files, r->folder, error);
    tokenizer_files_close(&files);
    return status;
}

/* Puts the tokenizer into the folder. */
static dsmoe_status make_tokenizer(run *r, dsmoe_error *error)
{
    const char *source = tokenizer_source(r);
    if (source) return copy_tokenizer(r, source, error);
    bool has_text;
    STATUS_TRY(find_text(r, &has_text, error));
    if (!has_text) return DSMOE_OK;
    if (*r->settings.init)
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: has no tokenizer%s; name the model's tokenizer with %s",
                           r->settings.init, gguf_magic_at(r->settings.init) ? "" : ".json",
                           run_setting_name(r, "tokenizer"));
    return train_tokenizer(r, error);
}

/* Whether two tokenizers have the same text for every id. */
static bool has_same_pieces(const dsmoe_tokenizer *a, const dsmoe_tokenizer *b)
{
    bool same = dsmoe_tokenizer_size(a) == dsmoe_tokenizer_size(b);
    for (int32_t id = 0; same && id < dsmoe_tokenizer_size(a); id++) {
        size_t n = 0, m = 0;
        const char *x = dsmoe_tokenizer_piece(a, id, &n), *y = dsmoe_tokenizer_piece(b, id, &m);
        same = n == m && !x == !y && (!x || !memcmp(x, y, n));
    }
    return same;
}

/* Warns if a model to continue from would get a tokenizer other than its own. */
static void compare_tokenizers(const run *r)
{
    const dsmoe_run_settings *s = &r->settings;
    dsmoe_tokenizer *own = NULL;
    if (!*s->init || !*s->tokenizer || !init_has_tokenizer(s->init)) return;
    if (dsmoe_tokenizer_open(s->init, &own, NULL) == DSMOE_OK &&
        !has_same_pieces(own, r->tokenizer))
        run_message(r,
                    "%s is not the tokenizer of %s: its tokens mean nothing to that model, which "
                    "has to learn them all",
                    s->tokenizer, s->init);
    dsmoe_tokenizer_free(own);
}

static dsmoe_status prepare_tokenizer(run *r, dsmoe_error *error)
{
    if (!r->options.resume) STATUS_TRY(make_tokenizer(r, error));
    if (!r->options.resume) STATUS_TRY(record_form(r, error));
    if (!run_has(r, "tokenizer.json")) return DSMOE_OK;
    STATUS_TRY(dsmoe_tokenizer_open(r->folder, &r->tokenizer, error));
    if (!r->options.resume) compare_tokenizers(r);
    return DSMOE_OK;
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* The configuration's file, also for messages; "" for a preset. */
static dsmoe_status config_source(const run *r, char path[CHECKPOINT_PATH], dsmoe_error *error)
{
    const dsmoe_run_settings *s = &r->settings;
    if (r->saved_step >= 0 && settings_train(s) == DSMOE_TRAIN_ALL)
        return run_path(r->checkpoint, "config.json", path, error);
    const char *source = *s->init ? s->init : s->config;
    struct stat info;
    if (*source && stat(source, &info) == 0 && S_ISDIR(info.st_mode))
        return run_path(source, "config.json", path, error);
    snprintf(path, CHECKPOINT_PATH, "%s", source);
    return DSMOE_OK;
}

/* Makes sure that all ids of the tokenizer are ids of the model. */
static dsmoe_status fit_vocabulary(run *r, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    STATUS_TRY(config_source(r, path, error));
    dsmoe_config *c = &r->config;
    int64_t needed = r->tokenizer             ? dsmoe_tokenizer_size(r->tokenizer)
                     : r->settings.vocab_size ? r->settings.vocab_size
                                              : DEFAULT_VOCAB;
    if (!*path)
        c->vocab_size = (needed + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
    else if (r->tokenizer && c->vocab_size < needed)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: a vocab_size of %lld is too small for the %lld tokens of the "
                           "tokenizer: %s %s",
                           path, (long long)c->vocab_size, (long long)needed,
                           tokenizer_source(r) ? "use the one that belongs to it, with"
                                               : "train one with a smaller",
                           run_setting_name(r, tokenizer_source(r) ? "tokenizer" : "vocab_size"));
    if (r->tokenizer) {
        int32_t bos = dsmoe_tokenizer_bos(r->tokenizer), eos = dsmoe_tokenizer_eos(r->tokenizer);
        if (bos >= 0) c->bos_token_id = bos;
        if (eos >= 0) c->eos_token_id = eos;
    }
    /* A preset's token ids are for its own tokenizer. */
    if (c->bos_token_id >= c->vocab_size) c->bos_token_id = -1;
    if (c->eos_token_id >= c->vocab_size) c->eos_token_id = -1;
    return DSMOE_OK;
}

/* Applies the sizes in the settings. A model to continue from has its own sizes. */
static dsmoe_status resize(run *r, dsmoe_error *error)
{
    static const char *const keys[] = {
        "num_hidden_layers",     "hidden_size",           "num_attention_heads",
        "num_key_value_heads",   "moe_intermediate_size", "intermediate_size",
        "n_routed_experts",      "n_shared_experts",      "num_experts_per_tok",
        "first_k_dense_replace", "kv_lora_rank",          "q_lora_rank",
        "qk_nope_head_dim",      "qk_rope_head_dim",      "v_head_dim"};
    const dsmoe_model_sizes none = dsmoe_model_sizes_default(), *sizes = &r->settings.model;
    dsmoe_status status;
    if (*r->settings.init && memcmp(sizes, &none, sizeof none))
        status =
            status_fail(error, DSMOE_ERROR_CONFIG,
                        "%s: the sizes of an existing model cannot be changed", r->settings.init);
    else
        status = dsmoe_config_resize(&r->config, sizes, error);
    if (status != DSMOE_OK) run_name_settings(r, keys, sizeof keys / sizeof *keys, error);
    return status;
}

/* This comes before anything that takes time. */
static dsmoe_status read_config(run *r, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    STATUS_TRY(config_source(r, path, error));
    STATUS_TRY(*path ? dsmoe_config_read(path, &r->config, error)
                     : dsmoe_config_preset(r->settings.preset, &r->config, error));
    return r->saved_step >= 0 ? DSMOE_OK : resize(r, error);
}

static dsmoe_status refuse_idle(const run *r, const char *key, const char *why, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s has no effect: %s", run_setting_name(r, key),
                       why);
}

/* A setting without effect for this model or data was given by mistake. A run that already has it
 * continues. */
static dsmoe_status check_experts(const run *r, dsmoe_error *error)
{
    const char *why = "no layer of the model has experts";
    const dsmoe_run_settings *s = &r->settings;
    bool has_experts = config_moe_layers(&r->config, r->config.num_hidden_layers) > 0;
    if (s->bias_speed > 0 && run_is_given(r, "bias_speed")) {
        if (!has_experts) return refuse_idle(r, "bias_speed", why, error);
        if (r->config.topk_method != DSMOE_TOPK_NOAUX_TC)
            return refuse_idle(r, "bias_speed", "the model's topk_method is not noaux_tc", error);
    }
    if (has_experts) return DSMOE_OK;
    if (s->aux_loss_alpha > 0 && run_is_given(r, "aux_loss_alpha"))
        return refuse_idle(r, "aux_loss_alpha", why, error);
    if (s->device_groups > 0 && run_is_given(r, "device_groups"))
        return refuse_idle(r, "device_groups", why, error);
    return DSMOE_OK;
}

static dsmoe_status check_text(const run *r, dsmoe_error *error)
{
    static const char *const keys[] = {"sample_every", "sample_tokens", "sample_prompt"};
    const char *why = "the data are tokens, and no tokenizer is given";
    if (r->tokenizer) return DSMOE_OK;
    if (run_is_given(r, "bad_bytes")) return refuse_idle(r, "bad_bytes", why, error);
    for (size_t i = 0; r->settings.sample_every > 0 && i < sizeof keys / sizeof *keys; i++)
        if (run_is_given(r, keys[i])) return refuse_idle(r, keys[i], why, error);
    return DSMOE_OK;
}

/* Applies the settings and the tokenizer to the configuration. */
static dsmoe_status fit_config(run *r, dsmoe_error *error)
{
    const dsmoe_run_settings *s = &r->settings;
    dsmoe_config *c = &r->config;
    if (s->aux_loss_alpha >= 0) c->aux_loss_alpha = s->aux_loss_alpha;
    if (r->saved_step >= 0 && settings_train(s) == DSMOE_TRAIN_ALL)
        return DSMOE_OK; /* the rest was done when the run began */
    STATUS_TRY(fit_vocabulary(r, error));
    /* A new model has seen no positions beyond those it is trained on. */
    if (!*s->init || c->max_position_embeddings < s->seq) c->max_position_embeddings = s->seq;
    if (s->init_std >= 0) c->initializer_range = s->init_std;
    return config_check(c, error);
}

/* ---- the data -------------------------------------------------------------------------------- */

/* Reports which data is left out or changed. */
static void tell_files(const run *r)
{
    char line[2 * DSMOE_PATH + 512];
    dsmoe_data_files_describe(dsmoe_dataset_files(r->dataset), line, sizeof line);
    if (*line) run_message(r, "data: %s", line);
}

/* Reports which conversations are left out or cut. */
static void tell_conversations(const run *r)
{
    const dsmoe_dataset_info *d = &r->data;
    if (d->n_unanswered > 0)
        run_message(r, "data: %lld conversation%s left out: no answer to learn",
                    (long long)d->n_unanswered, d->n_unanswered == 1 ? " is" : "s are");
    if (d->n_cut > 0)
        run_message(r, "data: %lld conversation%s longer than %s %lld and cut there",
                    (long long)d->n_cut, d->n_cut == 1 ? " is" : "s are",
                    run_setting_name(r, "seq"), (long long)d->sequence_length);
    if (d->n_dropped > 0)
        run_message(r, "data: %lld conversation%s left out: longer than %s %lld%s",
                    (long long)d->n_dropped, d->n_dropped == 1 ? " is" : "s are",
                    run_setting_name(r, "seq"), (long long)d->sequence_length,
                    strcmp(r->settings.too_long, "drop") ? ", with no answer up to there" : "");
}

/* If there are no conversations, settings for them were given by mistake. */
static dsmoe_status check_conversations(const run *r, dsmoe_error *error)
{
    static const char *const keys[] = {"chat_form", "train_on", "too_long", "unpacked"};
    for (size_t i = 0; !r->data.is_packed && i < sizeof keys / sizeof *keys; i++)
        if (run_is_given(r, keys[i]))
            return refuse_idle(r, keys[i], "there is no conversation among the data", error);
    if (!r->data.has_pairs && run_is_given(r, "dpo_beta"))
        return refuse_idle(r, "dpo_beta", "there is no preference among the data", error);
    return DSMOE_OK;
}

/* Preferences are compared with the original model: the base, which low-rank additions leave unchanged. */
static dsmoe_status check_preferences(const run *r, dsmoe_error *error)
{
    if (!r->data.has_pairs || settings_train(&r->settings) == DSMOE_TRAIN_LORA) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_CONFIG,
        "preferences (\"chosen\" and \"rejected\") are learned with %s lora only, as they "
        "are compared with the model without its additions",
        run_setting_name(r, "train"));
}

/* Searches for a file at a path or below it, except hidden ones: an empty mount point has none. A link to
 * a folder counts as a file. */
typedef struct file_search {
    const char *folder;
    int depth;
    bool found;
} file_search;

static bool see_entry(void *context, const char *name);

static bool holds_file(const char *path, int depth)
{
    enum { MAX_DEPTH = 64 };
    struct stat info;
    if (stat(path, &info) != 0 || depth > MAX_DEPTH) return false;
    if (!S_ISDIR(info.st_mode)) return true;
    bool is_link = depth > 0 && lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    file_search search = {path, depth, is_link};
    if (!is_link && folder_each(path, see_entry, &search, NULL) != DSMOE_OK)
        return true; /* reading it later will report the reason */
    return search.found;
}

static bool see_entry(void *context, const char *name)
{
    file_search *search = context;
    char path[CHECKPOINT_PATH];
    if (*name == '.') return true;
    search->found = run_path(search->folder, name, path, NULL) != DSMOE_OK ||
                    holds_file(path, search->depth + 1);
    return !search->found;
}

/* A path at which there is no file any more, though the run used it; NULL if all have files. */
static const char *find_missing(const run *r, const char *const *paths, int n_paths)
{
    for (int i = 0; r->saved_step >= 0 && i < n_paths; i++)
        if (!holds_file(paths[i], 0)) return paths[i];
    return NULL;
}

/* A run needs only the tokens. If its text is gone, it continues with those in the cache. */
static dsmoe_status open_data(run *r, dsmoe_dataset_options *options, dsmoe_error *error)
{
    run_progress progress = {r, "reading the data"};
    const char *missing = find_missing(r, options->paths, options->n_paths);
    if (!missing) missing = find_missing(r, options->eval_paths, options->n_eval_paths);
    if (!missing)
        return dsmoe_dataset_open(options, run_show_progress, &progress, &r->dataset, error);
    dsmoe_error reason;
    options->n_paths = 0;
    dsmoe_status status = dsmoe_dataset_open(options, NULL, NULL, &r->dataset, &reason);
    if (status != DSMOE_OK)
        return status_fail(
            error, status,
            "%s: the text is gone, and the run has no tokens of it to continue with (%s): restore "
            "it",
            missing, reason.message);
    run_message(r, "%s is gone; continuing with its tokens in %s/data.cache", missing, r->folder);
    return DSMOE_OK;
}

/* A hard link is as good as a copy, because a cache is replaced, never changed. If the disk has no hard
 * links, the text is read again. */
static void borrow_tokens(const run *r)
{
    char path[CHECKPOINT_PATH];
    if (!r->options.tokens || run_path(r->folder, "data.cache", path, NULL) != DSMOE_OK) return;
    int failed = link(r->options.tokens, path);
    (void)failed;
}

static dsmoe_status prepare_data(run *r, dsmoe_error *error)
{
    const dsmoe_run_settings *s = &r->settings;
    const char *paths[DSMOE_MAX_DATA], *eval_paths[DSMOE_MAX_DATA];
    dsmoe_dataset_options options = {
        .paths = paths,
        .n_paths = list_paths(s->data, paths),
        .eval_paths = eval_paths,
        .n_eval_paths = list_paths(s->eval_data, eval_paths),
        .chat_form = *s->chat_form ? s->chat_form : NULL,
        .learns_all = !strcmp(s->train_on, "all"),
        .drops_long = !strcmp(s->too_long, "drop"),
        .packs_nothing = s->unpacked,
        .bad_bytes = settings_bad_bytes(s),
        .tokenizer = r->tokenizer,
        .cache = r->folder,
        .vocab_size = r->config.vocab_size,
        .sequence_length = s->seq,
        .held_out = settings_share(s),
        .seed = (uint64_t)s->seed,
        .n_threads = r->options.n_threads,
        .expected_hash = r->saved_step >= 0 ? r->state.data_hash : 0,
    };
    dsmoe_error reason;
    borrow_tokens(r);
    dsmoe_status status = open_data(r, &options, &reason);
    if (status == DSMOE_ERROR_ARGUMENT)
        run_name_settings(r, (const char *const[]){"seq", "held_out"}, 2, &reason);
    if (status == DSMOE_ERROR_FORMAT && r->saved_step >= 0)
        return status_fail(
            error, status,
            "%s; if it has moved, give its new place with %s; %s %s begins a new run",
            reason.message, run_setting_name(r, "data"), run_setting_name(r, "init"),
            r->checkpoint);
    if (status != DSMOE_OK) return status_fail(error, status, "%s", reason.message);
    r->data = dsmoe_dataset_get_info(r->dataset);
    tell_files(r);
    tell_conversations(r);
    STATUS_TRY(check_preferences(r, error));
    return check_conversations(r, error);
}

/* ---- everything ------------------------------------------------------------------------------ */

static dsmoe_status prepare(run *r, const dsmoe_run_settings *settings, dsmoe_error *error)
{
    if (!settings && !r->options.resume)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no settings and no run to resume given");
    if (r->options.resume) {
        STATUS_TRY(run_open_old_folder(r, error));
        STATUS_TRY(run_find_checkpoint(r, error));
        STATUS_TRY(run_change_settings(r, settings, error));
        if (run_is_done(r) && !r->options.show_data) return DSMOE_OK;
    } else {
        r->settings = *settings;
        STATUS_TRY(run_open_new_folder(r, error));
    }
    STATUS_TRY(read_config(r, error));
    STATUS_TRY(check_experts(r, error));
    STATUS_TRY(prepare_tokenizer(r, error));
    STATUS_TRY(check_text(r, error));
    STATUS_TRY(fit_config(r, error));
    STATUS_TRY(run_open_base(r, error));
    if (run_scores_experts(r)) { /* the choice depends on the data */
        STATUS_TRY(prepare_data(r, error));
        STATUS_TRY(run_choose_experts(r, error));
        return run_plan(r, error);
    }
    STATUS_TRY(run_choose_experts(r, error));
    STATUS_TRY(run_plan(r, error));
    return prepare_data(r, error);
}

dsmoe_status run_prepare(run *r, const dsmoe_run_settings *settings, dsmoe_error *error)
{
    dsmoe_status status = prepare(r, settings, error);
    return status == DSMOE_ERROR_STOPPED ? DSMOE_OK : status; /* the caller asked to stop */
}
