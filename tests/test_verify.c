/* test_verify.c - the reference layer files pass, a changed number is reported under its name, and a
 * broken file is an error that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dsmoe.h"
#include "formats/safetensors.h"
#include "verify/compare.h"
#include "image.h"
#include "scratch.h"

static const char *const layers[] = {
    "batch_aux", "deepseek_moe", "fine_grained", "gshard_top2",
    "norm_topk", "one_token",    "starved",      "switch_top1",
};
enum { N_LAYERS = sizeof layers / sizeof *layers };

/* ---- a file to try ------------------------------------------------------------------------- */

static void layer_path(const char *layer, char text[512])
{
    snprintf(text, 512, TEST_DATA "/layer/%s.safetensors", layer);
}

/* The file of a layer, to be changed. */
static file_image load_layer(const char *layer)
{
    char source[512];
    layer_path(layer, source);
    return image_load(source);
}

/* ---- running it ---------------------------------------------------------------------------- */

typedef struct verify_outcome {
    dsmoe_status status;
    dsmoe_error error;
    bool all_ok;
    int n_checks;
    double sum;                       /* of all measured values */
    char names[16384], failed[16384]; /* each name is followed by a semicolon */
} verify_outcome;

static void collect(void *context, const dsmoe_check *check)
{
    verify_outcome *outcome = context;
    assert_true(strlen(outcome->names) + strlen(check->name) + 2 < sizeof outcome->names);
    strcat(strcat(outcome->names, check->name), ";");
    if (!check->ok) strcat(strcat(outcome->failed, check->name), ";");
    outcome->n_checks++;
    outcome->sum += check->max_abs + check->max_rel;
}

static verify_outcome *verify(const char *name, int n_threads)
{
    verify_outcome *outcome = calloc(1, sizeof *outcome);
    assert_non_null(outcome);
    outcome->all_ok = true;
    outcome->status = dsmoe_verify_layer_file(name, 1e-5, n_threads, collect, outcome,
                                              &outcome->all_ok, &outcome->error);
    return outcome;
}

/* Checks the image; exactly the names in `failed` must fail ("" for none). */
static void assert_fails(file_image *image, const char *failed)
{
    write_bytes(image->bytes, image->size);
    free(image->bytes);
    verify_outcome *outcome = verify(path, 2);
    if (outcome->status != DSMOE_OK) fail_msg("%s", outcome->error.message);
    assert_string_equal(outcome->failed, failed);
    assert_int_equal(outcome->all_ok, *failed == '\0');
    free(outcome);
}

static void assert_error(const char *name, dsmoe_status status, const char *says)
{
    verify_outcome *outcome = verify(name, 1);
    if (outcome->status == DSMOE_OK) fail_msg("accepted: %s", says);
    if (strncmp(outcome->error.message, name, strlen(name)) != 0 ||
        !strstr(outcome->error.message + strlen(name), says))
        fail_msg("'%s' does not say '%s'", outcome->error.message, says);
    assert_int_equal(outcome->status, status);
    assert_false(outcome->all_ok);
    assert_int_equal(outcome->n_checks, 0);
    free(outcome);
    assert_int_equal(dsmoe_verify_layer_file(name, 1e-5, 1, NULL, NULL, NULL, NULL), status);
}

static void assert_image_error(file_image *image, dsmoe_status status, const char *says)
{
    write_bytes(image->bytes, image->size);
    free(image->bytes);
    assert_error(path, status, says);
}

/* ---- good files ---------------------------------------------------------------------------- */

static void test_reference_files(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYERS; i++) {
        char name[512];
        layer_path(layers[i], name);
        verify_outcome *one = verify(name, 1), *two = verify(name, 2);
        if (one->status != DSMOE_OK) fail_msg("%s", one->error.message);
        if (!one->all_ok) fail_msg("%s: %s", name, one->failed);
        assert_int_equal(two->status, DSMOE_OK);
        assert_true(two->all_ok);
        assert_string_equal(one->names, two->names);
        assert_true(one->sum == two->sum); /* the same bits for any number of threads */
        free(one);
        free(two);
    }
}

