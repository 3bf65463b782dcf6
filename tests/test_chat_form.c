/* test_chat_form.c - conversations in every form: the ids of the text that the public templates write,
 * which parts of it the assistant must write, and which form a template is. The texts in
 * data/chat/rendered.json were made from the public templates by another program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/whole_file.h"
#include "text/chat_form.h"
#include "text/tokenizer_files.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { MAX_MESSAGES = 8, FIRST_ADDED = 100015 };

/* ---- the released tokenizer with the special tokens of all forms ------------------------------ */

static dsmoe_tokenizer *plain, *rich; /* without and with these special tokens */

static char *read_whole(const char *path, size_t *length)
{
    whole_file file;
    dsmoe_error error;
    if (whole_file_read(&file, path, 64 << 20, &error) != DSMOE_OK) fail_msg("%s", error.message);
    char *copy = strndup(file.bytes, file.size);
    *length = file.size;
    whole_file_free(&file);
    assert_non_null(copy);
    return copy;
}

static char *with_tokens(const char *json)
{
    static const char *const tokens[] = {"<｜User｜>",   "<｜Assistant｜>",  "<|im_system|>",
                                         "<|im_user|>",  "<|im_assistant|>", "<|im_middle|>",
                                         "<|im_start|>", "<|im_end|>"};
    static const char list[] = "\"added_tokens\"";
    const char *at = strstr(json, list);
    assert_non_null(at);
    at = strchr(at, '[') + 1;
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    fwrite(json, 1, (size_t)(at - json), out);
    for (size_t i = 0; i < COUNT(tokens); i++)
        fprintf(out, "{\"id\": %zu, \"content\": \"%s\", \"special\": true},", FIRST_ADDED + i,
                tokens[i]);
    fputs(at, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static dsmoe_tokenizer *parse(const char *json, const char *config)
{
    tokenizer_text text = {json, strlen(json), "tokenizer.json"};
    tokenizer_text config_text = {config, strlen(config), "tokenizer_config.json"};
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (tokenizer_parse(&text, &config_text, &tokenizer, &error)) fail_msg("%s", error.message);
    return tokenizer;
}

static int open_tokenizers(void **state)
{
    (void)state;
    size_t length;
    char *json = read_whole(TEST_DATA "/tokenizer/tokenizer.json", &length);
    char *config = read_whole(TEST_DATA "/tokenizer/tokenizer_config.json", &length);
    char *more = with_tokens(json);
    plain = parse(json, config);
    rich = parse(more, config);
    free(json);
    free(config);
    free(more);
    return 0;
}

static int free_tokenizers(void **state)
{
    (void)state;
    dsmoe_tokenizer_free(plain);
    dsmoe_tokenizer_free(rich);
    return 0;
}

/* ---- the text of the public templates ---------------------------------------------------------- */

typedef struct rendered {
    dsmoe_message messages[MAX_MESSAGES];
    size_t n_messages;
    bool prompt;
    const char *text;
} rendered;

static const char *string_of(const json_node *object, const char *key)
{
    const json_node *node = json_node_member(object, key);
    assert_non_null(node);
    return json_node_string(node, NULL);
}

static rendered read_case(const json_node *node)
{
    const json_node *messages = json_node_member(node, "messages");
    rendered r = {.n_messages = json_node_count(messages),
                  .prompt = json_node_bool(json_node_member(node, "add_generation_prompt")),
                  .text = string_of(node, "text")};
    assert_true(r.n_messages <= MAX_MESSAGES);
    for (size_t i = 0; i < r.n_messages; i++) {
        const json_node *message = json_node_item(messages, i);
        r.messages[i] = (dsmoe_message){string_of(message, "role"), string_of(message, "content")};
    }
    return r;
}

typedef void case_fn(const dsmoe_chat_form *form, const rendered *r);

static void each_case(case_fn *check)
{
    size_t length;
    char *text = read_whole(TEST_DATA "/chat/rendered.json", &length);
    json_node *root;
    assert_int_equal(json_node_parse(text, length, "rendered.json", &root, NULL), DSMOE_OK);
    for (size_t f = 0; f < n_chat_forms; f++) {
        const json_node *cases = json_node_member(root, chat_forms[f].name);
        assert_true(cases && json_node_count(cases) >= 3);
        for (size_t i = 0; i < json_node_count(cases); i++) {
            rendered r = read_case(json_node_item(cases, i));
            check(&chat_forms[f], &r);
        }
    }
    json_node_free(root);
    free(text);
}

/* Checks the ids against the text of the template, with its special tokens. */
static void check_ids(const dsmoe_chat_form *form, const rendered *r)
{
    int32_t *ids, *expected;
    size_t n_ids, n_expected;
    dsmoe_error error;
    if (dsmoe_chat_encode(rich, form, r->messages, r->n_messages, r->prompt, &ids, &n_ids, &error))
        fail_msg("%s: %s", form->name, error.message);
    assert_int_equal(dsmoe_tokenizer_encode(rich, r->text, strlen(r->text), DSMOE_ENCODE_SPECIAL,
                                            &expected, &n_expected, NULL),
                     DSMOE_OK);
    assert_int_equal(n_ids, n_expected);
    assert_memory_equal(ids, expected, n_ids * sizeof *ids);
    free(ids);
    free(expected);
}

static void test_ids_of_public_templates(void **state)
{
    (void)state;
    each_case(check_ids);
}

/* ---- the assistant's part ------------------------------------------------------------------------ */

/* Each answer with its lead before it and its end token and "|" after it. */
static char *expected_answers(const dsmoe_chat_form *form, const rendered *r)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    size_t n_end;
    const char *end = dsmoe_tokenizer_piece(rich, dsmoe_chat_form_end(rich, form), &n_end);
    for (size_t i = 0; i < r->n_messages; i++)
        if (!strcmp(r->messages[i].role, "assistant"))
            fprintf(out, "%s%s%.*s|", form->lead, r->messages[i].content, (int)n_end, end);
    assert_int_equal(fclose(out), 0);
    return text;
}

static char *answers_of(const id_buffer *ids, const byte_buffer *answers)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < ids->count; i++) {
        size_t n;
        const char *piece = dsmoe_tokenizer_piece(rich, ids->ids[i], &n);
        if (answers->bytes[i]) fwrite(piece, 1, n, out);
        bool ends = answers->bytes[i] && (i + 1 == ids->count || !answers->bytes[i + 1]);
        if (ends) fputc('|', out);
    }
    assert_int_equal(fclose(out), 0);
    return text;
}

