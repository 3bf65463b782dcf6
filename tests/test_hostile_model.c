/* test_hostile_model.c - folders from strangers, opened and run. The parsers have tests of their own for
 * what they must refuse (test_safetensors, test_shards, test_config). Here at least one case of each kind
 * goes through dsmoe_model_open, which must say in one line which file is wrong and why. The labels are
 * those of the project's list of hostile inputs. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "made_model.h"
#include "scratch.h"

enum { VOCAB = 61, N_CTX = 40 };

static made_model made; /* its config.json is good */

static int set_up(void **state)
{
    dsmoe_config config = made_config();
    made = made_model_create(&config, "F32", 11);
    return make_directory(state);
}

static int tear_down(void **state)
{
    made_model_free(&made);
    made_model_remove(directory);
    return remove_directory(state);
}

static void write_named(const char *name, const void *bytes, size_t size)
{
    snprintf(path, sizeof path, "%.200s/%.60s", directory, name);
    write_bytes(bytes, size);
}

/* The message must name the file and say what is wrong. */
static void assert_refused(const char *label, dsmoe_status status, const char *file,
                           const char *says)
{
    dsmoe_error error = {0};
    dsmoe_model *model = (dsmoe_model *)path; /* any pointer but NULL */
    dsmoe_status found = dsmoe_model_open(directory, &model, &error);
    if (found != status) fail_msg("%s: status %d, \"%s\"", label, (int)found, error.message);
    assert_null(model);
    assert_int_equal(error.status, status);
    if (!strstr(error.message, file) || !strstr(error.message, says) ||
        strncmp(error.message, directory, strlen(directory)) != 0)
        fail_msg("%s: '%s' does not name %s and say '%s'", label, error.message, file, says);
    for (const char *c = error.message; *c; c++) assert_true((unsigned char)*c >= ' ');
}

/* ---- S01 to S05: model.safetensors ---------------------------------------------------------- */

#define WEIGHTS "model.safetensors"
#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"
#define ONE TENSOR("a", "F32", "[4]", 0, 16)

static void write_weights(uint64_t length, const char *header, size_t size)
{
    char *bytes = calloc(1, 8 + size + 16); /* there are always 16 bytes of data */
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
    memcpy(bytes + 8, header, size);
    write_named(WEIGHTS, bytes, 8 + size + 16);
    free(bytes);
}

static void test_header_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0, 1, 7, 5000, 100000001, (uint64_t)1 << 63, UINT64_MAX};
    made_model_write(&made, directory, false);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        write_weights(lengths[i], "{" ONE "}", strlen("{" ONE "}"));
        assert_refused("S01", DSMOE_ERROR_FORMAT, WEIGHTS, "header");
    }
    write_named(WEIGHTS, "\2", 1);
    assert_refused("S01 one byte", DSMOE_ERROR_FORMAT, WEIGHTS, "too few");
    write_named(WEIGHTS, "", 0);
    assert_refused("S01 no byte", DSMOE_ERROR_FORMAT, WEIGHTS, "empty");
}