static void test_order(void **state)
{
    (void)state;
    char name[512];
    layer_path("norm_topk", name);
    verify_outcome *outcome = verify(name, 1);
    const char *begins = "infer y;scores;topk_idx;topk_weight;train routing;train y;aux_loss;"
                         "device_loss.1;device_loss.2;device_loss.4;dx;grad.gate.weight;"
                         "grad.experts.0.gate_proj.weight;grad.experts.0.up_proj.weight;"
                         "grad.experts.0.down_proj.weight;grad.experts.1.gate_proj.weight;";
    const char *ends = "grad.experts.11.down_proj.weight;grad.shared_experts.gate_proj.weight;"
                       "grad.shared_experts.up_proj.weight;grad.shared_experts.down_proj.weight;";
    assert_int_equal(strncmp(outcome->names, begins, strlen(begins)), 0);
    assert_string_equal(outcome->names + strlen(outcome->names) - strlen(ends), ends);
    assert_int_equal(outcome->n_checks, 11 + 1 + 3 * 12 + 3);
    free(outcome);
}

/* ---- wrong numbers ------------------------------------------------------------------------- */

static void test_changed_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *failed;
    } cases[] = {
        {"y", "infer y;train y;"},
        {"scores", "scores;"},
        {"topk_weight", "topk_weight;"},
        {"aux_loss", "aux_loss;"},
        {"device_loss.2", "device_loss.2;"},
        {"dx", "dx;"},
        {"grad.gate.weight", "grad.gate.weight;"},
        {"grad.experts.7.up_proj.weight", "grad.experts.7.up_proj.weight;"},
        {"grad.shared_experts.down_proj.weight", "grad.shared_experts.down_proj.weight;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_image image = load_layer("batch_aux");
        image_add(&image, cases[i].tensor, 0, 1e-3f);
        assert_fails(&image, cases[i].failed);
        image = load_layer("batch_aux");
        image_add(&image, cases[i].tensor, 0, NAN); /* an expected NaN is not ok, but no error */
        assert_fails(&image, cases[i].failed);
        image = load_layer("batch_aux");
        image_add(&image, cases[i].tensor, 0, INFINITY);
        assert_fails(&image, cases[i].failed);
    }
}

/* batch_aux has three experts per token. */
static void test_changed_routing(void **state)
{
    (void)state;
    file_image image = load_layer("batch_aux");
    int64_t experts[3];
    float gates[3];
    char *topk_idx = image_tensor(&image, "topk_idx") + 5 * sizeof experts;
    char *topk_weight = image_tensor(&image, "topk_weight") + 5 * sizeof gates;
    memcpy(experts, topk_idx, sizeof experts);
    memcpy(gates, topk_weight, sizeof gates);
    memcpy(topk_idx, (int64_t[]){experts[2], experts[0], experts[1]}, sizeof experts);
    memcpy(topk_weight, (float[]){gates[2], gates[0], gates[1]}, sizeof gates);
    assert_fails(&image, ""); /* any order is right */

    static const int64_t wrong[] = {-1, 12, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        image = load_layer("batch_aux");
        memcpy(image_tensor(&image, "topk_idx"), &wrong[i], sizeof *wrong);
        assert_fails(&image, "topk_idx;topk_weight;");
    }
    image = load_layer("batch_aux");
    topk_idx = image_tensor(&image, "topk_idx");
    memcpy(topk_idx, topk_idx + sizeof *experts, sizeof *experts); /* one expert twice */
    assert_fails(&image, "topk_idx;topk_weight;");
}

