/* test_adapter_hostile.c - adapters that are not supported, damaged, or made for another model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapt/peft.h"
#include "adapter_case.h"

/* ---- refused adapters ------------------------------------------------------------------------- */

static void assert_refused(const char *config, const char *says)
{
    peft_config *read;
    dsmoe_error error = {0};
    dsmoe_status status =
        peft_config_parse(config, strlen(config), "adapter_config.json", &read, &error);
    if (status == DSMOE_OK || read || !strstr(error.message, says) ||
        strncmp(error.message, "adapter_config.json", 19))
        fail_msg("%s: %d '%s'", config, status, error.message);
}

static void test_refused_configs(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"\"use_dora\": true", "\"use_dora\" is set"},
        {"\"bias\": \"all\"", "\"bias\" is not \"none\""},
        {"\"bias\": 1", "\"bias\" is not \"none\""},
        {"\"lora_bias\": true", "\"lora_bias\" is set"},
        {"\"fan_in_fan_out\": true", "\"fan_in_fan_out\" is set"},
        {"\"modules_to_save\": [\"lm_head\"]", "\"modules_to_save\" is set"},
        {"\"target_parameters\": [\"w\"]", "\"target_parameters\" is set"},
        {"\"layer_replication\": [[0, 4]]", "\"layer_replication\" is set"},
        {"\"alora_invocation_tokens\": [1]", "\"alora_invocation_tokens\" is set"},
        {"\"init_lora_weights\": \"pissa_niter_4\"", "changed base"},
        {"\"r\": 0", "\"r\" must be a rank"},
        {"\"r\": 2.5", "\"r\" must be a rank"},
        {"\"r\": \"8\"", "\"r\" must be a number"},
        {"\"r\": 1e9", "\"r\" must be a rank"},
        {"\"lora_alpha\": []", "\"lora_alpha\" must be a number"},
        {"\"use_rslora\": 1", "\"use_rslora\" must be true or false"},
        {"\"target_modules\": 5", "\"target_modules\" must be a string or"},
        {"\"target_modules\": [\"\"]", "\"target_modules\" has an empty name"},
        {"\"rank_pattern\": []", "\"rank_pattern\" must be an object"},
        {"\"rank_pattern\": {\"q\": 0}", "\"rank_pattern\" must be a rank"},
        {"\"alpha_pattern\": {\"q\": \"1\"}", "\"alpha_pattern\" must hold numbers"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[256];
        snprintf(config, sizeof config, "{\"peft_type\": \"LORA\", %s}", cases[i].more);
        assert_refused(config, cases[i].says);
    }
    assert_refused("{\"peft_type\": \"IA3\"}", "only LoRA");
    assert_refused("{\"r\": 8}", "only LoRA");
    assert_refused("[]", "not an object");
    assert_refused("{", "adapter_config.json");
}

