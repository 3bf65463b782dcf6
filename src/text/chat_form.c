/* chat_form.c - the table of forms, and the pieces of a conversation in one of them. */
#include "text/chat_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/vocabulary.h"

/* Expressions in templates. */
#define CONTENT "message['content']"
#define V3_END "'<｜end▁of▁sentence｜>'"

/* What the templates of DeepSeek-V3 write; they differ in how they treat several system messages. */
#define V3_FORM                                                                                    \
    .begin = {CHAT_BOS}, .user = {.before = {"<｜User｜>"}}, .assistant = {"<｜Assistant｜>"},     \
    .lead = "", .end = CHAT_EOS,                                                                   \
    .writes = {"bos_token",                                                                        \
               "ns.system_prompt",                                                                 \
               "'<｜User｜>'+" CONTENT,                                                            \
               "?'<｜Assistant｜>'+" CONTENT "+" V3_END,                                           \
               "?'<｜Assistant｜>'+content+" V3_END,                                               \
               "'<｜Assistant｜>'"}

const dsmoe_chat_form chat_forms[] = {
    /* DeepSeek-MoE-16B-chat, DeepSeek-V2-Lite-Chat, DeepSeek-Coder-V2-Lite-Instruct and their relatives */
    {.name = "deepseek",
     .begin = {CHAT_BOS},
     .system = {.after = {"\n\n"}},
     .user = {.before = {"User: "}, .after = {"\n\n"}},
     .assistant = {"Assistant:"},
     .lead = " ",
     .end = CHAT_EOS,
     .writes = {"bos_token", "'User: '+" CONTENT "+'\\n\\n'", "'Assistant: '+" CONTENT "+eos_token",
                CONTENT "+'\\n\\n'", "'Assistant:'"}},
    /* DeepSeek-V3-0324 */
    {.name = "deepseek-v3-0324",
     V3_FORM,
     .systems = CHAT_SYSTEMS_JOINED,
     .mentions = "ns.system_prompt+'\\n\\n'+" CONTENT},
    /* DeepSeek-V3 */
    {.name = "deepseek-v3",
     V3_FORM,
     .systems = CHAT_SYSTEMS_LAST,
     .mentions = "setns.system_prompt=" CONTENT},
    /* Moonlight-16B-A3B-Instruct */
    {.name = "moonlight",
     .system = {.before = {"<|im_system|>", "system", "<|im_middle|>"}, .after = {"<|im_end|>"}},
     .user = {.before = {"<|im_user|>", "user", "<|im_middle|>"}, .after = {"<|im_end|>"}},
     .assistant = {"<|im_assistant|>", "assistant", "<|im_middle|>"},
     .lead = "",
     .end = "<|im_end|>",
     .default_system = "You are a helpful assistant",
     .writes = {"'<|im_system|>system<|im_middle|>You are a helpful assistant<|im_end|>'",
                "'<|im_system|>'", "'<|im_user|>'", "'<|im_assistant|>'", "message['role']",
                "'<|im_middle|>'", CONTENT, "'<|im_end|>'",
                "'<|im_assistant|>assistant<|im_middle|>'"}},
    {.name = "chatml",
     .system = {.before = {"<|im_start|>", "system\n"}, .after = {"<|im_end|>", "\n"}},
     .user = {.before = {"<|im_start|>", "user\n"}, .after = {"<|im_end|>", "\n"}},
     .assistant = {"<|im_start|>", "assistant\n"},
     .lead = "",
     .end = "<|im_end|>",
     .after = {"\n"},
     .writes = {"'<|im_start|>'+message['role']+'\\n'+" CONTENT "+'<|im_end|>\\n'",
                "'<|im_start|>assistant\\n'"}},
    /* models trained on the alpaca data */
    {.name = "alpaca",
     .begin = {CHAT_BOS},
     .system = {.after = {"\n\n"}},
     .user = {.before = {"### Instruction:\n"}, .after = {"\n\n"}},
     .assistant = {"### Response:\n"},
     .lead = "",
     .end = CHAT_EOS,
     .after = {"\n\n"},
     .default_system = "Below is an instruction that describes a task. Write a response that"
                       " appropriately completes the request."},
    /* the contents alone, one after another */
    {.name = "none", .begin = {CHAT_BOS}, .lead = "", .end = CHAT_EOS},
};
const size_t n_chat_forms = sizeof chat_forms / sizeof *chat_forms;