/* Five tokens with three experts each leave most of the 64 experts without a token. */
static void test_starved_experts(void **state)
{
    (void)state;
    file_image image = load_layer("starved");
    char name[64], failed[80];
    for (int expert = 0;; expert++) {
        float first;
        assert_true(expert < 64);
        snprintf(name, sizeof name, "grad.experts.%d.up_proj.weight", expert);
        memcpy(&first, image_tensor(&image, name), sizeof first);
        if (first == 0) break;
    }
    snprintf(failed, sizeof failed, "%s;", name);
    image_add(&image, name, 0, 1e-30f);
    assert_fails(&image, failed);
}

static void test_difference(void **state)
{
    (void)state;
    static const struct {
        double ours[2], expected[2], max_abs, max_rel;
        bool ok;
    } cases[] = {
        {{1, 2}, {1, 2}, 0, 0, true},
        {{1.5, 4}, {1, 4}, 0.5, 0.125, false},
        {{1 + 0x1p-20, -4}, {1, -4}, 0x1p-20, 0x1p-22, true},
        {{0, -0.0}, {0, 0}, 0, 0, true},
        {{0, 1e-30}, {0, 0}, 1e-30, INFINITY, false},
        {{NAN, 1}, {1, 1}, NAN, NAN, false},
        {{1, 1}, {1, NAN}, NAN, NAN, false},
        {{NAN, 1}, {NAN, 1}, NAN, NAN, false},
        {{INFINITY, 1}, {1, 1}, INFINITY, INFINITY, false},
        {{1, 1}, {1, INFINITY}, INFINITY, NAN, false},
        {{INFINITY, 1}, {INFINITY, 1}, NAN, NAN, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        difference sum = {0};
        for (int j = 0; j < 2; j++) difference_add(&sum, cases[i].ours[j], cases[i].expected[j]);
        dsmoe_check check = difference_check(&sum, "name", 1e-5);
        assert_string_equal(check.name, "name");
        assert_true(isnan(cases[i].max_abs) ? isnan(check.max_abs)
                                            : check.max_abs == cases[i].max_abs);
        assert_true(isnan(cases[i].max_rel) ? isnan(check.max_rel)
                                            : check.max_rel == cases[i].max_rel);
        assert_int_equal(check.ok, cases[i].ok);
    }
}

/* ---- the same file written differently ----------------------------------------------------- */

/* What happens to a tensor when it is written to a new file. */
typedef enum tensor_fate { KEEP, DROP, AS_I32, AS_SCALAR, AS_F64, AS_ROWS } tensor_fate;
typedef tensor_fate decide_fn(const safetensors_tensor *tensor);

static void print_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", file);
        else
            fprintf(file, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

static const char *put_data(FILE *data, const safetensors_tensor *tensor, tensor_fate fate)
{
    for (size_t i = 0; i < tensor->n_elements && (fate == AS_I32 || fate == AS_F64); i++) {
        int64_t wide;
        float narrow;
        if (fate == AS_I32 && safetensors_tensor_read_i64(tensor, i, 1, &wide))
            fwrite(&(int32_t){(int32_t)wide}, sizeof(int32_t), 1, data);
        if (fate == AS_F64 && safetensors_tensor_read_f32(tensor, i, 1, &narrow))
            fwrite(&(double){narrow}, sizeof(double), 1, data);
    }
    if (fate == AS_I32) return "I32";
    if (fate == AS_F64) return "F64";
    fwrite(tensor->data, 1, tensor->size, data);
    return safetensors_dtype_name(tensor->dtype);
}

static void put_shape(FILE *header, const safetensors_tensor *tensor, tensor_fate fate)
{
    int n_dims = fate == AS_SCALAR ? 0 : tensor->n_dims, i = 0;
    fprintf(header, "\"shape\":[");
    if (fate == AS_ROWS) { /* [b,s,h] as [b*s,h] */
        fprintf(header, "%lld,", (long long)(tensor->shape[0] * tensor->shape[1]));
        i = 2;
    }
    for (; i < n_dims; i++)
        fprintf(header, "%lld%s", (long long)tensor->shape[i], i + 1 < n_dims ? "," : "");
    fprintf(header, "]");
}

/* Writes the reference file of `layer` again, with a header of odd length. */
static void rewrite(const char *layer, decide_fn *decide)
{
    char source[512], *header, *data;
    size_t header_size, data_size;
    safetensors *file;
    layer_path(layer, source);
    assert_int_equal(safetensors_open(source, &file, NULL), DSMOE_OK);
    FILE *header_stream = open_memstream(&header, &header_size);
    FILE *data_stream = open_memstream(&data, &data_size);
    assert_true(header_stream && data_stream);
    fputs("{\"__metadata__\":{\"config\":\"", header_stream);
    print_escaped(header_stream, safetensors_metadata(file, "config"));
    fputs("\"}", header_stream);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *tensor = safetensors_at(file, i);
        tensor_fate fate = decide(tensor);
        if (fate == DROP) continue;
        long begin = ftell(data_stream);
        const char *dtype = put_data(data_stream, tensor, fate);
        fprintf(header_stream, ",\"%s\":{\"dtype\":\"%s\",", tensor->name, dtype);
        put_shape(header_stream, tensor, fate);
        fprintf(header_stream, ",\"data_offsets\":[%ld,%ld]}", begin, ftell(data_stream));
    }
    fputc('}', header_stream);
    if (ftell(header_stream) % 2 == 0) fputc(' ', header_stream);
    assert_int_equal(fclose(header_stream) | fclose(data_stream), 0);
    safetensors_close(file);

    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int i = 0; i < 8; i++) fputc((int)(header_size >> (8 * i) & 255), out);
    fwrite(header, 1, header_size, out);
    fwrite(data, 1, data_size, out);
    assert_int_equal(fclose(out), 0);
    free(header);
    free(data);
}

