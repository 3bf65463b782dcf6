/* test_ablation_page.c - the page of a comparison: it shows what it must, and for any file the page is
 * well-formed HTML or there is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data_files.h"
#include "html_page.h"
#include "made_run.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Hundreds of pages are written, and none of them must survive a power loss. */
int __wrap_fsync(int descriptor);

int __wrap_fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

static char *ablation_page(void)
{
    dsmoe_error error = {0};
    const char *html = in_directory("ablation.html");
    remove(html);
    dsmoe_status status = dsmoe_report_ablation(in_directory("a.json"), html, &error);
    assert_int_equal(exists("ablation.html"), status == DSMOE_OK);
    if (status != DSMOE_OK) {
        assert_non_null(strstr(error.message, "a.json"));
        return NULL;
    }
    char *page = read_page("ablation.html");
    assert_well_formed(page);
    return page;
}

static char *ablation_page_of(const char *text)
{
    write_text("a.json", text);
    return ablation_page();
}

static void test_ablation(void **state)
{
    (void)state;
    made_ablation_write(in_directory("a.json"), 3, 3);
    char *page = ablation_page();
    assert_non_null(page);
    assert_alone(page);
    static const char *const shown[] = {
        "7 architectures", "DeepSeekMoE", "1.808", "seed 2", "Without the best experts",
        "With fewer active experts", "Without the shared expert",
        "the loss of DeepSeekMoE goes from 1.808 to 2.414",
        "<i class=\"level\"></i>GShard as trained</li>", "13.7M", "±", "± one standard deviation",
        "Other data",
        /* how they were trained, where it differs */
        "How they were trained", "A step is 8 sequences of 256 tokens.",
        "Text: corpus/prose, corpus/code", "<td data-name=\"gate values\">add up to 1</td>",
        "<td data-name=\"gate values\">softmax × 4</td>",
        "<td data-name=\"balance loss\">0.01, over a batch</td>"};
    for (size_t i = 0; i < COUNT(shown); i++) assert_shows(page, shown[i]);
    assert_hides(page, "http-equiv");
    assert_hides(page, "as trained</text>");
    const char *probes =
        strstr(page, "Numbers of the probes"); /* ± would be the deviation elsewhere */
    assert_non_null(probes);
    assert_non_null(strstr(probes, "<td data-name=\"95 % interval\">1."));
    assert_null(strstr(probes, "±"));
    assert_shows(page, "translate(-3px)"); /* bars at the same place do not overlap */
    assert_shows(page, "translate(3px)");
    free(page);
    made_ablation_write(in_directory("a.json"), 3, 1);
    page = ablation_page();
    assert_non_null(page);
    assert_shows(page, "7 of 21 runs are done");
    assert_shows(page, "http-equiv");
    assert_hides(page, "Without the best experts");
    free(page);
}

/* Intervals, texts and gaps of pairs are shown as in the file, on an axis of tokens. */
static void test_ablation_comparisons(void **state)
{
    (void)state;
    char *page = ablation_page_of(
        "{\"tokens\":1000,\"steps\":10,\"models\":[{\"name\":\"a\",\"label\":\"Ann\",\"runs\":[]},"
        "{\"name\":\"b\",\"label\":\"Bob\",\"runs\":[]}],\"comparisons\":[{\"name\":\"a\",\"to\":\"b\","
        "\"n\":3,\"mean\":-0.0253,\"low\":-0.0419,\"high\":-0.0088,\"p\":0.0223,\"corrected_p\":0.0004,"
        "\"paper\":-0.059,\"text\":\"Ann is <ahead>\",\"gap\":[[5,0.1,-0.2,0.3,3],[10,-0.1,null,null,1],"
        "[7,1,1,1,1],[\"x\"]]},{\"name\":\"b\",\"to\":\"nobody\",\"mean\":null,\"gap\":7},7]}");
    assert_non_null(page);
    assert_alone(page);
    static const char *const shown[] = {
        "What the data support", "Ann minus Bob", "-0.0253", "-0.0419 to -0.0088", "0.022",
        "&lt; 0.001", "-0.0590", "<td data-name=\"seeds\">3</td>", "tokens", "no difference",
        "Differences while training",
        /* next to the charts, not over them */
        "<i class=\"level\"></i>no difference</li>",
        /* a row that phones show as a list */
        "<th scope=\"row\">Ann minus Bob</th><td data-name=\"mean\">"};
    for (size_t i = 0; i < COUNT(shown); i++) assert_shows(page, shown[i]);
    assert_hides(page, ">no difference</text>");
    assert_hides(page, "<ahead>");
    free(page);
}