static void test_headers(void **state)
{
    (void)state;
    static const struct {
        const char *label, *header, *says;
    } cases[] = {
        {"S02 not UTF-8", "{" TENSOR("a\xff", "F32", "[4]", 0, 16) "}", "0xff"},
        {"S02 not an object", "[" ONE "]", "start with '{'"},
        {"S02 leading space", " {" ONE "}", "start with '{'"},
        {"S02 trailing garbage", "{" ONE "}x", "0x78"},
        {"S02 1e400", "{" TENSOR("a", "F32", "[4]", 0, 1e400) "}", "overflow"},
        {"S02 -0", "{" TENSOR("a", "F32", "[4]", -0, 16) "}", "negative"},
        {"S02 1.0", "{" TENSOR("a", "F32", "[4]", 0, 16.0) "}", "integers"},
        {"S02 2^63", "{" TENSOR("a", "F32", "[4]", 0, 9223372036854775808) "}", "too big"},
        {"S03 overlap", "{" ONE "," TENSOR("b", "F32", "[1]", 4, 8) "}", "inside tensor 'a'"},
        {"S03 hole", "{" TENSOR("a", "F32", "[3]", 4, 16) "}", "from 0 to 4"},
        {"S03 reversed", "{" TENSOR("a", "F32", "[4]", 16, 0) "}", "after its end"},
        {"S03 end", "{" TENSOR("a", "F32", "[5]", 0, 20) "}", "'a' ends at 20"},
        {"S03 trailing bytes", "{" TENSOR("a", "F32", "[3]", 0, 12) "}", "4 bytes after"},
        {"S04 overflow", "{" TENSOR("a", "F32", "[4294967296,4294967296]", 0, 16) "}", "not fit"},
        {"S04 span", "{" TENSOR("a", "F32", "[3]", 0, 16) "}", "need 12"},
        {"S04 []", "{" TENSOR("a", "F32", "[]", 0, 16) "}", "need 4"},
        {"S04 [0,..]", "{" TENSOR("a", "F32", "[0,4]", 0, 16) "}", "need 0"},
        {"S04 dtype", "{" TENSOR("a", "F128", "[1]", 0, 16) "}", "unknown dtype 'F128'"},
        {"S04 F4", "{" TENSOR("a", "F4", "[31]", 0, 16) "}", "unknown dtype 'F4'"},
        {"S05 duplicate", "{" ONE "," ONE "}", "duplicate"},
        {"S05 metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}," ONE "}", "duplicate"},
        {"S05 metadata", "{\"__metadata__\":{\"k\":1}," ONE "}", "must be a string"},
    };
    made_model_write(&made, directory, false);
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_weights(strlen(cases[i].header), cases[i].header, strlen(cases[i].header));
        assert_refused(cases[i].label, DSMOE_ERROR_FORMAT, WEIGHTS, cases[i].says);
    }
    static const char padded[] = "{" ONE "}\0\0";
    write_weights(sizeof padded - 1, padded, sizeof padded - 1);
    assert_refused("S02 NUL padding", DSMOE_ERROR_FORMAT, WEIGHTS, "0x00");
    /* A good file of another model; a scalar and an empty tensor in place of a matrix. */
    static const char *const others[] = {
        "{" ONE "}",
        "{" TENSOR("model.embed_tokens.weight", "F32", "[4]", 0, 16) "}",
        "{" TENSOR("model.embed_tokens.weight", "F64", "[]", 0, 8) "," TENSOR("b", "U8", "[8]", 8,
                                                                              16) "}",
        "{" TENSOR("model.embed_tokens.weight", "F32", "[0,42]", 0, 0) "," ONE "}",
    };
    for (size_t i = 0; i < COUNT(others); i++) {
        write_weights(strlen(others[i]), others[i], strlen(others[i]));
        assert_refused("S04", DSMOE_ERROR_FORMAT, "", "model.embed_tokens.weight");
    }
}

static void test_large_headers(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *header;
    size_t size;
    made_model_write(&made, directory, false);
    for (int many = 0; many < 2; many++) {
        FILE *text = open_memstream(&header, &size);
        assert_non_null(text);
        fputs(many ? "{" ONE : "{\"a\":", text);
        for (int i = 0; i < DEEP; i++)
            if (many)
                fprintf(text, ",\"t%d\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}",
                        i);
            else
                fputc('[', text);
        fputc('}', text);
        assert_int_equal(fclose(text), 0);
        write_weights(size, header, size);
        assert_refused(many ? "S03 100k tensors" : "S02 depth", DSMOE_ERROR_FORMAT, WEIGHTS,
                       many ? "inside tensor" : "nested deeper");
        free(header);
    }
}

/* ---- S06: model.safetensors.index.json ------------------------------------------------------ */

#define INDEX "model.safetensors.index.json"

static void test_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *label, *map;
        dsmoe_status status;
        const char *file, *says;
    } cases[] = {
        {"S06 up", "{\"a\":\"../../etc/passwd\"}", DSMOE_ERROR_FORMAT, INDEX, "plain file name"},
        {"S06 absolute", "{\"a\":\"/etc/passwd\"}", DSMOE_ERROR_FORMAT, INDEX, "plain file name"},
        {"S06 link", "{\"a\":\"link\"}", DSMOE_ERROR_IO, "link", "symbolic link that leads out"},
        {"S06 missing", "{\"a\":\"nowhere\"}", DSMOE_ERROR_IO, "nowhere", "No such file"},
        {"S06 two shards", "{\"a\":\"s\",\"b\":\"t\"}", DSMOE_ERROR_FORMAT, "s", "is also in"},
        {"S06 total_size", "{\"a\":\"s\"},\"metadata\":{\"total_size\":17}", DSMOE_ERROR_FORMAT,
         INDEX, "total_size is 17"},
        {"S06 no object", "[]", DSMOE_ERROR_FORMAT, INDEX, "weight_map must be an object"},
        {"S06 cut off", "{", DSMOE_ERROR_FORMAT, INDEX, "bad JSON"},
        {"S06 good", "{\"a\":\"s\"}", DSMOE_ERROR_FORMAT, "", "model.embed_tokens.weight"},
    };
    static const char *const names[] = {"link", "t", "s", INDEX};
    made_model_write(&made, directory, false);
    write_weights(strlen("{" ONE "}"), "{" ONE "}", strlen("{" ONE "}"));
    char from[320], to[320];
    for (int i = 0; i < 2; i++) { /* two shards with the same tensor */
        snprintf(from, sizeof from, "%.200s/%s", directory, WEIGHTS);
        snprintf(to, sizeof to, "%.200s/%s", directory, i ? "s" : "t");
        assert_int_equal(i ? rename(from, to) : link(from, to), 0);
    }
    snprintf(to, sizeof to, "%.200s/link", directory);
    assert_int_equal(symlink("/dev/null", to), 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[200];
        int length = snprintf(text, sizeof text, "{\"weight_map\":%s}", cases[i].map);
        write_named(INDEX, text, (size_t)length);
        assert_refused(cases[i].label, cases[i].status, cases[i].file, cases[i].says);
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(to, sizeof to, "%.200s/%s", directory, names[i]);
        assert_int_equal(remove(to), 0);
    }
}