static tensor_fate keep_all(const safetensors_tensor *tensor)
{
    (void)tensor;
    return KEEP;
}

static tensor_fate other_forms(const safetensors_tensor *tensor)
{
    if (!strcmp(tensor->name, "topk_idx")) return AS_I32;
    if (!strcmp(tensor->name, "aux_loss") || !strncmp(tensor->name, "device_loss.", 12))
        return AS_SCALAR;
    if (!strcmp(tensor->name, "y") || !strcmp(tensor->name, "dx")) return AS_ROWS;
    if (!strcmp(tensor->name, "x") || tensor->dtype != SAFETENSORS_F32) return KEEP;
    return AS_F64;
}

static tensor_fate only_inputs(const safetensors_tensor *tensor)
{
    bool input = !strcmp(tensor->name, "x") || !strncmp(tensor->name, "experts.", 8) ||
                 !strncmp(tensor->name, "shared_experts.", 15) ||
                 !strcmp(tensor->name, "gate.weight");
    return input ? KEEP : DROP;
}

static tensor_fate no_dy(const safetensors_tensor *tensor)
{
    return !strcmp(tensor->name, "dy") ? DROP : KEEP;
}

static tensor_fate no_routing(const safetensors_tensor *tensor)
{
    return !strncmp(tensor->name, "topk_", 5) || !strcmp(tensor->name, "scores") ? DROP : KEEP;
}

static tensor_fate no_topk_idx(const safetensors_tensor *tensor)
{
    return !strcmp(tensor->name, "topk_idx") ? DROP : KEEP;
}