/* With more architectures than colours, lines of one colour differ, and no interval covers a line. Nor does a
 * long name leave its card, or a difference of a single seed have an interval. */
static void test_ablation_many(void **state)
{
    (void)state;
    char text[4096];
    FILE *json = fmemopen(text, sizeof text, "w");
    assert_non_null(json);
    fputs("{\"tokens\":100,\"steps\":10,\"models\":[", json);
    for (int i = 0; i < 9; i++)
        fprintf(json,
                "%s{\"name\":\"m%d\",\"label\":\"An architecture no. %d\",\"runs\":["
                "{\"held_out_loss\":1,\"curve\":[[5,2],[10,1]]},"
                "{\"held_out_loss\":2,\"curve\":[[5,3],[10,2]]}]}",
                i ? "," : "", i, i);
    fputs("],\"comparisons\":[{\"name\":\"m0\",\"to\":\"m1\",\"n\":1,\"mean\":0.5}]}", json);
    fclose(json);
    char *page = ablation_page_of(text);
    assert_non_null(page);
    assert_shows(page, "<i class=\"t0\"></i>An architecture no. 0");
    assert_shows(page, "<i class=\"t0 dashed\"></i>An architecture no. 7");
    assert_shows(page, "class=\"line dashed t0\"");
    assert_hides(page, "class=\"band");
    assert_shows(page, "class=\"plot rows long\"");
    assert_shows(page, "<td data-name=\"95 % interval\">–</td>");
    free(page);
}

static void test_ablation_hostile(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "", "{", "[]", "7", "{}", "{\"models\":[]}", "{\"models\":{\"a\":1}}"};
    for (size_t i = 0; i < COUNT(refused); i++) assert_null(ablation_page_of(refused[i]));
    static const char *const odd[] = {
        "{\"models\":[7]}", "{\"models\":[null,{},{\"name\":5,\"label\":[],\"runs\":{}}]}",
        "{\"models\":[{\"name\":\"a\",\"runs\":[null,{\"held_out_loss\":1e300,\"curve\":[[1],[2,\"x\"],"
        "7,[3,1],[2,5],[4,1e29]]}]}],\"seeds\":[1e30,null,\"x\"],\"tokens\":\"all\"}",
        "{\"models\":[{\"name\":\"a\",\"label\":\"<b>\",\"experts\":\"<i>\",\"runs\":[{"
        "\"held_out_loss\":1}]}],\"scale\":\"<u>\",\"probes\":{\"mask_top\":[{\"name\":\"<s>\","
        "\"share\":[0,0,null,1e30],\"losses\":[[1],[],7,[2]]}],\"replace_shared\":[{},{\"name\":"
        "\"a\",\"before\":[1,null],\"after\":\"x\",\"paper_before\":1}],\"fewer_active\":[{\"k\":["
        "3,2,1],\"losses\":[[1,2],[3,4]],\"compare\":{\"name\":\"<s>\",\"losses\":[null,5]}}]}}",
        "{\"models\":[{}],\"probes\":{\"mask_top\":7,\"replace_shared\":[7],\"fewer_active\":[[]]}}"};
    for (size_t i = 0; i < COUNT(odd); i++) {
        char *page = ablation_page_of(odd[i]);
        assert_non_null(page);
        assert_alone(page);
        assert_hides(page, "<u>");
        assert_hides(page, "<s>");
        free(page);
    }
    made_ablation_write(in_directory("a.json"), 2, 2);
    size_t size;
    char *whole = (char *)read_data("a.json", &size), *copy = malloc(size);
    assert_non_null(copy);
    for (uint64_t i = 0; i < 120; i++) {
        static const char bytes[] = "0123-e.";
        memcpy(copy, whole, size);
        for (uint64_t j = 0; j < 3; j++) {
            uint64_t bits = rng_bits(6, i, j), at = bits % size;
            if (copy[at] >= '0' && copy[at] <= '9') copy[at] = bytes[(bits >> 40) % 7];
        }
        write_data("a.json", copy, size);
        free(ablation_page());
    }
    free(whole);
    free(copy);
    dsmoe_error error = {0};
    made_ablation_write(in_directory("a.json"), 1, 1);
    assert_int_equal(dsmoe_report_ablation(in_directory("a.json"), "/nowhere/at/all.html", &error),
                     DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/nowhere/at/all.html"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_ablation),
        IN_FOLDER(test_ablation_hostile),
        IN_FOLDER(test_ablation_comparisons),
        IN_FOLDER(test_ablation_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
