/* serve_fixture.c - a server with a small quantised model, and a client for it. */
#include "serve_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "scratch.h"

static dsmoe_model *model;
static dsmoe_tokenizer *tokenizer;
static dsmoe_engine_options with_adapters;

static void must(dsmoe_status status, const dsmoe_error *error)
{
    if (status != DSMOE_OK) fail_msg("%s", error->message);
}

int make_served_model(void **state)
{
    dsmoe_error error;
    dsmoe_config config;
    make_directory(state);
    must(dsmoe_config_preset("tiny", &config, &error), &error);
    config.hidden_size = 64;
    config.intermediate_size = 96;
    config.moe_intermediate_size = 32;
    config.num_hidden_layers = 3;
    config.num_attention_heads = config.num_key_value_heads = 2;
    config.n_routed_experts = 8;
    config.num_experts_per_tok = 2;
    config.n_shared_experts = 1;
    config.first_k_dense_replace = 1;
    config.vocab_size = 268; /* one id more than the tokenizer has tokens */
    config.max_position_embeddings = 1024;
    config.bos_token_id = 265;
    config.eos_token_id = 266;
    config.initializer_range = 0.2; /* so that the texts differ */
    snprintf(path, sizeof path, "%s/model.gguf", directory);
    const dsmoe_convert_options options = {.type = "q8_0"};
    must(dsmoe_model_init_gguf(path, &config, TEST_DATA "/text_cli", 7, &options, &error), &error);
    must(dsmoe_model_open(path, &model, &error), &error);
    must(dsmoe_tokenizer_open(path, &tokenizer, &error), &error);
    return 0;
}

int remove_served_model(void **state)
{
    dsmoe_tokenizer_free(tokenizer);
    dsmoe_model_free(model);
    return remove_directory(state);
}

const dsmoe_model *served_model(void) { return model; }

void serve_adapters(const dsmoe_adapter *const *adapters, int n)
{
    with_adapters = (dsmoe_engine_options){.adapters = adapters, .n_adapters = n};
}

server_options served_options(void)
{
    server_options o = server_options_default();
    o.port = 0;
    o.model_path = path;
    o.alias = "model.gguf";
    o.engine = (dsmoe_engine_options){
        .n_ctx = 256, .n_sequences = 4, .n_batch = 64, .n_threads = 2, .kv_type = DSMOE_F16};
    return o;
}

server *start_server(const server_options *options)
{
    server *s;
    dsmoe_error error;
    must(server_start(options, &s, &error), &error);
    server_model served = {
        .model = model,
        .tokenizer = tokenizer,
        .sampling = dsmoe_sampler_options_default(),
        .adapters = with_adapters,
    };
    if (tokenizer) must(dsmoe_chat_form_find(tokenizer, NULL, &served.chat_form, &error), &error);
    /* Byte 0 is text for the model but would end C strings. It may still occur among likely tokens that
     * are not chosen. */
    static const dsmoe_logit_bias no_nul = {0, DSMOE_LOGIT_BIAS_BAN};
    served.sampling.logit_bias = &no_nul;
    served.sampling.n_logit_bias = 1;
    must(server_give_model(s, &served, &error), &error);
    return s;
}

json_node *parse_json(const char *text)
{
    json_node *node;
    dsmoe_error error;
    if (json_node_parse_nul(text, strlen(text), "answer", &node, &error))
        fail_msg("%s\n%s", error.message, text);
    return node;
}

json_node *ask(server *s, int status, const char *method, const char *path_asked, const char *body)
{
    http_client client;
    int got = client_fetch(&client, server_url(s), method, path_asked, "", body);
    if (got != status)
        fail_msg("%s %s: %d instead of %d (%s)\n%s\n%s", method, path_asked, got, status,
                 client.problem, body ? body : "", client.body ? client.body : "");
    json_node *node = parse_json(client.body);
    client_close(&client);
    return node;
}

/* ---- values ------------------------------------------------------------------------------------ */

static const json_node *find(const json_node *node, const char *where)
{
    char key[64];
    while (node && *where) {
        size_t length = strcspn(where, ".");
        assert_true(length < sizeof key);
        snprintf(key, sizeof key, "%.*s", (int)length, where);
        where += length + (where[length] == '.');
        if (json_node_kind(node) == JSON_KIND_ARRAY) {
            size_t i = (size_t)atoi(key);
            node = i < json_node_count(node) ? json_node_item(node, i) : NULL;
        } else if (json_node_kind(node) == JSON_KIND_OBJECT) {
            node = json_node_member(node, key);
        } else {
            node = NULL;
        }
    }
    return node;
}

const json_node *value_at(const json_node *root, const char *where)
{
    const json_node *node = find(root, where);
    if (!node) fail_msg("there is no %s", where);
    return node;
}

bool has_value(const json_node *root, const char *where) { return find(root, where) != NULL; }

int64_t integer_at(const json_node *root, const char *where)
{
    const json_node *node = value_at(root, where);
    if (json_node_kind(node) != JSON_KIND_INTEGER) fail_msg("%s is no integer", where);
    return json_node_integer(node);
}

double number_at(const json_node *root, const char *where)
{
    return json_node_number(value_at(root, where));
}

const char *string_at(const json_node *root, const char *where)
{
    const json_node *node = value_at(root, where);
    if (json_node_kind(node) != JSON_KIND_STRING) fail_msg("%s is no string", where);
    return json_node_string(node, NULL);
}

bool is_null_at(const json_node *root, const char *where)
{
    return json_node_kind(value_at(root, where)) == JSON_KIND_NULL;
}

/* ---- waiting ----------------------------------------------------------------------------------- */

void sleep_seconds(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

void wait_until_idle(server *s, double seconds)
{
    double end = clock_seconds() + seconds;
    for (;;) {
        json_node *slots = ask(s, 200, "GET", "/slots", NULL);
        size_t n_idle = 0, n = json_node_count(slots);
        for (size_t i = 0; i < n; i++)
            n_idle += !strcmp(string_at(json_node_item(slots, i), "state"), "idle");
        json_node_free(slots);
        if (n_idle == n && metric(s, "dsmoe_requests_running") == 0 &&
            metric(s, "dsmoe_requests_waiting") == 0)
            return;
        if (clock_seconds() > end) fail_msg("slots are busy after %g seconds", seconds);
        sleep_seconds(0.01);
    }
}

double metric(server *s, const char *name)
{
    http_client client;
    assert_int_equal(client_fetch(&client, server_url(s), "GET", "/metrics", "", NULL), 200);
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr(client.body, line);
    if (!found) fail_msg("no metric %s", name);
    double value = atof(found + strlen(line));
    client_close(&client);
    return value;
}
