/* voice_local.c - a model in this process as a voice. Every turn encodes the whole conversation again. The
 * sequence keeps the tokens that it has in common with it, so only new tokens are processed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/voice.h"

enum { ROOM_FOR_ANSWER = 256 }; /* tokens; less in a small context */

typedef struct local_voice {
    voice base;
    const voice_order *order;
    runner run;
    const dsmoe_chat_form *form; /* of conversations; NULL: texts are continued */
    int32_t *prompt;             /* its ids */
    size_t n_prompt;
    char *shown;         /* the prompt's ids as text */
    int32_t *answer_ids; /* [capacity] */
    int64_t n_answer;
    stream *out;
} local_voice;

static local_voice *local(voice *v) { return (local_voice *)v; }

/* ---- a text to continue --------------------------------------------------------------------------- */

/* The ids of the prompt. CLI_OK or an exit code. */
static int encode_prompt(local_voice *l, const char *name, const char *text, size_t length)
{
    const char *command = l->base.command;
    if (l->order->ids)
        return ids_parse((ids_source){command, name}, text, length, &l->prompt, &l->n_prompt);
    dsmoe_error error;
    int flags = DSMOE_ENCODE_BOS | (l->order->options->special ? DSMOE_ENCODE_SPECIAL : 0);
    if (dsmoe_tokenizer_encode(l->run.tokenizer, text, length, flags, &l->prompt, &l->n_prompt,
                               &error))
        return cli_failure(command, "%s", error.message);
    return CLI_OK;
}

static int check_prompt(const local_voice *l, const char *name)
{
    const voice *v = &l->base;
    bool ids = l->order->ids;
    if (l->n_prompt == 0)
        return cli_failure(v->command, "the prompt is empty: nothing to continue");
    dsmoe_error error;
    int64_t vocab_size = dsmoe_model_config(l->run.model)->vocab_size;
    if (ids_check(l->prompt, l->n_prompt, vocab_size, !ids, &error))
        return cli_failure(v->command, "%s: %s", ids ? name : v->name, error.message);
    if (l->n_prompt > (size_t)l->run.capacity)
        return cli_failure(v->command,
                           "the prompt has %zu tokens, but the context (-c) holds only %" PRId64,
                           l->n_prompt, l->run.capacity);
    return CLI_OK;
}

/* Shows ids as they were parsed. */
static int show_ids(local_voice *l)
{
    FILE *text = open_memstream(&l->shown, &l->base.n_prompt);
    if (!text) return cli_failure(l->base.command, "not enough memory");
    for (size_t i = 0; i < l->n_prompt; i++)
        fprintf(text, "%s%" PRId32, i ? " " : "", l->prompt[i]);
    if (fclose(text)) return cli_failure(l->base.command, "not enough memory");
    l->base.prompt = l->shown;
    return CLI_OK;
}

static int take_prompt(voice *v, const char *name, const char *text, size_t length)
{
    local_voice *l = local(v);
    v->prompt = text;
    v->n_prompt = length;
    int code = encode_prompt(l, name, text, length);
    if (code == CLI_OK) code = check_prompt(l, name);
    if (code == CLI_OK && l->order->ids) code = show_ids(l);
    return code;
}

static bool emit_id(void *context, int32_t token, bool is_end)
{
    stream *out = ((local_voice *)context)->out;
    char text[16];
    (void)is_end;
    int length = snprintf(text, sizeof text, "%s%" PRId32, out->length ? " " : "", token);
    return stream_put(out, text, (size_t)length);
}

static bool emit_piece(void *context, int32_t token, bool is_end)
{
    local_voice *l = context;
    bool special = is_end || dsmoe_tokenizer_is_special(l->run.tokenizer, token);
    if (special && !l->order->options->special) return true;
    size_t length = 0;
    const char *piece = dsmoe_tokenizer_piece(l->run.tokenizer, token, &length);
    return stream_put(l->out, piece, piece ? length : 0);
}

static void go_on(voice *v, stream *out, voice_result *result)
{
    local_voice *l = local(v);
    runner *r = &l->run;
    l->out = out;
    result->end = runner_read(r, l->prompt, (int64_t)l->n_prompt, &result->error);
    if (result->end == RUNNER_STOPPED)
        result->end = runner_generate(r, l->order->options->n_predict,
                                      l->order->ids ? emit_id : emit_piece, l, &result->error);
}

/* ---- a conversation --------------------------------------------------------------------------------- */

/* The ids of the conversation and of the answer so far; to be freed. */
static dsmoe_status encode(const local_voice *l, const conversation *talk, int32_t **ids,
                           size_t *n_ids, dsmoe_error *error)
{
    dsmoe_status status = dsmoe_chat_encode(l->run.tokenizer, l->form, talk->messages, talk->count,
                                            true, ids, n_ids, error);
    if (status != DSMOE_OK) return status;
    size_t n = *n_ids + (size_t)l->n_answer;
    int32_t *larger = realloc(*ids, n * sizeof *larger);
    if (!larger) {
        *error = (dsmoe_error){DSMOE_ERROR_MEMORY, "not enough memory"};
        goto fail;
    }
    memcpy(larger + *n_ids, l->answer_ids, (size_t)l->n_answer * sizeof *larger);
    *ids = larger;
    *n_ids = n;
    if (ids_check(*ids, n, dsmoe_model_config(l->run.model)->vocab_size, true, error)) goto fail;
    return DSMOE_OK;
fail:
    free(*ids);
    *ids = NULL;
    return error->status;
}