static void test_factors(void **state)
{
    (void)state;
    static const struct {
        const char *more, *module;
        int64_t rank;
        double factor; /* 0: not one of the targets */
    } cases[] = {
        {"\"r\": 16, \"lora_alpha\": 32", "model.layers.0.self_attn.q_proj", 16, 2},
        {"\"r\": 16, \"lora_alpha\": 32, \"use_rslora\": true", "a.q_proj", 16, 8},
        {"\"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": {\"q_proj\": 2}", "a.q_proj", 2, 4},
        {"\"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": {\"q_proj\": 2}", "a.xq_proj", 4, 2},
        {"\"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": {\"layers\\\\.[01]\\\\..*proj\": 2}",
         "model.layers.1.k_proj", 2, 4},
        {"\"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": {\"layers\\\\.[01]\\\\..*proj\": 2}",
         "model.layers.2.k_proj", 4, 2},
        {"\"r\": 4, \"lora_alpha\": 8, \"alpha_pattern\": {\"k_proj\": 1}", "a.k_proj", 4, 0.25},
        {"\"r\": 4, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\", \"self_attn.k_proj\"]",
         "model.self_attn.k_proj", 4, 2},
        {"\"r\": 4, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\"]", "model.k_proj", 4, 0},
        {"\"r\": 4, \"lora_alpha\": 8, \"target_modules\": \".*layers\\\\.3\\\\..*_proj\"",
         "model.layers.3.k_proj", 4, 2},
        {"\"r\": 4, \"lora_alpha\": 8, \"target_modules\": \"layers\"", "model.layers.3", 4, 0},
        {"\"r\": 4, \"lora_alpha\": 8, \"target_modules\": \"all-linear\"", "anything", 4, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        peft_config *config;
        dsmoe_error error = {0};
        int64_t rank = 0;
        float factor = 0;
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", %s}", cases[i].more);
        must(peft_config_parse(text, strlen(text), "c", &config, &error), &error, text);
        dsmoe_status status = peft_config_of(config, cases[i].module, &rank, &factor, &error);
        if (cases[i].factor == 0) {
            assert_int_equal(status, DSMOE_ERROR_CONFIG);
            assert_non_null(strstr(error.message, "target_modules"));
        } else {
            must(status, &error, text);
            assert_int_equal(rank, cases[i].rank);
            assert_true(fabs(factor - cases[i].factor) < 1e-6);
        }
        peft_config_free(config);
    }
}

static void assert_not_opened(const char *name, const dsmoe_model *model, const char *says)
{
    dsmoe_adapter *lora;
    dsmoe_error error = {0};
    dsmoe_status status = dsmoe_adapter_open(in_directory(name), model, &lora, &error);
    if (status == DSMOE_OK || lora || !strstr(error.message, says))
        fail_msg("%s: %d '%s'", says, status, error.message);
}

static void test_refused_tensors(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    dsmoe_model *model = open_model(in_directory("base"));
    made_adapter made = adapter_folder("adapter", &base, "self_attn", false, 30);
    made_pair *p = &made.pairs[1], whole = *p;
    const char *folder = "adapter";
    p->b = NULL;
    made_adapter_write(&made, in_directory(folder), NULL);
    assert_not_opened(folder, model, "it has A but not B");
    *p = whole;
    p->n_in--;
    made_adapter_write(&made, in_directory(folder), NULL);
    assert_not_opened(folder, model, "made for another model or rank");
    *p = whole;
    p->rank--;
    made_adapter_write(&made, in_directory(folder), NULL);
    assert_not_opened(folder, model, "made for another model or rank");
    *p = whole;
    strcpy(p->module, "model.layers.9.self_attn.q_proj");
    made_adapter_write(&made, in_directory(folder), NULL);
    assert_not_opened(folder, model, "which the model does not have");
    *p = whole;
    strcpy(p->module, "model.layers.1.mlp.gate");
    made_adapter_write(&made, in_directory(folder), NULL);
    assert_not_opened(folder, model, "adapters of routers are not supported");
    *p = whole;
    p->b[3] = NAN;
    made_adapter_write(&made, in_directory(folder), NULL);
    assert_not_opened(folder, model, "contain a NaN or an infinity");
    p->b[3] = 0;
    made_adapter_write(&made, in_directory(folder),
                       "{\"peft_type\": \"LORA\", \"r\": 3, \"target_modules\": [\"v_proj\"]}");
    assert_not_opened(folder, model, "does not name model.layers");
    made_adapter_write(&made, in_directory(folder), NULL);
    remove(in_directory("adapter/adapter_model.safetensors"));
    assert_not_opened(folder, model, "adapter_model.safetensors");
    assert_not_opened("base", model, "it has no adapter_config.json");
    assert_not_opened("nowhere", model, "nowhere");
    dsmoe_model_free(model);
    made_adapter_free(&made);
    made_model_free(&base);
}

/* A GGUF adapter for a model with other sizes, and a model that is opened as an adapter. */
static void test_refused_gguf(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter made = adapter_folder("adapter", &base, "_proj", false, 31);
    convert_adapter("base", "adapter", "adapter.gguf");
    convert_to("base", "base.gguf", NULL);
    dsmoe_config larger = made_config();
    larger.moe_intermediate_size = 14;
    made_model other = made_model_create(&larger, "F32", 5);
    make_folder("other");
    made_model_write(&other, in_directory("other"), false);
    dsmoe_model *model = open_model(in_directory("other"));
    assert_not_opened("adapter.gguf", model, "made for another model");
    assert_not_opened("base.gguf", model, "not an adapter");
    dsmoe_model *right = open_model(in_directory("base"));
    dsmoe_adapter *lora = open_adapter("adapter.gguf", right);
    const dsmoe_adapter *list[] = {lora};
    dsmoe_engine_options options = {.adapters = list, .n_adapters = 1};
    dsmoe_engine *engine;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_engine_create(model, &options, &engine, &error), DSMOE_ERROR_ARGUMENT);
    /* replaces only another adapter, never the one it was read from, and only on request */
    assert_int_equal(dsmoe_adapter_write(lora, in_directory("base.gguf"), true, &error),
                     DSMOE_ERROR_IO);
    assert_int_equal(dsmoe_adapter_write(lora, in_directory("adapter.gguf"), true, &error),
                     DSMOE_ERROR_IO);
    must(dsmoe_adapter_write(lora, in_directory("copy.gguf"), false, &error), &error, "a copy");
    assert_int_equal(dsmoe_adapter_write(lora, in_directory("copy.gguf"), false, &error),
                     DSMOE_ERROR_IO);
    must(dsmoe_adapter_write(lora, in_directory("copy.gguf"), true, &error), &error, "a copy");
    assert_int_equal(dsmoe_adapter_write(lora, in_directory("adapter"), true, &error),
                     DSMOE_ERROR_IO);
    dsmoe_adapter_free(lora);
    dsmoe_model_free(right);
    dsmoe_model_free(model);
    made_adapter_free(&made);
    made_model_free(&other);
    made_model_free(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_refused_configs),
        TEST(test_factors),
        TEST(test_refused_tensors),
        TEST(test_refused_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}