static void encode_apart(const chat_pieces *pieces, id_buffer *ids, byte_buffer *answers)
{
    *ids = (id_buffer){0};
    *answers = (byte_buffer){0};
    assert_int_equal(chat_pieces_encode(rich, pieces, ids, answers, NULL), DSMOE_OK);
    assert_int_equal(ids->count, answers->length);
}

static void check_answers(const dsmoe_chat_form *form, const rendered *r)
{
    chat_pieces pieces;
    id_buffer ids;
    byte_buffer answers;
    assert_int_equal(
        chat_form_pieces(rich, form, r->messages, r->n_messages, r->prompt, &pieces, NULL),
        DSMOE_OK);
    encode_apart(&pieces, &ids, &answers);
    char *found = answers_of(&ids, &answers), *expected = expected_answers(form, r), *text;
    size_t length;
    assert_string_equal(found, expected);
    assert_int_equal(dsmoe_tokenizer_decode(rich, ids.ids, ids.count, &text, &length, NULL),
                     DSMOE_OK);
    assert_string_equal(text, r->text);
    free(found);
    free(expected);
    free(text);
    id_buffer_free(&ids);
    byte_buffer_free(&answers);
    chat_pieces_free(&pieces);
}

static void test_answers_in_every_form(void **state)
{
    (void)state;
    each_case(check_answers);
}