static void test_other_forms(void **state)
{
    (void)state;
    static const struct {
        decide_fn *decide;
        int n_checks;
        const char *begins;
    } cases[] = {
        {keep_all, 51, "infer y;scores;topk_idx;topk_weight;train routing;train y;aux_loss;"},
        {other_forms, 51, "infer y;scores;topk_idx;topk_weight;train routing;train y;aux_loss;"},
        {only_inputs, 1, "train routing;"},
        {no_dy, 10, "infer y;scores;topk_idx;topk_weight;train routing;train y;aux_loss;"},
        {no_routing, 48, "infer y;train routing;train y;aux_loss;device_loss.1;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rewrite("batch_aux", cases[i].decide);
        verify_outcome *outcome = verify(path, 2);
        if (outcome->status != DSMOE_OK) fail_msg("%s", outcome->error.message);
        assert_string_equal(outcome->failed, "");
        assert_true(outcome->all_ok);
        assert_int_equal(outcome->n_checks, cases[i].n_checks);
        assert_int_equal(strncmp(outcome->names, cases[i].begins, strlen(cases[i].begins)), 0);
        free(outcome);
    }
    rewrite("batch_aux", no_topk_idx);
    assert_error(path, DSMOE_ERROR_FORMAT, "'topk_weight'");
}

static void test_tolerated_headers(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"\"device_loss.4\"", "\"sevice_loss.4\""},             /* not a check: ignored */
        {"\\\"vocab_size\\\": 128", "\\\"vocab_size\\\":  []"}, /* not a key of the layer */
        {"\\\"scoring_func\\\"", "\\\"scoring_Func\\\""},       /* missing: public defaults */
        {"\\\"norm_topk_prob\\\"", "\\\"norm_topk_Prob\\\""},
        {"\\\"aux_loss_alpha\\\"", "\\\"aux_loss_Alpha\\\""},
        {"\\\"hidden_act\\\"", "\\\"hidden_Act\\\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_image image = load_layer("batch_aux");
        image_replace(&image, cases[i].from, cases[i].to);
        assert_fails(&image, "");
    }
}

/* ---- broken files -------------------------------------------------------------------------- */

static void test_truncated(void **state)
{
    (void)state;
    file_image image = load_layer("switch_top1");
    for (size_t size = 1; size < image.size; size += size < 64 ? 1 : 997) {
        write_bytes(image.bytes, size);
        assert_error(path, DSMOE_ERROR_FORMAT, "");
    }
    write_bytes(image.bytes, image.size - 1);
    assert_error(path, DSMOE_ERROR_FORMAT, "");
    write_bytes(image.bytes, 0);
    assert_error(path, DSMOE_ERROR_FORMAT, "empty");
    free(image.bytes);
}

/* One change each in the header of batch_aux, which has 12 experts, 2 shared ones, 3 per token, and
 * hidden_size 48. */
