/* test_cli_names.c - mistyped names: which known names are close; and that the command's lists match the
 * library's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cli/names.h"
#include "cli/suggest.h"
#include "dsmoe.h"

static void test_near_names_are_suggested(void **state)
{
    (void)state;
    static const char *const names[] = {"train",   "--top-k", "generate", "q4_k_m",
                                        "--top-p", "chat",    "tiny"};
    const struct {
        const char *word, *meant;
    } cases[] = {{"trian", "train"},
                 {"trai", "train"},
                 {"--topk", "--top-k"},
                 {"--top-o", "--top-k"},
                 {"gen", "generate"},
                 {"q4km", "q4_k_m"},
                 {"Q4_K_M", "q4_k_m"},
                 {"chatt", "chat"},
                 {"", NULL},
                 {"xyz", NULL},
                 {"--", NULL},
                 {"g", NULL},
                 {"nonsense", NULL},
                 {"tony", "tiny"},
                 {"a-word-longer-than-any-name-there-is", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = suggest_name(cases[i].word, names, 7);
        if (cases[i].meant)
            assert_string_equal(found, cases[i].meant);
        else
            assert_null(found);
    }
    char text[SUGGESTION], list[16];
    assert_string_equal(suggest_text("trian", names, 7, text), "; did you mean train?");
    assert_string_equal(suggest_text("xyz", names, 7, text), "");
    assert_string_equal(suggest_list(names + 5, 2, list, sizeof list), "chat or tiny");
    assert_string_equal(suggest_list(names, 1, list, sizeof list), "train");
    assert_int_equal(strlen(suggest_list(names, 7, list, sizeof list)), sizeof list - 1);
}

/* The command's lists of names match the library's. */
static void test_names_are_those_of_the_library(void **state)
{
    (void)state;
    dsmoe_config config;
    for (int i = 0; i < N_PRESET_NAMES; i++)
        assert_int_equal(dsmoe_config_preset(preset_names[i], &config, NULL), DSMOE_OK);
    assert_int_equal(N_TYPE_NAMES, DSMOE_N_DTYPES + 1); /* and q4_k_m */
    for (int i = 0; i < DSMOE_N_DTYPES; i++) {
        int j = 0;
        while (j < N_TYPE_NAMES && strcmp(type_names[j], dsmoe_dtype_name((dsmoe_dtype)i))) j++;
        assert_true(j < N_TYPE_NAMES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_names_are_suggested),
        cmocka_unit_test(test_names_are_those_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