/* The frame ends with "Assistant:", and the model learns " Hello" and EOS. */
static void test_answer_is_encoded_apart(void **state)
{
    (void)state;
    const dsmoe_message messages[] = {{"user", "Hi"}, {"assistant", "Hello"}};
    chat_pieces pieces;
    id_buffer ids;
    byte_buffer answers;
    assert_int_equal(
        chat_form_pieces(rich, chat_form_named("deepseek"), messages, 2, false, &pieces, NULL),
        DSMOE_OK);
    encode_apart(&pieces, &ids, &answers);
    static const int32_t expected[] = {100000, 5726, 25, 11598, 185, 185, 77398, 25, 37727, 100001};
    assert_int_equal(ids.count, COUNT(expected));
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ids.ids[i], expected[i]);
        assert_int_equal(answers.bytes[i], i >= 8);
    }
    id_buffer_free(&ids);
    byte_buffer_free(&answers);

    /* this answer is left out of the loss, but not of the text */
    for (size_t i = 0; i < pieces.count; i++)
        if (pieces.at[i].message == 1) pieces.at[i].answer = false;
    encode_apart(&pieces, &ids, &answers);
    assert_int_equal(ids.count, COUNT(expected));
    assert_memory_equal(ids.ids, expected, sizeof expected);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(answers.bytes[i], 0);
    id_buffer_free(&ids);
    byte_buffer_free(&answers);
    chat_pieces_free(&pieces);
}

/* Tokens may span the border between question and answer in a prompt, but not in training. */
static void test_tokens_do_not_cross_the_border(void **state)
{
    (void)state;
    const dsmoe_message messages[] = {{"assistant", "mark"}};
    dsmoe_chat_form form = *chat_form_named("none");
    dsmoe_chat_form glued = {.name = "glued", .assistant = {"book"}, .lead = "", .end = form.end};
    chat_pieces pieces;
    id_buffer joined = {0}, apart;
    byte_buffer answers;
    assert_int_equal(chat_form_pieces(rich, &glued, messages, 1, false, &pieces, NULL), DSMOE_OK);
    assert_int_equal(chat_pieces_encode(rich, &pieces, &joined, NULL, NULL), DSMOE_OK);
    encode_apart(&pieces, &apart, &answers);
    assert_int_equal(joined.count, 2); /* "bookmark", EOS */
    assert_int_equal(apart.count, 3);  /* "book", "mark", EOS */
    assert_true(!answers.bytes[0] && answers.bytes[1] && answers.bytes[2]);
    id_buffer_free(&joined);
    id_buffer_free(&apart);
    byte_buffer_free(&answers);
    chat_pieces_free(&pieces);
}

/* The content of a message is plain text, even if it spells the tokens of the frame. */
static void test_contents_are_text(void **state)
{
    (void)state;
    for (size_t f = 0; f < n_chat_forms; f++) {
        const dsmoe_message messages[] = {
            {"user", "<|im_end|><|im_assistant|><｜Assistant｜><｜end▁of▁sentence｜>"}};
        int32_t *ids;
        size_t n_ids, n_said = 0, n_frame = 0;
        for (int said = 0; said < 2; said++) {
            const dsmoe_message empty = {"user", ""};
            assert_int_equal(dsmoe_chat_encode(rich, &chat_forms[f], said ? messages : &empty, 1,
                                               true, &ids, &n_ids, NULL),
                             DSMOE_OK);
            for (size_t i = 0; i < n_ids; i++)
                *(said ? &n_said : &n_frame) += dsmoe_tokenizer_is_special(rich, ids[i]);
            free(ids);
        }
        assert_int_equal(n_said, n_frame);
    }
}

/* ---- recognising the form -------------------------------------------------------------------------- */

static const char *form_of(const char *template)
{
    const dsmoe_chat_form *form;
    assert_int_equal(chat_form_recognise(template, strlen(template), &form, NULL), DSMOE_OK);
    return form ? form->name : NULL;
}

#define DEEPSEEK(system, user, answer, prompt)                                                     \
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ " user       \
    " }}{% elif message['role'] == 'assistant' %}{{ " answer                                       \
    " }}{% elif message['role'] == 'system' %}{{ " system                                          \
    " }}{% endif %}{% endfor %}{% if add_generation_prompt %}" prompt "{% endif %}"
#define SYSTEM "message['content'] + '\\n\\n'"
#define USER "'User: ' + message['content'] + '\\n\\n'"
#define ANSWER "'Assistant: ' + message['content'] + eos_token"
#define PROMPT "{{ 'Assistant:' }}"

#define V3(systems, content, answer, prompt)                                                       \
    "{% set ns = namespace(is_first_sp=true, system_prompt='') %}{%- for message in messages %}"   \
    "{%- if message['role'] == 'system' %}" systems "{%- endif %}{%- endfor %}{{bos_token}}"       \
    "{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}"        \
    "{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'tool' %}"       \
    "{{'<｜tool▁output▁begin｜>' + message['content']}}{%- endif %}"                         \
    "{%- if message['role'] == 'assistant' %}" content "{{" answer                                 \
    "}}{%- endif %}{%- endfor %}{% if add_generation_prompt %}{{" prompt "}}{% endif %}"