static void test_broken_headers(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        dsmoe_status status;
        const char *says;
    } cases[] = {
        {"{\"config\":", "{\"konfig\":", DSMOE_ERROR_FORMAT, "'config'"},
        {"\"config\":\"{", "\"config\":\"[", DSMOE_ERROR_FORMAT, "config: bad JSON"},
        {"hidden_size\\\": 48", "hidden_size\\\": []", DSMOE_ERROR_CONFIG,
         "hidden_size must be an integer, not an array"},
        {"hidden_size\\\": 48", "hidden_Size\\\": 48", DSMOE_ERROR_CONFIG,
         "hidden_size is missing"},
        {"hidden_size\\\": 48", "hidden_size\\\": -8", DSMOE_ERROR_CONFIG, "hidden_size"},
        {"hidden_size\\\": 48", "hidden_size\\\": 47", DSMOE_ERROR_FORMAT, "'x' has shape"},
        {"n_routed_experts\\\": 12", "n_routed_experts\\\": -2", DSMOE_ERROR_CONFIG,
         "n_routed_experts"},
        {"n_routed_experts\\\": 12", "n_routed_experts\\\": 13", DSMOE_ERROR_FORMAT, "'scores'"},
        {"n_shared_experts\\\": 2", "n_shared_experts\\\": 0", DSMOE_ERROR_FORMAT,
         "shared_experts.down_proj.weight' belongs to no parameter"},
        {"n_shared_experts\\\": 2", "n_shared_experts\\\": 1", DSMOE_ERROR_FORMAT,
         "'shared_experts.gate_proj.weight' has shape [40,48], where [20,48]"},
        {"num_experts_per_tok\\\": 3", "num_experts_per_tok\\\": 0", DSMOE_ERROR_CONFIG,
         "num_experts_per_tok"},
        {"num_experts_per_tok\\\": 3", "num_experts_per_tok\\\": 4", DSMOE_ERROR_FORMAT, "'topk_"},
        {"moe_intermediate_size\\\": 20", "moe_intermediate_size\\\": 21", DSMOE_ERROR_FORMAT,
         "'experts.0.gate_proj.weight' has shape"},
        {"norm_topk_prob\\\": false", "norm_topk_prob\\\": 12345", DSMOE_ERROR_CONFIG,
         "norm_topk_prob must be a boolean"},
        {"seq_aux\\\": false", "seq_aux\\\":  null", DSMOE_ERROR_CONFIG, "seq_aux"},
        {"aux_loss_alpha\\\": 0.001", "aux_loss_alpha\\\": 1e300", DSMOE_ERROR_CONFIG,
         "aux_loss_alpha"},
        {"aux_loss_alpha\\\": 0.001", "aux_loss_alpha\\\": false", DSMOE_ERROR_CONFIG,
         "aux_loss_alpha must be a number"},
        {"softmax", "sigmoid", DSMOE_ERROR_CONFIG, "scoring_func"},
        {"silu", "gelu", DSMOE_ERROR_CONFIG, "hidden_act"},
        {"\"x\":{", "\"X\":{", DSMOE_ERROR_FORMAT, "'x' is missing"},
        {"\"x\":{\"dtype\":\"F32\"", "\"x\":{\"dtype\":\"I32\"", DSMOE_ERROR_FORMAT,
         "'x' has dtype I32"},
        {"\"x\":{\"dtype\":\"F32\",\"shape\":[3,9,48]",
         "\"x\":{\"dtype\":\"F32\",\"shape\":[ 27,48]", DSMOE_ERROR_FORMAT,
         "'x' has shape [27,48]"},
        {"\"y\":{\"dtype\":\"F32\",\"shape\":[3,9,48]",
         "\"y\":{\"dtype\":\"F32\",\"shape\":[3,48,9]", DSMOE_ERROR_FORMAT,
         "'y' has shape [3,48,9], where [27,48]"},
        {"\"topk_idx\":{\"dtype\":\"I64\"", "\"topk_idx\":{\"dtype\":\"F64\"", DSMOE_ERROR_FORMAT,
         "'topk_idx' has dtype F64"},
        {"\"gate.weight\":", "\"Gate.weight\":", DSMOE_ERROR_FORMAT, "'gate.weight' is missing"},
        {"\"experts.4.up_proj.weight\":", "\"Experts.4.up_proj.weight\":", DSMOE_ERROR_FORMAT,
         "'experts.4.up_proj.weight' is missing"},
        {"\"shared_experts.up_proj.weight\":", "\"Shared_experts.up_proj.weight\":",
         DSMOE_ERROR_FORMAT, "'shared_experts.up_proj.weight' is missing"},
        {"\"gate.weight\":{\"dtype\":\"F32\",\"shape\":[12,48]",
         "\"gate.weight\":{\"dtype\":\"F32\",\"shape\":[48,12]", DSMOE_ERROR_FORMAT,
         "'gate.weight' has shape [48,12], where [12,48] is expected"},
        {"\"grad.gate.weight\":{\"dtype\":\"F32\",\"shape\":[12,48]",
         "\"grad.gate.weight\":{\"dtype\":\"F32\",\"shape\":[48,12]", DSMOE_ERROR_FORMAT,
         "'grad.gate.weight' has shape"},
        {"\"grad.experts.11.up_proj", "\"grad.experts.12.up_proj", DSMOE_ERROR_FORMAT,
         "'grad.experts.12.up_proj.weight' belongs to no parameter"},
        {"\"grad.experts.11.up_proj", "\"grad.experts.011up_proj", DSMOE_ERROR_FORMAT,
         "belongs to no parameter"},
        {"\"grad.gate.weight", "\"grad.gate.height", DSMOE_ERROR_FORMAT, "'grad.gate.height'"},
        {"\"device_loss.4\"", "\"device_loss.5\"", DSMOE_ERROR_FORMAT, "'device_loss.5'"},
        {"\"device_loss.4\"", "\"device_loss.0\"", DSMOE_ERROR_FORMAT, "'device_loss.0'"},
        {"\"device_loss.4\"", "\"device_loss.x\"", DSMOE_ERROR_FORMAT, "'device_loss.x'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_image image = load_layer("batch_aux");
        image_replace(&image, cases[i].from, cases[i].to);
        assert_image_error(&image, cases[i].status, cases[i].says);
    }
}