/* ---- S07: config.json ------------------------------------------------------------------------ */

static char good_config[2048];

static void write_good(const made_model *model)
{
    made_model_write(model, directory, false);
    snprintf(path, sizeof path, "%.200s/config.json", directory);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    memset(good_config, 0, sizeof good_config);
    assert_true(fread(good_config, 1, sizeof good_config - 1, file) > 0);
    fclose(file);
}

/* Writes the good config.json with one value replaced, or with one more key. */
static void write_changed(const char *key, const char *value)
{
    char name[64], changed[4096];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(good_config, name),
               *rest = at ? at + strcspn(at, ",}") : good_config + 1;
    int before = (int)((at ? at : rest) - good_config);
    int size = snprintf(changed, sizeof changed, "%.*s%s%s%s%s", before, good_config, name, value,
                        at ? "" : ",", rest);
    assert_true(size > 0 && size < (int)sizeof changed);
    write_named("config.json", changed, (size_t)size);
}

static void test_configs(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"n_routed_experts", "2147483648"},
        {"n_routed_experts", "9223372036854775807"},
        {"n_routed_experts", "0"},
        {"n_routed_experts", "-7"},
        {"n_shared_experts", "1290556"}, /* times 13 */
        {"num_experts_per_tok", "8"},    /* of 7 */
        {"num_experts_per_tok", "0"},
        {"moe_layer_freq", "0"},
        {"moe_layer_freq", "-1"},
        {"head_dim", "14.5"},
        {"head_dim", "15"},
        {"head_dim", "\"14\""},
        {"num_attention_heads", "4"}, /* of 42 */
        {"num_attention_heads", "0"},
        {"num_key_value_heads", "2"}, /* of 3 */
        {"num_key_value_heads", "0"},
        {"hidden_size", "-42"},
        {"hidden_size", "42.0"},
        {"hidden_size", "\"42\""},
        {"hidden_size", "null"},
        {"hidden_size", "[42]"},
        {"vocab_size", "true"},
        {"vocab_size", "0"},
        {"num_hidden_layers", "2147483648"},
        {"num_hidden_layers", "null"},
        {"first_k_dense_replace", "-1"},
        {"max_position_embeddings", "0"},
        {"rms_norm_eps", "\"1e-6\""},
        {"rms_norm_eps", "-1"},
        {"rope_theta", "0"},
        {"norm_topk_prob", "1"},
        {"rope_scaling", "{\"type\":\"yarn\",\"factor\":2}"},
        {"rope_scaling", "{\"type\":\"linear\",\"factor\":0}"},
        {"eos_token_id", "61"},
        {"scoring_func", "\"sigmoid\""},
        {"hidden_act", "\"gelu\""},
        {"model_type", "\"llama\""},
    };
    write_good(&made);
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_changed(cases[i].key, cases[i].value);
        assert_refused("S07", DSMOE_ERROR_CONFIG, "/config.json: ", cases[i].key);
    }
    write_changed("rope_theta", "1e400");
    assert_refused("S07", DSMOE_ERROR_FORMAT, "/config.json: ", "overflow");
    write_named("config.json", good_config, strlen(good_config));
    write_named("generation_config.json", "{\"temperature\":-1}", 18);
    assert_refused("S07", DSMOE_ERROR_CONFIG, "/generation_config.json: ", "temperature");
    assert_int_equal(remove(path), 0);
}

/* Possible sizes that the tensors do not have. */
static void test_other_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"n_routed_experts", "16777216"}, {"n_routed_experts", "6"},
        {"num_hidden_layers", "65536"},   {"vocab_size", "16777216"},
        {"intermediate_size", "52"},      {"moe_intermediate_size", "8388608"},
        {"hidden_size", "16777212"},      {"n_shared_experts", "1"},
        {"first_k_dense_replace", "0"},   {"attention_bias", "true"},
    };
    write_good(&made);
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_changed(cases[i].key, cases[i].value);
        assert_refused("S07", DSMOE_ERROR_FORMAT, "", "tensor model.");
    }
}