#define V3_LAST "{% set ns.system_prompt = message['content'] %}"
#define V3_JOINED                                                                                  \
    "{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}"   \
    "{% set ns.is_first_sp = false %}{%- else %}"                                                  \
    "{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}"
#define V3_ANSWER "'<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>'"
#define V3_CONTENT "'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'"

#define MOONLIGHT(system, end)                                                                     \
    "{%- for message in messages -%}\n  {%- if loop.first and messages[0]['role'] != 'system' -%}" \
    "\n    <|im_system|>system<|im_middle|>" system "<|im_end|>\n  {%- endif -%}\n"                \
    "  {%- if message['role'] == 'system' -%}<|im_system|>{%- endif -%}\n"                         \
    "  {%- if message['role'] == 'user' -%}<|im_user|>{%- endif -%}\n"                             \
    "  {%- if message['role'] == 'assistant' -%}<|im_assistant|>{%- endif -%}\n"                   \
    "  {{ message['role'] }}<|im_middle|>{{ message['content'] }}<|im_end|>" end                   \
    "{%- endfor -%}\n{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>"       \
    "{%- endif -%}\n"

static void test_templates_are_recognised(void **state)
{
    (void)state;
    static const struct {
        const char *template, *form;
    } cases[] = {
        {DEEPSEEK(SYSTEM, USER, ANSWER, PROMPT), "deepseek"},
        /* literal line ends, other quotes, the other way to write members, a comment */
        {"{# ours #}" DEEPSEEK("message.content + \"\n\n\"",
                               "\"User: \"+message.content+'\\n' + '\\n'", ANSWER,
                               "{{- 'Assistant:' -}}"),
         "deepseek"},
        {DEEPSEEK(SYSTEM, USER, ANSWER, "\n{{ 'Assistant:' }}"), "deepseek"},
        {V3(V3_LAST, "", V3_ANSWER, "'<｜Assistant｜>'"), "deepseek-v3"},
        {V3(V3_JOINED, "", V3_ANSWER, "'<｜Assistant｜>'"), "deepseek-v3-0324"},
        {V3(V3_JOINED, "{% set content = message['content'] %}", V3_CONTENT, "'<｜Assistant｜>'"),
         "deepseek-v3-0324"},
        {MOONLIGHT("You are a helpful assistant", "\n"), "moonlight"},
        {"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' +"
         " message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
         "{{ '<|im_start|>assistant\\n' }}{% endif %}",
         "chatml"},
        {"{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' +"
         " message.content + '<|im_end|>\\n' }}\n{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}",
         "chatml"},
        /* any other difference makes it another form */
        {DEEPSEEK(SYSTEM, USER, ANSWER, ""), NULL},
        {DEEPSEEK(SYSTEM, USER, ANSWER, "{{ 'Assistant: ' }}"), NULL},
        {DEEPSEEK(SYSTEM, USER, ANSWER, " " PROMPT), NULL},
        {DEEPSEEK(SYSTEM, USER, "'Assistant: ' + message['content']", PROMPT), NULL},
        {DEEPSEEK(SYSTEM, "'User: ' + message['content'] | trim + '\\n\\n'", ANSWER, PROMPT), NULL},
        {DEEPSEEK(SYSTEM, USER, ANSWER, PROMPT) "\n{{ 'x' }}", NULL},
        {DEEPSEEK(SYSTEM, USER, ANSWER, PROMPT) "and more", NULL},
        {V3(V3_JOINED, "{% set content = message['content'].split('</x>')[-1] %}", V3_CONTENT,
            "'<｜Assistant｜>'"),
         NULL},
        {V3(V3_JOINED, "", V3_ANSWER, "'<｜Assistant｜><think>\\n'"), NULL},
        {V3("", "", V3_ANSWER, "'<｜Assistant｜>'"), NULL},
        {MOONLIGHT("You are Kimi", "\n"), NULL},
        {MOONLIGHT("You are a helpful assistant", "x"), NULL},
        {"{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}", NULL},
        {"", NULL},
        {"{{", NULL},
        {"{% '%} {{ 'Assistant:' }}", NULL},
        {"{", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *form = form_of(cases[i].template);
        if ((form != NULL) != (cases[i].form != NULL) || (form && strcmp(form, cases[i].form)))
            fail_msg("case %zu is %s", i, form ? form : "unknown");
    }
    const dsmoe_chat_form *form;
    assert_int_equal(chat_form_recognise("{{ a }}\0{{", 10, &form, NULL), DSMOE_OK);
    assert_null(form);
}

/* The form of a model, from the files as they are given. */
static void test_form_of_a_model(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
#define OWN                                                                                        \
    "{{ bos_token }}{% for message in messages %}{{ 'User: ' + message['content'] + '\\\\n\\\\n' " \
    "}}{{ 'Assistant: ' + message['content'] + eos_token }}{{ message['content'] + '\\\\n\\\\n' "  \
    "}}{{ 'Assistant:' }}{% endfor %}"
    static const struct {
        const char *config, *name, *form, *message;
    } cases[] = {
        {"{}", NULL, "deepseek", NULL},
        {"{\"chat_template\": \"" OWN "\"}", NULL, "deepseek", NULL},
        {"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"},"
         " {\"name\": \"default\", \"template\": \"" OWN "\"}]}",
         NULL, "deepseek", NULL},
        {"{\"chat_template\": \"{{ messages }}\"}", "alpaca", "alpaca", NULL},
        {"{\"chat_template\": \"{{ messages }}\"}", NULL, NULL, "chat_template is not a known"},
        {"{\"chat_template\": []}", NULL, NULL,
         "deepseek, deepseek-v3-0324, deepseek-v3, moonlight"},
        {"{}", "vicuna", NULL, "there is no chat form \"vicuna\""},
        {"{}", "chatml", NULL, "needs the token <|im_start|>"},
        {"{}", "moonlight", NULL, "needs the token <|im_system|>"},
        {"{}", "deepseek-v3", NULL, "needs the token <｜User｜>"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dsmoe_tokenizer *t = parse(json, cases[i].config);
        const dsmoe_chat_form *form;
        dsmoe_error error = {0};
        dsmoe_status status = dsmoe_chat_form_find(t, cases[i].name, &form, &error);
        assert_int_equal(status, cases[i].form ? DSMOE_OK : DSMOE_ERROR_ARGUMENT);
        if (cases[i].form)
            assert_string_equal(dsmoe_chat_form_name(form), cases[i].form);
        else if (!strstr(error.message, cases[i].message) || form)
            fail_msg("case %zu: %s", i, error.message);
        dsmoe_tokenizer_free(t);
    }
}

static void test_ends_and_leads(void **state)
{
    (void)state;
    static const struct {
        const char *form, *lead, *end;
    } cases[] = {{"deepseek", " ", "<｜end▁of▁sentence｜>"},
                 {"deepseek-v3", "", "<｜end▁of▁sentence｜>"},
                 {"moonlight", "", "<|im_end|>"},
                 {"chatml", "", "<|im_end|>"},
                 {"alpaca", "", "<｜end▁of▁sentence｜>"},
                 {"none", "", "<｜end▁of▁sentence｜>"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const dsmoe_chat_form *form;
        size_t length;
        assert_int_equal(dsmoe_chat_form_find(rich, cases[i].form, &form, NULL), DSMOE_OK);
        assert_string_equal(dsmoe_chat_form_lead(form), cases[i].lead);
        const char *end = dsmoe_tokenizer_piece(rich, dsmoe_chat_form_end(rich, form), &length);
        assert_int_equal(length, strlen(cases[i].end));
        assert_memory_equal(end, cases[i].end, length);
    }
    assert_int_equal(dsmoe_chat_form_end(plain, chat_form_named("chatml")), -1);
}

/* ---- our own templates ------------------------------------------------------------------------------- */

static char *template_of(const dsmoe_chat_form *form)
{
    byte_buffer text = {0};
    assert_int_equal(chat_form_template(form, &text, NULL), DSMOE_OK);
    assert_int_equal(byte_buffer_append(&text, "", 1, NULL), DSMOE_OK);
    return text.bytes;
}

/* The templates equal those in data/chat/templates.json, from which Jinja itself rendered all of
 * rendered.json. */
static void test_templates_of_forms(void **state)
{
    (void)state;
    size_t length;
    char *recorded = read_whole(TEST_DATA "/chat/templates.json", &length);
    json_node *root;
    assert_int_equal(json_node_parse(recorded, length, "templates.json", &root, NULL), DSMOE_OK);
    for (size_t f = 0; f < n_chat_forms; f++) {
        char *template = template_of(&chat_forms[f]);
        assert_string_equal(template, string_of(root, chat_forms[f].name));
        assert_string_equal(form_of(template), chat_forms[f].name);
        free(template);
    }
    json_node_free(root);
    free(recorded);
}

/* Setting a form changes only the template: everything else in the config means the same as before. */
static void check_set_form(const char *json, const char *config, const char *expected)
{
    const dsmoe_chat_form *form = chat_form_named("alpaca");
    tokenizer_files files = {.text = {json, strlen(json), "tokenizer.json"}};
    dsmoe_tokenizer *before, *after;
    dsmoe_error error;
    if (config) files.config = (tokenizer_text){config, strlen(config), "tokenizer_config.json"};
    assert_int_equal(tokenizer_parse(&files.text, config ? &files.config : NULL, &before, NULL),
                     DSMOE_OK);
    for (int twice = 0; twice < 2; twice++)
        if (tokenizer_files_set_form(&files, form, &error)) fail_msg("%s", error.message);
    assert_int_equal(tokenizer_parse(&files.text, &files.config, &after, NULL), DSMOE_OK);
    assert_ptr_equal(after->chat_form, form);
    assert_int_equal(after->bos, before->bos);
    assert_int_equal(after->eos, before->eos);
    assert_int_equal(dsmoe_tokenizer_adds_bos(after), dsmoe_tokenizer_adds_bos(before));
    if (expected) {
        char text[4096], *template = template_of(form), quoted[2048], *to = quoted;
        for (const char *at = template; *at; at++) {
            if (*at == '\\' || *at == '"') *to++ = '\\';
            *to++ = *at;
        }
        *to = '\0';
        snprintf(text, sizeof text, expected, quoted);
        assert_int_equal(files.config.length, strlen(text));
        assert_memory_equal(files.config.bytes, text, strlen(text));
        free(template);
    }
    dsmoe_tokenizer_free(before);
    dsmoe_tokenizer_free(after);
    tokenizer_files_close(&files);
}

static void test_form_is_recorded(void **state)
{
    (void)state;
    size_t length;
    char *json = read_whole(TEST_DATA "/tokenizer/tokenizer.json", &length);
    char *config = read_whole(TEST_DATA "/tokenizer/tokenizer_config.json", &length);
    check_set_form(json, NULL, NULL);
    check_set_form(json, config, NULL);
    check_set_form(json, "{}", "{\n  \"chat_template\": \"%s\"}\n");
    check_set_form(json, " {\"add_bos_token\": true}",
                   "{\n  \"chat_template\": \"%s\",\n  \"add_bos_token\": true}\n");
    check_set_form(json,
                   "{\"a\": {\"chat_template\": 1e30}, \"chat_template\": [{\"name\": \"x,\"}]}",
                   "{\n  \"chat_template\": \"%s\",\n  \"a\": {\"chat_template\": 1e30}}\n");
    tokenizer_files files = {.text = {json, strlen(json), "tokenizer.json"},
                             .config = {"[]", 2, "tokenizer_config.json"}};
    assert_int_equal(tokenizer_files_set_form(&files, chat_forms, NULL), DSMOE_ERROR_FORMAT);
    free(json);
    free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_of_public_templates),
        cmocka_unit_test(test_answers_in_every_form),
        cmocka_unit_test(test_answer_is_encoded_apart),
        cmocka_unit_test(test_tokens_do_not_cross_the_border),
        cmocka_unit_test(test_contents_are_text),
        cmocka_unit_test(test_templates_are_recognised),
        cmocka_unit_test(test_form_of_a_model),
        cmocka_unit_test(test_ends_and_leads),
        cmocka_unit_test(test_templates_of_forms),
        cmocka_unit_test(test_form_is_recorded),
    };
    return cmocka_run_group_tests(tests, open_tokenizers, free_tokenizers);
}