const dsmoe_chat_form *chat_form_named(const char *name)
{
    for (size_t i = 0; i < n_chat_forms; i++)
        if (!strcmp(chat_forms[i].name, name)) return &chat_forms[i];
    return NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* -1 if the tokenizer has no such token. */
static int32_t token_of(const dsmoe_tokenizer *t, const char *part)
{
    if (!strcmp(part, CHAT_BOS)) return dsmoe_tokenizer_bos(t);
    if (!strcmp(part, CHAT_EOS)) return dsmoe_tokenizer_eos(t);
    return vocabulary_find_content(&t->bpe.vocabulary, part, strlen(part));
}

static bool has_tokens(const dsmoe_tokenizer *t, chat_parts parts, const char **missing)
{
    for (int i = 0; i < CHAT_PARTS && parts[i]; i++)
        if (parts[i][0] == '<' && strcmp(parts[i], CHAT_BOS) && token_of(t, parts[i]) < 0) {
            *missing = parts[i];
            return false;
        }
    return true;
}

/* A conversation can begin without EOS, so a missing EOS is an error only when it is needed. */
static dsmoe_status check_tokens(const dsmoe_tokenizer *t, const dsmoe_chat_form *f,
                                 dsmoe_error *error)
{
    const char *missing = NULL;
    const chat_parts end = {strcmp(f->end, CHAT_EOS) ? f->end : NULL};
    if (has_tokens(t, f->system.before, &missing) && has_tokens(t, f->system.after, &missing) &&
        has_tokens(t, f->user.before, &missing) && has_tokens(t, f->user.after, &missing) &&
        has_tokens(t, f->assistant, &missing) && has_tokens(t, end, &missing))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "%s: the chat form \"%s\" needs the token %s, which the tokenizer does not"
                       " have",
                       t->source, f->name, missing);
}

/* ---- finding a form -------------------------------------------------------------------------- */

static void put_names(char *text, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < n_chat_forms && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s",
                               i == 0                  ? ""
                               : i + 1 == n_chat_forms ? " and "
                                                       : ", ",
                               chat_forms[i].name);
}

dsmoe_status dsmoe_chat_form_find(const dsmoe_tokenizer *tokenizer, const char *name,
                                  const dsmoe_chat_form **form, dsmoe_error *error)
{
    char names[128];
    put_names(names, sizeof names);
    *form = name ? chat_form_named(name) : tokenizer->chat_form;
    if (name && !*form)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "there is no chat form \"%.64s\"; there are %s", name, names);
    if (!*form && tokenizer->has_chat)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: the model's chat_template is not a known one: name its chat form, "
                           "one of %s",
                           tokenizer->source, names);
    if (!*form) *form = chat_forms;
    dsmoe_status status = check_tokens(tokenizer, *form, error);
    if (status != DSMOE_OK) *form = NULL;
    return status;
}

const char *dsmoe_chat_form_name(const dsmoe_chat_form *form) { return form->name; }

const char *dsmoe_chat_form_lead(const dsmoe_chat_form *form) { return form->lead; }