/* Puts the conversation into the sequence. If there would be no room for an answer, its oldest turns are
 * dropped. RUNNER_STOPPED means success; RUNNER_FULL, that even the newest question is too long, and the
 * error says how long. */
static runner_end read_conversation(local_voice *l, conversation *talk, voice_result *result)
{
    int64_t capacity = l->run.capacity;
    int64_t room = capacity / 4 < ROOM_FOR_ANSWER ? capacity / 4 : ROOM_FOR_ANSWER;
    for (;;) {
        int32_t *ids = NULL;
        size_t n_ids;
        if (encode(l, talk, &ids, &n_ids, &result->error)) return RUNNER_FAILED;
        int64_t n = (int64_t)n_ids;
        runner_end end = RUNNER_FULL;
        bool again = n + room > capacity && conversation_drop_turn(talk);
        if (again)
            result->n_dropped += 2;
        else if (n < capacity)
            end = runner_read(&l->run, ids, n, &result->error);
        else
            snprintf(result->error.message, sizeof result->error.message,
                     "%zu tokens, and the context (-c) holds %" PRId64, n_ids, capacity);
        free(ids);
        if (!again) return end;
    }
}

static bool emit_answer(void *context, int32_t token, bool is_end)
{
    local_voice *l = context;
    if (is_end) return true;
    l->answer_ids[l->n_answer++] = token;
    if (dsmoe_tokenizer_is_special(l->run.tokenizer, token) && !l->order->options->special)
        return true;
    size_t length = 0;
    const char *piece = dsmoe_tokenizer_piece(l->run.tokenizer, token, &length);
    if (!piece) return true;
    const char *lead = dsmoe_chat_form_lead(l->form);
    size_t n_lead = strlen(lead);
    bool leads = l->out->length == 0 && length >= n_lead && !memcmp(piece, lead, n_lead);
    return stream_put(l->out, piece + leads * n_lead, length - leads * n_lead);
}

/* If the context fills up meanwhile, the oldest turns of the conversation are dropped. */
static void answer(voice *v, conversation *talk, stream *out, voice_result *result)
{
    local_voice *l = local(v);
    int64_t limit = l->order->options->n_predict;
    l->out = out;
    l->n_answer = 0;
    runner_begin_text(&l->run);
    do {
        result->end = read_conversation(l, talk, result);
        if (result->end != RUNNER_STOPPED) break;
        result->end = runner_generate(&l->run, limit < 0 ? -1 : limit - l->n_answer, emit_answer, l,
                                      &result->error);
    } while (result->end == RUNNER_FULL);
    result->began = l->n_answer > 0;
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static int reseed(voice *v) { return runner_reseed(v->command, &local(v)->run); }

static void report(const voice *v) { runner_report(&((const local_voice *)v)->run); }

static void close_local(voice *v)
{
    local_voice *l = local(v);
    free(l->answer_ids);
    free(l->shown);
    free(l->prompt);
    runner_close(&l->run);
    free(l);
}

static int find_form(local_voice *l)
{
    dsmoe_error error;
    const char *name = lora_form(l->run.lora, l->order->chat_form);
    if (dsmoe_chat_form_find(l->run.tokenizer, name, &l->form, &error))
        return cli_failure(l->base.command, "%s%s", error.message,
                           l->order->chat_form ? "" : " (--chat-form)");
    l->run.answer_end = dsmoe_chat_form_end(l->run.tokenizer, l->form);
    return CLI_OK;
}

int voice_open_local(const voice_order *order, voice **v)
{
    static const voice_kind kind = {take_prompt, go_on, answer, reseed, report, close_local};
    local_voice *l = calloc(1, sizeof *l);
    if (!l) return cli_failure(order->command, "not enough memory");
    l->base = (voice){.kind = &kind,
                      .command = order->command,
                      .name = order->options->model,
                      .context_hint = " (-c)"};
    l->order = order;
    *v = &l->base;
    int code = runner_open(order->command, order->options,
                           order->ids ? NULL : order->tokenizer_hint, &l->run);
    if (code == CLI_OK && order->talks) code = find_form(l);
    if (code != CLI_OK) return code;
    l->base.is_greedy = l->run.sampling.temperature == 0;
    snprintf(l->base.context, sizeof l->base.context, "the context of %" PRId64 " tokens",
             l->run.capacity);
    l->answer_ids = malloc((size_t)l->run.capacity * sizeof *l->answer_ids);
    return l->answer_ids ? CLI_OK : cli_failure(order->command, "not enough memory");
}