/* The size of experts may be missing if no layer has experts. */
static void test_no_expert_layer(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    config.first_k_dense_replace = config.num_hidden_layers;
    made_model dense = made_model_create(&config, "F32", 3);
    write_good(&dense);
    char *size = strstr(good_config, "\"moe_intermediate_size\"");
    assert_non_null(size);
    memcpy(size, "\"not_intermediate_size\"", strlen("\"not_intermediate_size\""));
    write_named("config.json", good_config, strlen(good_config));
    dsmoe_model *model = open_model(directory);
    dsmoe_sequence *sequence = make_sequence(model, N_CTX, 0, 1);
    float logits[VOCAB];
    prefill(sequence, (const int32_t[]){1, 2, 3}, 3, logits);
    free_sequence(sequence);
    dsmoe_model_free(model);
    made_model_free(&dense);
    made_model_remove(directory);
}

/* ---- G18: weights that are NaN or infinite --------------------------------------------------- */

/* Opens a model with one number changed. */
static dsmoe_model *open_harmed(const char *name, int64_t element, float value, const char *dtype)
{
    dsmoe_config config = made_config();
    config.attention_bias = true;
    made_model harmed = made_model_create(&config, dtype, 11);
    made_model_find(&harmed, name)->data[element] = value;
    made_model_write(&harmed, directory, false);
    dsmoe_model *model = open_model(directory);
    made_model_free(&harmed);
    return model;
}

static void test_not_finite(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.v_proj.bias",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.mlp.gate.weight",
        "model.layers.2.mlp.shared_experts.up_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    };
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    static const int32_t tokens[] = {9, 8, 7, 6, 50, 60, 1, 2, 3};
    for (size_t i = 0; i < COUNT(names); i++) {
        float logits[VOCAB];
        const int32_t one = 1;
        dsmoe_error error = {0};
        dsmoe_model *model =
            open_harmed(names[i], 3, i % 2 ? INFINITY : NAN, dtypes[i % COUNT(dtypes)]);
        dsmoe_sequence *sequence = make_sequence(model, N_CTX, 4, 2);
        dsmoe_status status = dsmoe_sequence_append(sequence, tokens, 9, logits, &error);
        if (status != DSMOE_ERROR_NONFINITE) fail_msg("%s: status %d", names[i], (int)status);
        if (!strstr(error.message, "token") || !strstr(error.message, "NaN"))
            fail_msg("%s: '%s' says little", names[i], error.message);
        assert_int_equal(dsmoe_sequence_length(sequence), 0);
        assert_int_equal(dsmoe_sequence_append(sequence, &one, 1, logits, &error),
                         DSMOE_ERROR_NONFINITE);
        assert_int_equal(dsmoe_sequence_length(sequence), 0);
        free_sequence(sequence);
        dsmoe_model_free(model);
    }
    made_model_remove(directory);
}

/* One token of the vocabulary has a NaN. Texts without that token work, before and after it. */
static void test_not_finite_token(void **state)
{
    (void)state;
    static const int32_t spoilt[] = {7, 9, 5, 8};
    float before[2][VOCAB], after[VOCAB];
    dsmoe_error error = {0};
    dsmoe_model *model = open_harmed("model.embed_tokens.weight", 5 * 42, NAN, "F32");
    for (int64_t n_batch = 1; n_batch <= 4; n_batch++) { /* rows before it may be done already */
        dsmoe_sequence *a = make_sequence(model, N_CTX, n_batch, 1);
        dsmoe_sequence *b = make_sequence(model, N_CTX, n_batch, 1);
        for (int i = 0; i < 2; i++) {
            prefill(i ? b : a, (const int32_t[]){1, 2, 3, 4}, 4, NULL);
            decode(i ? b : a, 6, before[i]);
            rewind_to(i ? b : a, 4);
        }
        assert_int_equal(dsmoe_sequence_append(a, spoilt, 4, after, &error), DSMOE_ERROR_NONFINITE);
        assert_int_equal(dsmoe_sequence_append(b, spoilt, 4, NULL, &error), DSMOE_ERROR_NONFINITE);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(dsmoe_sequence_length(i ? b : a), 4);
            decode(i ? b : a, 6, after);
            assert_same_bits(before[i], after, VOCAB, "after a token that is not finite");
        }
        free_sequence(a);
        free_sequence(b);
    }
    dsmoe_model_free(model);
    made_model_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_lengths),   cmocka_unit_test(test_headers),
        cmocka_unit_test(test_large_headers),    cmocka_unit_test(test_indexes),
        cmocka_unit_test(test_configs),          cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_no_expert_layer),  cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_not_finite_token),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