static void test_not_finite(void **state)
{
    (void)state;
    static const char *const inputs[] = {"x", "dy", "gate.weight", "experts.11.down_proj.weight",
                                         "shared_experts.gate_proj.weight"};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        file_image image = load_layer("batch_aux");
        image_add(&image, inputs[i], 3, NAN);
        assert_image_error(&image, DSMOE_ERROR_NONFINITE, inputs[i]);
        image = load_layer("batch_aux");
        image_add(&image, inputs[i], 0, -INFINITY);
        assert_image_error(&image, DSMOE_ERROR_NONFINITE, inputs[i]);
    }
}

static void cut_short(void *context, const dsmoe_check *check)
{
    (void)check;
    assert_int_equal(truncate(context, 1000), 0);
}

/* A file that shrinks during the check is neither right nor wrong. */
static void test_lost(void **state)
{
    (void)state;
    bool all_ok = true;
    dsmoe_error error = {0};
    file_image image = load_layer("batch_aux");
    write_bytes(image.bytes, image.size);
    free(image.bytes);
    assert_int_equal(dsmoe_verify_layer_file(path, 1e-5, 1, cut_short, path, &all_ok, &error),
                     DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "the file changed"));
    assert_false(all_ok);
}

static void test_arguments(void **state)
{
    (void)state;
    char name[512];
    bool all_ok = true;
    dsmoe_error error = {0};
    layer_path("switch_top1", name);
    assert_error("/nonexistent/layer.safetensors", DSMOE_ERROR_IO, "No such file");
    assert_error(directory, DSMOE_ERROR_IO, "directory");
    assert_int_equal(dsmoe_verify_layer_file(NULL, 1e-5, 1, NULL, NULL, &all_ok, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_verify_layer_file(name, NAN, 1, NULL, NULL, &all_ok, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_verify_layer_file(name, -1, 1, NULL, NULL, &all_ok, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_verify_layer_file(name, 1e-5, 0, NULL, NULL, &all_ok, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_false(all_ok);
    /* The callback is optional. */
    assert_int_equal(dsmoe_verify_layer_file(name, 1e-5, 1, NULL, NULL, &all_ok, NULL), DSMOE_OK);
    assert_true(all_ok);
    /* float32 cannot meet a tolerance of 0. */
    assert_int_equal(dsmoe_verify_layer_file(name, 0, 1, NULL, NULL, &all_ok, NULL), DSMOE_OK);
    assert_false(all_ok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_files), cmocka_unit_test(test_order),
        cmocka_unit_test(test_changed_numbers), cmocka_unit_test(test_changed_routing),
        cmocka_unit_test(test_starved_experts), cmocka_unit_test(test_difference),
        cmocka_unit_test(test_other_forms),     cmocka_unit_test(test_tolerated_headers),
        cmocka_unit_test(test_truncated),       cmocka_unit_test(test_broken_headers),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_lost),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