int32_t dsmoe_chat_form_end(const dsmoe_tokenizer *tokenizer, const dsmoe_chat_form *form)
{
    return token_of(tokenizer, form->end);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

typedef struct builder {
    const dsmoe_tokenizer *tokenizer;
    const dsmoe_chat_form *form;
    chat_pieces *pieces;
    size_t message;
    bool answer;
    dsmoe_error *error;
} builder;

static dsmoe_status add(builder *b, const char *text, int32_t id)
{
    chat_pieces *p = b->pieces;
    STATUS_TRY(buffer_grow((void **)&p->at, &p->capacity, p->count + 1, sizeof *p->at, b->error));
    p->at[p->count++] = (chat_piece){.text = text,
                                     .length = text ? strlen(text) : 0,
                                     .id = id,
                                     .message = b->message,
                                     .answer = b->answer};
    return DSMOE_OK;
}

static dsmoe_status add_part(builder *b, const char *part)
{
    if (part[0] != '<') return *part ? add(b, part, -1) : DSMOE_OK;
    int32_t id = token_of(b->tokenizer, part);
    if (id >= 0) return add(b, NULL, id);
    if (!strcmp(part, CHAT_BOS)) return DSMOE_OK;
    return status_fail(b->error, DSMOE_ERROR_ARGUMENT,
                       "message %zu: the tokenizer has no %s to end an answer with", b->message,
                       strcmp(part, CHAT_EOS) ? part : "EOS");
}

static dsmoe_status add_parts(builder *b, chat_parts parts)
{
    for (int i = 0; i < CHAT_PARTS && parts[i]; i++) STATUS_TRY(add_part(b, parts[i]));
    return DSMOE_OK;
}

/* Content is always text, even if it looks like a token. */
static dsmoe_status add_content(builder *b, const char *content)
{
    return *content ? add(b, content, -1) : DSMOE_OK;
}

static dsmoe_status add_turn(builder *b, const chat_turn *turn, const char *content)
{
    STATUS_TRY(add_parts(b, turn->before));
    STATUS_TRY(add_content(b, content));
    return add_parts(b, turn->after);
}

static dsmoe_status add_answer(builder *b, const char *content)
{
    STATUS_TRY(add_parts(b, b->form->assistant));
    b->answer = true;
    dsmoe_status status = add_part(b, b->form->lead);
    if (status == DSMOE_OK) status = add_content(b, content);
    if (status == DSMOE_OK) status = add_part(b, b->form->end);
    b->answer = false;
    STATUS_TRY(status);
    return add_parts(b, b->form->after);
}

static bool is_system(const dsmoe_message *message) { return !strcmp(message->role, "system"); }

/* Adds the system messages before all others, wherever they are. */
static dsmoe_status add_systems_first(builder *b, const dsmoe_message *messages, size_t n)
{
    bool is_first = true;
    size_t last = 0;
    for (size_t i = 0; i < n; i++)
        if (is_system(&messages[i])) last = i;
    for (size_t i = 0; i < n; i++) {
        bool counts = b->form->systems == CHAT_SYSTEMS_JOINED || i == last;
        if (!is_system(&messages[i]) || !counts) continue;
        b->message = i;
        if (!is_first) STATUS_TRY(add(b, "\n\n", -1));
        STATUS_TRY(add_turn(b, &b->form->system, messages[i].content));
        is_first = false;
    }
    return DSMOE_OK;
}

static dsmoe_status check_message(const dsmoe_message *message, size_t number, dsmoe_error *error)
{
    if (!message->role || !message->content)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "message %zu has no %s", number,
                           message->role ? "content" : "role");
    if (is_system(message) || !strcmp(message->role, "user") || !strcmp(message->role, "assistant"))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "message %zu: role \"%.64s\" is not system, user or assistant", number,
                       message->role);
}

static dsmoe_status add_message(builder *b, const dsmoe_message *message)
{
    const dsmoe_chat_form *f = b->form;
    if (!strcmp(message->role, "user")) return add_turn(b, &f->user, message->content);
    if (!strcmp(message->role, "assistant")) return add_answer(b, message->content);
    return f->systems == CHAT_SYSTEMS_IN_PLACE ? add_turn(b, &f->system, message->content)
                                               : DSMOE_OK;
}

dsmoe_status chat_form_pieces(const dsmoe_tokenizer *tokenizer, const dsmoe_chat_form *form,
                              const dsmoe_message *messages, size_t n_messages,
                              bool add_generation_prompt, chat_pieces *pieces, dsmoe_error *error)
{
    *pieces = (chat_pieces){0};
    builder b = {.tokenizer = tokenizer, .form = form, .pieces = pieces, .error = error};
    for (size_t i = 0; i < n_messages; i++) STATUS_TRY(check_message(&messages[i], i, error));
    STATUS_TRY(add_parts(&b, form->begin));
    if (form->default_system && n_messages > 0 && !is_system(&messages[0]))
        STATUS_TRY(add_turn(&b, &form->system, form->default_system));
    if (form->systems != CHAT_SYSTEMS_IN_PLACE)
        STATUS_TRY(add_systems_first(&b, messages, n_messages));
    for (size_t i = 0; i < n_messages; i++) {
        b.message = i;
        STATUS_TRY(add_message(&b, &messages[i]));
    }
    return add_generation_prompt ? add_parts(&b, form->assistant) : DSMOE_OK;
}

void chat_pieces_free(chat_pieces *pieces)
{
    free(pieces->at);
    *pieces = (chat_pieces){0};
}
